"""The state machine of a rolling restart: one member at a time, by the steps below.

    step           left when                                                  what the operator may do in it
    PickNext       a member is chosen that may be restarted                   -
    ApplyTemplate  the StatefulSet has the new template, and its controller   apply that StatefulSet
                   has observed it
    DeletePod      the pod of `podUid` is gone                                delete the pod of `podUid`
    WaitReady      the pod is ready and of the newest revision                -
    WaitInSync     the broker is in every ISR it belongs to                   -
    RestoreLeaders the broker leads every partition that prefers it and that  ask for these elections
                   it can lead, or `leadership_timeout_s` has passed

A step is written to status before anything is done in it, so an operator that crashes between any two writes reads what
it was doing and goes on. Only the member that status names may get a template or lose its pod. The roll ends, and
status.roll is removed, when no member is pending.

The gate before a pod is deleted: every other member of the roll is ready, none is unscheduled, and each partition whose
ISR the broker is in has all its other replicas in the ISR too. So the broker, which moves its leaderships when it gets
SIGTERM (controlled shutdown), has a replica in sync for each of them; and if it crashes meanwhile, every acknowledged
record is on a replica that can be elected. A broker that is in no ISR may always be restarted, which is how a cluster
recovers from a configuration with which brokers do not start.

A restarted broker leads nothing, so its leaderships are restored before the next member is restarted: otherwise the
brokers restarted first would end up without leaderships, and the others with all. Elections that are refused or late do
not delay the roll; the operator asks for them again when it is over (`planning.preferred_leaders`).

A roll leaves a member for another one that is down and pending, until its own pod is deleted, and again while it
catches up: what keeps the other one down may be what the roll has to write (a StatefulSet that somebody has scaled to
zero, or a template that does not start), and a replica may have only that other one to fetch from.

The active controller is the last. The same machine rolls ZooKeeper servers, which have no partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from ottla_operator.api.fleet import ClusterMetadata
from ottla_operator.api.times import seconds_between
from ottla_operator.roller.leader_elections import PartitionId, restorable, step

Step = Literal["PickNext", "ApplyTemplate", "DeletePod", "WaitReady", "WaitInSync", "RestoreLeaders"]
STEPS: tuple[str, ...] = get_args(Step)
BLOCKERS_SHOWN = 5
REQUEUE_S = 2.0
RESTORE_REQUEUE_S = 0.5
LEADERSHIP_TIMEOUT_S = 60.0
NOT_READY = "is not ready"


@dataclass(frozen=True, slots=True)
class MemberPod:
    """The pod of a member. `is_current`: of the newest revision of its StatefulSet. `is_running`: its container runs.

    `trouble`: why it is not ready, as far as Kubernetes reports it.
    """

    uid: str
    is_ready: bool
    is_current: bool
    is_scheduled: bool
    is_terminating: bool
    is_running: bool = True
    trouble: str = NOT_READY


@dataclass(frozen=True, slots=True)
class RollMember:
    """One StatefulSet with its pod. `pending`: why the pod has to be replaced, empty when it need not."""

    id: int
    pending: tuple[str, ...]
    template_is_current: bool
    pod: MemberPod | None

    @property
    def is_ready(self) -> bool:
        return self.pod is not None and self.pod.is_ready and not self.pod.is_terminating

    @property
    def trouble(self) -> str:
        return NOT_READY if self.pod is None or self.pod.is_ready else self.pod.trouble


@dataclass(frozen=True, slots=True)
class Roll:
    """The content of status.roll. `batch`: at most one member."""

    id: str
    role: str
    step: Step
    since: str
    batch: tuple[int, ...] = ()
    done: tuple[int, ...] = ()
    blocked_by: tuple[str, ...] = ()
    pod_uid: str = ""

    def to_status(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "id": self.id,
            "role": self.role,
            "step": self.step,
            "batch": list(self.batch),
            "done": list(self.done),
            "blockedBy": list(self.blocked_by),
            "since": self.since,
        }
        return {**found, "podUid": self.pod_uid} if self.pod_uid else found


def from_status(value: object) -> Roll | None:
    """Parses status.roll. None when it cannot be parsed: the machine then starts from the facts."""
    if not isinstance(value, Mapping) or value.get("step") not in STEPS:
        return None
    return Roll(
        id=str(value.get("id", "")),
        role=str(value.get("role", "")),
        step=value["step"],
        since=str(value.get("since", "")),
        batch=tuple(value.get("batch") or ()),
        done=tuple(value.get("done") or ()),
        blocked_by=tuple(value.get("blockedBy") or ()),
        pod_uid=str(value.get("podUid", "")),
    )


@dataclass(frozen=True, slots=True)
class RollDecision:
    """The next step. `roll`: the new status.roll, None when there is nothing to roll.

    `apply`, `delete` and `elect` are given only in a step that status held before this decision; `delete` is
    (id, pod uid), `elect` the partitions whose preferred leaders to ask for.
    """

    roll: Roll | None
    apply: int | None = None
    delete: tuple[int, str] | None = None
    elect: tuple[PartitionId, ...] = ()
    requeue_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class RollFacts:
    """What is known about the members. `kafka`: None when no broker answers. `has_partitions`: False for ZooKeeper.

    `restores_leaders`: whether preferred leaders are elected again. `refused_elections`: partitions whose election the
    controller refused a short time ago.
    """

    role: str
    members: Mapping[int, RollMember]
    kafka: ClusterMetadata | None
    has_partitions: bool
    now: str
    roll_id: str
    restores_leaders: bool = False
    refused_elections: Collection[PartitionId] = ()
    leadership_timeout_s: float = LEADERSHIP_TIMEOUT_S


def decide(roll: Roll | None, facts: RollFacts) -> RollDecision:
    """One step. `roll`: status.roll as it is now, for this role."""
    pending = [member for member in facts.members.values() if member.pending]
    if roll is None:
        if not pending:
            return RollDecision(None)
        return _to(facts, Roll(facts.roll_id, facts.role, "PickNext", facts.now), "PickNext")
    if roll.step == "PickNext" or not roll.batch or roll.batch[0] not in facts.members:
        return _pick(roll, facts, pending)
    member = facts.members[roll.batch[0]]
    if roll.step == "ApplyTemplate":
        return _apply(roll, facts, member)
    if roll.step == "DeletePod":
        return _delete(roll, facts, member)
    if roll.step == "WaitReady":
        return _wait_ready(roll, facts, member)
    if roll.step == "WaitInSync":
        return _wait_in_sync(roll, facts, member)
    return _restore_leaders(roll, facts, member)


def is_blocked(roll: Roll, now: str, *, patience_s: float) -> bool:
    """Whether the step has waited for something for `patience_s` or longer.

    Every step waits for something for a short time; that alone is progress.
    """
    lasted = seconds_between(roll.since, now)
    return bool(roll.blocked_by) and (lasted is None or lasted >= patience_s)


def obstacles(member: RollMember, facts: RollFacts) -> tuple[str, ...]:
    """Why this member's pod must not be deleted now; empty when it may."""
    found = [
        f"{facts.role} {other.id} {other.trouble}"
        for other in facts.members.values()
        if other.id != member.id and not other.is_ready and (member.is_ready or _is_unscheduled(other))
    ]
    if facts.has_partitions and _is_running(member):
        if facts.kafka is None:
            found.append("no broker answers which replicas are in sync")
        else:
            for partition in facts.kafka.partitions:
                if member.id not in partition.in_sync:
                    continue
                missing = [str(r) for r in partition.replicas if r != member.id and r not in partition.in_sync]
                if missing:
                    found.append(f"{partition}: replica {', '.join(missing)} is not in sync")
    return tuple(found[:BLOCKERS_SHOWN])


def _is_running(member: RollMember) -> bool:
    return member.pod is not None and member.pod.is_running


def _is_unscheduled(member: RollMember) -> bool:
    return member.pod is not None and not member.pod.is_scheduled


def _to(facts: RollFacts, roll: Roll, step: Step, **changes: Any) -> RollDecision:
    """Goes to another step. What may be done in it is decided once status has it."""
    return RollDecision(replace(roll, step=step, since=facts.now, blocked_by=(), **changes), requeue_after_s=0.0)


def _stay(roll: Roll, blocked_by: Sequence[str] = (), **acts: Any) -> RollDecision:
    return RollDecision(replace(roll, blocked_by=tuple(blocked_by)[:BLOCKERS_SHOWN]), requeue_after_s=REQUEUE_S, **acts)


def _pick(roll: Roll, facts: RollFacts, pending: list[RollMember]) -> RollDecision:
    """Chooses a member: those that are not ready first, then by id, the active controller last."""
    if not pending:
        return RollDecision(None)
    controller = facts.kafka.controller if facts.kafka is not None and facts.has_partitions else None
    ordered = sorted(pending, key=lambda member: (member.is_ready, member.id == controller, member.id))
    blocked: tuple[str, ...] = ()
    for member in ordered:
        blocked = obstacles(member, facts)
        if not blocked:
            return _to(facts, roll, "ApplyTemplate", batch=(member.id,), pod_uid="")
        if not member.is_ready:
            continue
        break
    return _stay(replace(roll, step="PickNext", batch=(), pod_uid=""), blocked)


def _apply(roll: Roll, facts: RollFacts, member: RollMember) -> RollDecision:
    if not member.template_is_current:
        return _stay(roll, apply=member.id)
    if member.pod is not None and not member.pod.is_current:
        return _to(facts, roll, "DeletePod", pod_uid=member.pod.uid)
    return _to(facts, roll, "WaitReady")


def _delete(roll: Roll, facts: RollFacts, member: RollMember) -> RollDecision:
    if member.pod is None or member.pod.uid != roll.pod_uid:
        return _to(facts, roll, "WaitReady", pod_uid="")
    if member.pod.is_terminating:
        return _stay(roll, [f"the pod of {facts.role} {member.id} is still being deleted"])
    if not member.template_is_current:
        # The spec changed meanwhile: the pod would come back with the template of before.
        return _to(facts, roll, "ApplyTemplate", pod_uid="")
    blocked = obstacles(member, facts)
    if blocked and _is_another_down(facts, member):
        return _to(facts, roll, "PickNext", batch=(), pod_uid="")
    return _stay(roll, blocked) if blocked else _stay(roll, delete=(member.id, roll.pod_uid))


def _is_another_down(facts: RollFacts, member: RollMember) -> bool:
    """Whether another member is not ready and pending: it must not wait for this one."""
    return any(other.pending and not other.is_ready for other in facts.members.values() if other.id != member.id)


def _wait_ready(roll: Roll, facts: RollFacts, member: RollMember) -> RollDecision:
    if not member.template_is_current and not member.is_ready:
        return _to(facts, roll, "ApplyTemplate")  # the spec changed again, and this member is down anyway
    if member.pod is None:
        return _stay(roll, [f"{facts.role} {member.id} has no pod yet"])
    if not member.pod.is_current and member.template_is_current and not member.pod.is_terminating:
        return _to(facts, roll, "DeletePod", pod_uid=member.pod.uid)
    if not member.is_ready:
        return _stay(roll, [f"{facts.role} {member.id} {member.trouble}"])
    return _to(facts, roll, "WaitInSync")


def _wait_in_sync(roll: Roll, facts: RollFacts, member: RollMember) -> RollDecision:
    if not member.is_ready:
        return _to(facts, roll, "WaitReady")
    if waits := _not_in_sync(facts, member):
        return _to(facts, roll, "PickNext", batch=()) if _is_another_down(facts, member) else _stay(roll, waits)
    if facts.has_partitions and facts.restores_leaders:
        return _to(facts, roll, "RestoreLeaders")
    return _next(roll, facts, member)


def _not_in_sync(facts: RollFacts, member: RollMember) -> list[str]:
    """Why the member is not in every ISR; empty for a ZooKeeper server."""
    if not facts.has_partitions:
        return []
    if facts.kafka is None:
        return ["no broker answers which replicas are in sync"]
    if member.id not in facts.kafka.brokers:
        return [f"broker {member.id} is not registered"]
    behind = [str(p) for p in facts.kafka.partitions if member.id in p.replicas and member.id not in p.in_sync]
    return [f"{name}: broker {member.id} is not in sync" for name in behind]


def _restore_leaders(roll: Roll, facts: RollFacts, member: RollMember) -> RollDecision:
    if not member.is_ready:
        return _to(facts, roll, "WaitReady")
    lasted = seconds_between(roll.since, facts.now)
    is_late = lasted is None or lasted > facts.leadership_timeout_s
    if facts.kafka is None and not is_late:
        return _stay(roll, ["no broker answers who leads"])
    if facts.kafka is None or is_late or member.pending or not facts.restores_leaders:
        return _next(roll, facts, member)
    wanted = restorable(facts.kafka, (member.id,), facts.refused_elections)
    if not wanted:
        return _next(roll, facts, member)
    message = f"{len(wanted)} partitions that prefer broker {member.id} are led by others"
    return replace(_stay(roll, [message], elect=step(wanted)), requeue_after_s=RESTORE_REQUEUE_S)


def _next(roll: Roll, facts: RollFacts, member: RollMember) -> RollDecision:
    return _to(facts, roll, "PickNext", batch=(), done=(*roll.done, member.id), pod_uid="")

"""The minimal roller: template, delete, ready, in every ISR, next.

    step           it is left when                                            in it the operator may
    PickNext       a member is chosen and may be restarted                    -
    ApplyTemplate  the StatefulSet has the new template, and its controller   apply that StatefulSet
                   has seen it
    DeletePod      the pod of `podUid` is gone                                delete the pod of `podUid`
    WaitReady      the pod is ready and of the newest revision                -
    WaitInSync     the broker is in every ISR it belongs to                   -
    RestoreLeaders the broker leads all that it can of what prefers it,       ask for these elections
                   or `leadership_timeout_s` has passed

A step is written to status before anything is done in it, so an operator that dies between any two writes finds out
what it was doing and goes on. Applying and deleting are allowed only to the member that status names. The roll ends,
and status.roll goes, when nobody is pending.

The gate before a pod is deleted: every other member of the roll is ready, none is unscheduled, and each partition
whose ISR the broker is in has all its other replicas in the ISR too. So the broker, which hands its leaderships over
when it gets SIGTERM (controlled shutdown), finds somebody in sync for each of them; a broker that dies over it leaves
every acknowledged record with a replica that can be elected. A broker that is in no ISR may always be restarted, which
is how a fleet comes out of a configuration that does not start.

A restarted broker leads nothing, so its leaderships are restored before the next member: else those that have had their
turn end up without any, and the rest with all. Elections that are refused or do not come in time hold no roll up; they
are asked for again when it is over (`planning.leaders`).

A member gives its turn up for one that is down and pending, as long as its own pod is not deleted, and again while it
catches up: what keeps the other one down may be what the roll is to write (somebody has scaled its StatefulSet to zero,
or its former template does not start), and a replica may have nobody but the other one to catch up with.

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
WAKE_S = 2.0
RESTORE_WAKE_S = 0.5
LEADERSHIP_TIMEOUT_S = 60.0
NOT_READY = "is not ready"


@dataclass(frozen=True, slots=True)
class MemberPod:
    """`is_current`: it is of the newest revision of its StatefulSet. `is_running`: its container is, ready or not.

    `trouble`: why it is not ready, as far as Kubernetes tells.
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
    """What stands in status.roll. `batch` holds at most one member."""

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
    """The roll that status tells of. What cannot be read is no roll: the machine then starts from the facts."""
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
    """`roll`: what status.roll becomes, None when there is nothing to roll.

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
    """`kafka` is None when no broker answers; `has_partitions` is False for ZooKeeper servers.

    `restores_leaders`: whether leaderships are given back; `refused_elections`: those that the controller has refused
    of late.
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
    """One step. `roll` is what status holds now, for this role."""
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
    """Whether an obstacle lasts: the step waits for something, and has been going on for `patience_s` or longer.

    Every step waits for something for a moment, so that alone is progress.
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
    """Into another step; what may be done there is decided once status says so."""
    return RollDecision(replace(roll, step=step, since=facts.now, blocked_by=(), **changes), requeue_after_s=0.0)


def _stay(roll: Roll, blocked_by: Sequence[str] = (), **acts: Any) -> RollDecision:
    return RollDecision(replace(roll, blocked_by=tuple(blocked_by)[:BLOCKERS_SHOWN]), requeue_after_s=WAKE_S, **acts)


def _pick(roll: Roll, facts: RollFacts, pending: list[RollMember]) -> RollDecision:
    """Members that are not ready first, then by id, the active controller last."""
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
        # The declaration has changed while this turn was waiting: the pod would come back with what was taken back.
        return _to(facts, roll, "ApplyTemplate", pod_uid="")
    blocked = obstacles(member, facts)
    if blocked and _is_another_down(facts, member):
        return _to(facts, roll, "PickNext", batch=(), pod_uid="")
    return _stay(roll, blocked) if blocked else _stay(roll, delete=(member.id, roll.pod_uid))


def _is_another_down(facts: RollFacts, member: RollMember) -> bool:
    """Whether a member that is not ready waits for its turn, so that it must not wait for this one."""
    return any(other.pending and not other.is_ready for other in facts.members.values() if other.id != member.id)


def _wait_ready(roll: Roll, facts: RollFacts, member: RollMember) -> RollDecision:
    if not member.template_is_current and not member.is_ready:
        return _to(facts, roll, "ApplyTemplate")  # the declaration changed again, and this member is down anyway
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
    """What the member is not in sync with, as far as the brokers tell; empty for a ZooKeeper server."""
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
    return replace(_stay(roll, [message], elect=step(wanted)), requeue_after_s=RESTORE_WAKE_S)


def _next(roll: Roll, facts: RollFacts, member: RollMember) -> RollDecision:
    return _to(facts, roll, "PickNext", batch=(), done=(*roll.done, member.id), pod_uid="")

"""The state machine of a rolling restart: one batch of members at a time, by the steps below.

    step           left when                                                  what the operator may do in it
    PickNext       a batch is chosen that may be restarted                    -
    ApplyTemplate  each StatefulSet of the batch has the new template, and    apply these StatefulSets
                   its controller has observed it
    MoveLeaders    the brokers lead nothing that others can lead, or          move these leaderships, and put
                   `leadership_timeout_s` has passed; and every replica       the orders of replicas back
                   order is the original one
    DeletePod      the pods of `pods` are gone                                delete these pods
    WaitReady      each pod is ready and of the newest revision               -
    WaitInSync     each broker is in every ISR it belongs to                  -
    RestoreLeaders the brokers lead every partition that prefers them and     ask for these elections, once Services
                   that they can lead, or `leadership_timeout_s` has passed   send clients to the brokers

A step is written to status before anything is done in it, so an operator that crashes between any two writes reads what
it was doing and goes on. Only the members that status names may get a template or lose their pods. The roll ends, and
status.roll is removed, when no member is pending.

A batch is the largest set of brokers of one rack that every partition can do without (`batches`); ZooKeeper servers,
and members that are not ready, are restarted one at a time. The gate before its pods are deleted: every member outside
of the batch is ready, none is unscheduled, and each partition that has one of the batch in its ISR keeps
min.insync.replicas in sync without the batch, and at least one. So each partition has a replica in sync to lead it when
the brokers get SIGTERM (controlled shutdown) and also if they crash meanwhile. A broker that is in no ISR may always be
restarted, which is how a cluster recovers from a configuration with which brokers do not start; while others can go
first, or for `BEHIND_PATIENCE_S`, it is left to catch up. The deletions of a batch are one act; when it is interrupted
and the rest of the batch may not be stopped any more, the batch becomes those that were stopped.

Leaderships leave the batch before it is stopped, a bounded number at a time (`leader_moves`); what is left after
`leadership_timeout_s` moves by the brokers' own controlled shutdown. A restarted broker leads nothing, so its
leaderships are restored before the next batch is restarted: otherwise the brokers restarted first would end up without
leaderships, and the others with all. Elections that are refused or late do not delay the roll; the operator asks for
them again when it is over (`concerns.roll.preferred_leaders`).

Without ZooKeeper no broker that runs is stopped: nobody could move its leaderships, and it could not register again. A
session that is lost for longer than `BEHIND_PATIENCE_S` stops no roll: the roll may be what repairs it.

A batch whose pods were stopped makes progress when it is ready for the first time, and whenever fewer partitions lack
it in their ISR than ever before. When it has made none for `progress_deadline_s` the roll has failed: it waits on,
restarts nobody else, and once the templates change it restarts this batch again before any other.

A roll leaves a batch for another member that is down and pending, until its own pods are deleted, and again while it
catches up: what keeps the other one down may be what the roll has to write (a StatefulSet that somebody has scaled to
zero, or a template that does not start), and a replica may have only that other one to fetch from.

While `waiting` says so (a maintenance window is closed, other clusters have the turn) no batch is chosen. When a window
closes, a batch of which no pod was stopped is left; any other is finished. Members that `heals` marks do not wait:
those that do not come back by themselves, and brokers with a failed volume that has a successor.

A broker with a partition that clients lose while it restarts (`batches.exposed`) is not stopped, unless the spec allows
it, when it is restarted alone, or the fleet has only this one. Brokers of the fleet that are no members count.

The active controller is in the last batch: it waits for others that may not be stopped, `BEHIND_PATIENCE_S` at most.
The same machine rolls ZooKeeper servers, which have no partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ottla_operator.api.fleet import ClusterMetadata
from ottla_operator.api.times import seconds_between
from ottla_operator.concerns.roll.batches import BLOCKERS_SHOWN, RollBatch, exposed, partition_blockers, planned_batches
from ottla_operator.concerns.roll.estimate import estimated_end
from ottla_operator.concerns.roll.leader_elections import restorable, step
from ottla_operator.concerns.roll.leader_moves import movable, next_moves
from ottla_operator.concerns.roll.state import PlannedMember, Roll, Step, Waiting
from ottla_operator.facts.fleet_values import PartitionId
from ottla_operator.facts.leader_move import LeaderMove

REQUEUE_S = 2.0
RESTORE_REQUEUE_S = 0.5
LEADERS_SEEN_S = 0.1
"""When to look whether leaderships have moved: brokers show what the controller did a moment later."""
TURN_REQUEUE_S = 5.0
LEADERSHIP_TIMEOUT_S = 60.0
PROGRESS_DEADLINE_S = 600.0
BEHIND_PATIENCE_S = 600.0
"""How long a pending broker that is behind is left to catch up before it, or the controller, may be restarted."""
NOT_READY = "is not ready"


@dataclass(frozen=True, slots=True)
class MemberPod:
    """The pod of a member. `is_current`: of the newest revision of its StatefulSet. `is_running`: its container runs.
    `is_reachable`: it has been ready for long enough that Services send clients to it.

    `not_ready_reason`: why it is not ready, as far as Kubernetes reports it.
    """

    uid: str
    is_ready: bool
    is_current: bool
    is_scheduled: bool
    is_terminating: bool
    is_running: bool = True
    is_reachable: bool = True
    not_ready_reason: str = NOT_READY


@dataclass(frozen=True, slots=True)
class RollMember:
    """One StatefulSet with its pod. `pending`: why the pod has to be replaced, empty when it need not.

    `rack`: "" when it has none; it is then restarted alone. `heals`: whether its restart repairs it: it never waits.
    """

    id: int
    pending: tuple[str, ...]
    template_is_current: bool
    pod: MemberPod | None
    rack: str = ""
    heals: bool = False

    @property
    def is_ready(self) -> bool:
        return self.pod is not None and self.pod.is_ready and not self.pod.is_terminating

    @property
    def not_ready_reason(self) -> str:
        return NOT_READY if self.pod is None or self.pod.is_ready else self.pod.not_ready_reason


@dataclass(frozen=True, slots=True)
class RollDecision:
    """The next step. `roll`: the new status.roll, None when there is nothing to roll.

    `apply`, `delete` and `elect` are given only in a step that status held before this decision; `apply` are members,
    `delete` are (id, pod uid), all of them one act, `elect` the partitions whose preferred leaders to ask for, `moves`
    the leaderships to move, which status holds; with `only_restore` only the orders of replicas are put back.
    """

    roll: Roll | None
    apply: tuple[int, ...] = ()
    delete: tuple[tuple[int, str], ...] = ()
    elect: tuple[PartitionId, ...] = ()
    moves: tuple[LeaderMove, ...] = ()
    only_restore: bool = False
    requeue_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class RollFacts:
    """What is known about the members. `kafka`: None when no broker answers. `has_partitions`: False for ZooKeeper.

    `fleet_size`: how many brokers there are: members, others, and those that the operator does not run. `others`:
    brokers that are no members, since it is not known or not declared how they should be: none of them is restarted.
    `restores_leaders`: whether preferred leaders are elected again. `refused_elections`: partitions whose election the
    controller refused a short time ago; `refused_moves` likewise. `restored_moves`: moves whose original orders the
    controller has confirmed to this process. `awaits`: the approval without which no batch is chosen. `waiting`: why
    none is chosen but one that repairs; None when one may be. `most`: how many members a batch may have;
    None: no bound. `leader`: the ZooKeeper server that leads, which comes last; None when it is not known.
    `store_blockers`: why no broker that runs may be stopped, since ZooKeeper does not serve. `allows_unavailability`:
    whether partitions may be lost to clients while their broker restarts.
    """

    role: str
    members: Mapping[int, RollMember]
    kafka: ClusterMetadata | None
    has_partitions: bool
    now: str
    roll_id: str
    fleet_size: int = 1
    others: Collection[RollMember] = ()
    restores_leaders: bool = False
    refused_elections: Collection[PartitionId] = ()
    leadership_timeout_s: float = LEADERSHIP_TIMEOUT_S
    most: int | None = None
    refused_moves: Collection[PartitionId] = ()
    restored_moves: Collection[LeaderMove] = ()
    awaits: str = ""
    leader: int | None = None
    waiting: Waiting | None = None
    progress_deadline_s: float = PROGRESS_DEADLINE_S
    allows_unavailability: bool = False

    @property
    def keeps_available(self) -> bool:
        """Whether no broker is stopped whose partitions clients would lose; that of a fleet of one always may be."""
        return self.has_partitions and not self.allows_unavailability and self.fleet_size > 1

    store_blockers: tuple[str, ...] = ()


def decide(roll: Roll | None, facts: RollFacts) -> RollDecision:
    """One step. `roll`: status.roll as it is now, for this role."""
    pending = [member for member in facts.members.values() if member.pending]
    if roll is None:
        if not pending:
            return RollDecision(None)
        first = Roll(facts.roll_id, facts.role, "PickNext", facts.now, started=facts.now)
        if facts.waiting is not None and not facts.awaits:
            return replace(_pick(first, facts, pending), requeue_after_s=0.0)
        return _to(facts, first, "PickNext")
    if roll.moving and (restoring := _restore_orders(roll, facts)) is not None:
        return restoring
    batch = [facts.members[number] for number in roll.batch if number in facts.members]
    if roll.step == "PickNext" or not batch:
        return _pick(roll, facts, pending)
    if len(batch) < len(roll.batch):
        return _to(facts, roll, roll.step, batch=tuple(member.id for member in batch))
    return _STEPS[roll.step](roll, facts, batch)


def is_blocked(roll: Roll, now: str, *, patience_s: float) -> bool:
    """Whether the step has waited for something for `patience_s` or longer.

    Every step waits for something for a short time; that alone is progress.
    """
    lasted = seconds_between(roll.since, now)
    return bool(roll.blocked_by) and (lasted is None or lasted >= patience_s)


def blockers(batch: Sequence[RollMember], facts: RollFacts) -> tuple[str, ...]:
    """Why the pods of these members must not be deleted now; empty when they may."""
    ids = {member.id for member in batch}
    are_ready = any(member.is_ready for member in batch)
    are_unscheduled = all(map(_is_unscheduled, batch))  # they run nowhere: what keeps them may keep the others too
    found = [
        f"{facts.role} {other.id} {other.not_ready_reason}"
        for other in facts.members.values()
        if other.id not in ids
        and not other.is_ready
        and (are_ready or (_is_unscheduled(other) and not are_unscheduled))
    ]
    found += [
        f"{facts.role} {other.id} {other.not_ready_reason}"
        for other in facts.others
        if are_ready and not other.is_ready
    ]
    if facts.has_partitions and (stopping := running(batch)):
        found += facts.store_blockers
        if facts.kafka is None:
            found.append("no broker answers which replicas are in sync")
        else:
            found += partition_blockers(facts.kafka.partitions, ids, stopping)
            found += _exposed(batch, facts).values()
    return tuple(found[:BLOCKERS_SHOWN])


def _exposed(members: Sequence[RollMember], facts: RollFacts) -> dict[int, str]:
    """Why members that are ready may not be stopped whatever the ISRs are; empty when that is allowed."""
    if facts.kafka is None or not facts.keeps_available:
        return {}
    return exposed(facts.kafka.partitions, [member.id for member in members if member.is_ready])


def running(batch: Sequence[RollMember]) -> tuple[int, ...]:
    """The members whose container runs, and so may be what keeps a partition available."""
    return tuple(member.id for member in batch if member.pod is not None and member.pod.is_running)


def _is_unscheduled(member: RollMember) -> bool:
    return member.pod is not None and not member.pod.is_scheduled


def _ids(batch: Sequence[RollMember]) -> tuple[int, ...]:
    return tuple(member.id for member in batch)


def _to(facts: RollFacts, roll: Roll, step: Step, **changes: Any) -> RollDecision:
    """Goes to another step. What may be done in it is decided once status has it."""
    begun = replace(roll, step=step, since=facts.now, blocked_by=(), failed=False)
    return RollDecision(replace(begun, **changes), requeue_after_s=0.0)


def _restarted(facts: RollFacts, roll: Roll) -> RollDecision:
    """Waits for the pods that take the place of those that were stopped."""
    return _to(facts, roll, "WaitReady", pods={}, progressed=facts.now, behind=0)


def _wait_for(facts: RollFacts, roll: Roll, waits: Sequence[str]) -> RollDecision:
    """Waits for the batch; the roll has failed when that has lasted for too long."""
    lasted = seconds_between(roll.progressed, facts.now)
    return _stay(replace(roll, failed=lasted is not None and lasted >= facts.progress_deadline_s), waits)


def _stay(roll: Roll, blocked_by: Sequence[str] = (), **acts: Any) -> RollDecision:
    return RollDecision(replace(roll, blocked_by=tuple(blocked_by)[:BLOCKERS_SHOWN]), requeue_after_s=REQUEUE_S, **acts)


def _pick(roll: Roll, facts: RollFacts, pending: list[RollMember]) -> RollDecision:
    """Chooses a batch: members that are not ready first, one at a time, then batches of those that are."""
    if not pending:
        return RollDecision(None)
    batches = _planned(roll, facts, pending)
    roll = _with_plan(roll, facts, _plan(facts, pending, batches))
    if facts.awaits:
        return _stay(replace(roll, step="PickNext", batch=(), estimate=""))
    if facts.waiting is not None:
        pending = [member for member in pending if member.heals]
        if not pending:
            soon = TURN_REQUEUE_S if facts.waiting.reason == "AwaitingTurn" else None
            waited = replace(roll, step="PickNext", batch=(), estimate="", blocked_by=())
            return RollDecision(waited, requeue_after_s=soon)
        batches = _planned(roll, facts, pending)
    blocked: tuple[str, ...] = ()
    for member in sorted((member for member in pending if not member.is_ready), key=lambda member: member.id):
        blocked = blockers([member], facts)
        if not blocked:
            return _picked(facts, roll, (member.id,), batches)
    candidates = batches[0].brokers if batches else ()
    chosen = [facts.members[number] for number in candidates]
    others = sorted(member.id for member in pending if member.id not in candidates)
    if _has_controller(facts, candidates) and others and not _is_patient_no_more(roll, facts):
        blocked = blockers([facts.members[others[0]]], facts)
    elif chosen:
        blocked = blockers(chosen, facts)
        if not blocked:
            return _picked(facts, roll, candidates, batches)
    elif batches:
        first = min(batches[0].left_out)
        blocked = blockers([facts.members[first]], facts) or (batches[0].left_out[first],)
    return _stay(replace(roll, step="PickNext", batch=()), blocked)


def _with_plan(roll: Roll, facts: RollFacts, plan: tuple[PlannedMember, ...]) -> Roll:
    """The roll with its plan and what it waits for. When it waits no more its step begins; before the first batch, the
    roll."""
    found = replace(roll, plan=plan, pods={}, awaits=facts.awaits, waiting=None if facts.awaits else facts.waiting)
    if roll.is_waiting and not found.is_waiting:
        found = replace(found, since=facts.now, started=found.started if found.batches_done else facts.now)
    return found


def _has_controller(facts: RollFacts, ids: Collection[int]) -> bool:
    return facts.has_partitions and facts.kafka is not None and facts.kafka.controller in ids


def _is_patient_no_more(roll: Roll, facts: RollFacts) -> bool:
    """Whether brokers that are behind have had their time to catch up in this step."""
    lasted = seconds_between(roll.since, facts.now) if roll.step == "PickNext" else 0.0
    return lasted is None or lasted >= BEHIND_PATIENCE_S


def _picked(facts: RollFacts, roll: Roll, ids: tuple[int, ...], batches: Sequence[RollBatch]) -> RollDecision:
    left = sum(1 for batch in batches if batch.brokers and set(batch.brokers) != set(ids)) + 1
    end = estimated_end(roll.started, facts.now, roll.batches_done, left)
    return _to(facts, roll, "ApplyTemplate", batch=ids, estimate=end, waiting=None)


def _planned(roll: Roll, facts: RollFacts, pending: Sequence[RollMember]) -> tuple[RollBatch, ...]:
    """The batches of the pending members that are ready."""
    ready = {member.id: member for member in pending if member.is_ready}
    if not facts.has_partitions:
        return tuple(
            RollBatch((number,), {}) for number in sorted(ready, key=lambda number: (number == facts.leader, number))
        )
    racks = {number: member.rack for number, member in ready.items()}
    if facts.kafka is None:
        why = "no broker answers which replicas are in sync"
        return (RollBatch((), dict.fromkeys(sorted(ready), why)),) if ready else ()
    behind = _behind(facts.kafka, racks)
    if set(racks) > behind and not _is_patient_no_more(roll, facts):
        racks = {number: rack for number, rack in racks.items() if number not in behind}
    partitions, controller = facts.kafka.partitions, facts.kafka.controller
    kept = _exposed(pending, facts)
    if not facts.keeps_available:
        alone = exposed(partitions, racks)
        racks = {number: "" if number in alone else rack for number, rack in racks.items()}
    racks = {number: rack for number, rack in racks.items() if number not in kept}
    found = planned_batches(racks, partitions, controller, most=facts.most)
    if not kept:
        return found
    if not found or found[-1].brokers:
        found = (*found, RollBatch((), {}))
    return tuple(replace(batch, left_out={**batch.left_out, **kept}) for batch in found)


def _behind(kafka: ClusterMetadata, brokers: Collection[int]) -> set[int]:
    """The brokers that are not in every ISR they belong to."""
    return {
        replica
        for partition in kafka.partitions
        if len(partition.in_sync) < len(partition.replicas)
        for replica in partition.replicas
        if replica in brokers and replica not in partition.in_sync
    }


def _plan(facts: RollFacts, pending: Sequence[RollMember], batches: Sequence[RollBatch]) -> tuple[PlannedMember, ...]:
    """Every pending member: why it is restarted, in which batch from now, and why not in the next one."""
    place = {number: index for index, batch in enumerate(batches, 1) for number in batch.brokers}
    waits = batches[0].left_out if batches else {}
    found = []
    for member in sorted(
        pending, key=lambda member: (place.get(member.id, 0 if not member.is_ready else 10**9), member.id)
    ):
        if not member.is_ready:
            why = f"{member.not_ready_reason}: it comes first"
        elif member.id in place or member.id in waits:
            why = waits.get(member.id, "")
        else:
            why = "it is not in sync: it is left to catch up"
        found.append(PlannedMember(member.id, place.get(member.id), member.pending, why))
    return tuple(found)


def _may_be_left(facts: RollFacts, batch: Sequence[RollMember]) -> bool:
    """Whether a batch of which nobody was stopped has to wait for the next window."""
    waits_for_window = facts.waiting is not None and facts.waiting.reason == "AwaitingWindow"
    return waits_for_window and any(member.is_ready and not member.heals for member in batch)


def _apply(roll: Roll, facts: RollFacts, batch: Sequence[RollMember]) -> RollDecision:
    if _may_be_left(facts, batch):
        return _to(facts, roll, "PickNext", batch=(), pods={})
    if stale := tuple(member.id for member in batch if not member.template_is_current):
        return _stay(roll, apply=stale)
    if outdated := _outdated(batch):
        moves = facts.has_partitions and facts.restores_leaders
        leads = moves and facts.kafka is not None and movable(facts.kafka, running(batch), facts.refused_moves)
        if not leads or facts.kafka is None:
            return _to(facts, roll, "DeletePod", pods=outdated)
        first = roll.moving or next_moves(facts.kafka, running(batch), leads)
        return _to(facts, roll, "MoveLeaders", pods=outdated, moving=first)
    return _restarted(facts, roll)


def _restore_orders(roll: Roll, facts: RollFacts) -> RollDecision | None:
    """Puts orders of replicas back before anything else happens; None when all are, or the moves go on."""
    left = [move for move in roll.moving if move not in facts.restored_moves]
    if not left or (roll.step == "MoveLeaders" and not _is_late(roll, facts)):
        return None
    message = f"{len(left)} partitions get the original order of their replicas back"
    return _stay(roll, [message], moves=tuple(left), only_restore=True)


def _is_late(roll: Roll, facts: RollFacts) -> bool:
    lasted = seconds_between(roll.since, facts.now)
    return lasted is None or lasted > facts.leadership_timeout_s


def _move_leaders(roll: Roll, facts: RollFacts, batch: Sequence[RollMember]) -> RollDecision:
    """Moves leaderships away a bounded number at a time; each number is in status before it is moved."""
    if _is_late(roll, facts):
        return _to(facts, roll, "DeletePod", moving=())
    if facts.kafka is None:
        return _stay(roll, ["no broker answers who leads"])
    left = tuple(move for move in roll.moving if move not in facts.restored_moves)
    if not all(member.template_is_current for member in batch):  # the spec changed meanwhile
        if left:
            return _stay(roll, moves=left, only_restore=True)
        return _to(facts, roll, "ApplyTemplate", pods={}, moving=())
    if _may_be_left(facts, batch):
        if left:
            return _stay(roll, moves=left, only_restore=True)
        return _to(facts, roll, "PickNext", batch=(), pods={}, moving=())
    stopping = running(batch)
    to_move = movable(facts.kafka, stopping, facts.refused_moves)
    if left:
        message = f"broker {', '.join(map(str, stopping))} leads {len(to_move)} partitions that others can lead"
        return replace(_stay(roll, [message], moves=left), requeue_after_s=_soon(roll, message))
    if not to_move:
        return _to(facts, roll, "DeletePod", moving=())
    if roll.moving:  # these are over: the next ones are recorded in a status without them, so none is taken for another
        return replace(_stay(replace(roll, moving=())), requeue_after_s=RESTORE_REQUEUE_S)
    moving = next_moves(facts.kafka, stopping, to_move)
    return replace(_stay(replace(roll, moving=moving)), requeue_after_s=0.0)


def _soon(roll: Roll, message: str) -> float:
    """When to look at what was asked for: at once, but not again and again when the last time had no effect."""
    return RESTORE_REQUEUE_S if message in roll.blocked_by else LEADERS_SEEN_S


def _outdated(batch: Sequence[RollMember]) -> dict[int, str]:
    """The pods that are not of the newest revision, by member."""
    return {member.id: member.pod.uid for member in batch if member.pod is not None and not member.pod.is_current}


def _delete(roll: Roll, facts: RollFacts, batch: Sequence[RollMember]) -> RollDecision:
    left = [member for member in batch if member.pod is not None and member.pod.uid == roll.pods.get(member.id)]
    if not left:
        return _restarted(facts, roll)
    to_stop = [member for member in left if member.pod is not None and not member.pod.is_terminating]
    if not to_stop:
        return _stay(roll, [f"the pod of {facts.role} {member.id} is still being deleted" for member in left])
    if len(to_stop) == len(roll.pods) and _may_be_left(facts, batch):
        return _to(facts, roll, "PickNext", batch=(), pods={})
    if not all(member.template_is_current for member in to_stop):
        # The spec changed meanwhile: the pod would come back with the template of before.
        return _to(facts, roll, "ApplyTemplate", pods={})
    blocked = blockers(batch, facts)
    if not blocked:
        return _stay(roll, delete=tuple((member.id, roll.pods[member.id]) for member in to_stop))
    stopped = tuple(number for number in roll.pods if number not in _ids(to_stop))
    if stopped:
        kept = {number: uid for number, uid in roll.pods.items() if number in stopped}
        return _to(facts, roll, "DeletePod", batch=stopped, pods=kept)
    if _is_another_down(facts, batch) or len(batch) > 1 or _exposed(batch, facts):
        return _to(facts, roll, "PickNext", batch=(), pods={})
    return _stay(roll, blocked)


def _is_another_down(facts: RollFacts, batch: Sequence[RollMember]) -> bool:
    """Whether another member is not ready and pending: it must not wait for these."""
    return any(other.pending and not other.is_ready for other in facts.members.values() if other.id not in _ids(batch))


def _wait_ready(roll: Roll, facts: RollFacts, batch: Sequence[RollMember]) -> RollDecision:
    if any(not member.template_is_current and not member.is_ready for member in batch):
        return _to(facts, roll, "ApplyTemplate")  # the spec changed again, and this member is down anyway
    if missing := [f"{facts.role} {member.id} has no pod yet" for member in batch if member.pod is None]:
        return _wait_for(facts, roll, missing)
    replaceable = [m for m in batch if m.template_is_current and m.pod is not None and not m.pod.is_terminating]
    if outdated := _outdated(replaceable):
        return _to(facts, roll, "DeletePod", pods=outdated)
    if waits := [f"{facts.role} {member.id} {member.not_ready_reason}" for member in batch if not member.is_ready]:
        return _wait_for(facts, roll, waits)
    return _to(facts, roll, "WaitInSync")


def _wait_in_sync(roll: Roll, facts: RollFacts, batch: Sequence[RollMember]) -> RollDecision:
    if not all(member.is_ready for member in batch):
        return _to(facts, roll, "WaitReady")
    if waits := _not_in_sync(facts, batch):
        if _is_another_down(facts, batch):
            return _to(facts, roll, "PickNext", batch=())
        if roll.failed and not all(member.template_is_current for member in batch):
            return _to(facts, roll, "ApplyTemplate")  # what has changed since may be the correction
        is_known = facts.kafka is not None and set(_ids(batch)) <= set(facts.kafka.brokers)
        if is_known and (roll.behind == 0 or len(waits) < roll.behind):
            roll = replace(roll, progressed=facts.now, behind=len(waits))
        return _wait_for(facts, roll, waits)
    if facts.has_partitions and facts.restores_leaders:
        return _to(facts, roll, "RestoreLeaders")
    return _next(roll, facts)


def _not_in_sync(facts: RollFacts, batch: Sequence[RollMember]) -> list[str]:
    """Why a member is not in every ISR; empty for a ZooKeeper server."""
    if not facts.has_partitions:
        return []
    if facts.kafka is None:
        return ["no broker answers which replicas are in sync"]
    if unregistered := [number for number in _ids(batch) if number not in facts.kafka.brokers]:
        return [f"broker {number} is not registered" for number in unregistered]
    return [
        f"{partition}: broker {number} is not in sync"
        for partition in facts.kafka.partitions
        if len(partition.in_sync) < len(partition.replicas)
        for number in _ids(batch)
        if number in partition.replicas and number not in partition.in_sync
    ]


def _restore_leaders(roll: Roll, facts: RollFacts, batch: Sequence[RollMember]) -> RollDecision:
    if not all(member.is_ready for member in batch):
        return _to(facts, roll, "WaitReady")
    is_late = _is_late(roll, facts)
    if facts.kafka is None and not is_late:
        return _stay(roll, ["no broker answers who leads"])
    if facts.kafka is None or is_late or not facts.restores_leaders:
        return _next(roll, facts)
    settled = tuple(member.id for member in batch if not member.pending)
    to_elect = restorable(facts.kafka, settled, facts.refused_elections)
    if not to_elect:
        return _next(roll, facts)
    if new := [member.id for member in batch if member.pod is not None and not member.pod.is_reachable]:
        waits = [f"broker {number} is ready since a moment ago: clients may not reach it yet" for number in new]
        return replace(_stay(roll, waits), requeue_after_s=RESTORE_REQUEUE_S)
    message = f"{len(to_elect)} partitions that prefer broker {', '.join(map(str, settled))} are led by others"
    some = step(to_elect)
    soon = _soon(roll, message) if len(some) == len(to_elect) else RESTORE_REQUEUE_S
    return replace(_stay(roll, [message], elect=some), requeue_after_s=soon)


def _next(roll: Roll, facts: RollFacts) -> RollDecision:
    done = (*roll.done, *roll.batch)
    left = tuple(member for member in roll.plan if member.id not in roll.batch)
    count = roll.batches_done + 1
    ended = replace(roll, batch=(), done=done, pods={}, progressed="", behind=0, batches_done=count, plan=left)
    return _to(facts, ended, "PickNext")


_STEPS = {
    "ApplyTemplate": _apply,
    "MoveLeaders": _move_leaders,
    "DeletePod": _delete,
    "WaitReady": _wait_ready,
    "WaitInSync": _wait_in_sync,
    "RestoreLeaders": _restore_leaders,
}
"""What each step does but PickNext, which has no batch."""

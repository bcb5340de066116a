"""Decides the plan of a reassignment and its next step (KIP-455).

Pure: assignments and leaderships in, the next ones out, each with a reason. Not here: writing and sending them
(`acts.reassignments`), placing replicas (`assignment`).

The terms
    ORS  the original replicas; a cancelled reassignment ends with them
    TRS  the target replicas, in their order of preference
    AR   to be added: TRS without ORS        RR  to be removed: ORS without TRS
    RS   the replicas in the znode meanwhile: TRS, then RR

The phases. Each step is written before it is sent, so that after a failover the next controller finds where to
continue.

| phase | when                                        | what                                                          |
|-------|---------------------------------------------|---------------------------------------------------------------|
| start | requested                                   | the znode becomes RS with AR and RR; replicas that an earlier |
|       |                                             | reassignment had added and the new one does not want leave    |
|       |                                             | the ISR and are deleted                                       |
| copy  | TRS not within the ISR                      | a new leader epoch for RS; AR start to fetch                  |
| wait  | TRS within the ISR, none of TRS can lead    | nothing, until one of their brokers returns                   |
| end   | TRS within the ISR                          | one write: a leader from TRS, the ISR without RR, a new epoch;|
|       |                                             | TRS get it, RR are deleted, the znode becomes TRS             |

Why no committed record is lost: the ISR loses members only while one that stays is in it, and all members of an ISR
hold every committed record. A request that would leave the ISR empty is refused (Apache Kafka 3.9 carries it out).

Source: onPartitionReassignment of Apache Kafka's KafkaController, and its ReplicaAssignment.

Worked example: a partition with the replicas 1, 2 and the leader 1 is reassigned to 3, 2.

    >>> now = ReplicaAssignment((1, 2))
    >>> moving = reassign(now, (3, 2))
    >>> moving.replicas, moving.adding, moving.removing
    ((3, 2, 1), (3,), (1,))
    >>> led = LeaderAndIsr(leader=1, leader_epoch=4, isr=(1, 2), partition_epoch=7, controller_epoch=1)
    >>> step = next_step(moving, led, frozenset({1, 2, 3}), announce=True)
    >>> step.phase.value, step.election.leadership.leader, step.election.leadership.leader_epoch
    ('copy', 1, 5)

Broker 3 has caught up, and the leader has added it to the ISR:

    >>> led = LeaderAndIsr(leader=1, leader_epoch=5, isr=(1, 2, 3), partition_epoch=9, controller_epoch=1)
    >>> step = next_step(moving, led, frozenset({1, 2, 3}))
    >>> step.phase.value, step.election.leadership.leader, step.election.leadership.isr
    ('end', 3, (2, 3))
    >>> step.election.reason
    'reassigned to 3,2: leader 1 is removed, 3 is the first of them that is online and in the ISR'
    >>> finished(moving)
    ReplicaAssignment(replicas=(3, 2), adding=(), removing=())

If it is cancelled before that:

    >>> cancelled = reassign(moving, original(moving))
    >>> cancelled
    ReplicaAssignment(replicas=(2, 1), adding=(), removing=())
    >>> unneeded(moving, cancelled)
    (3,)
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from enum import Enum

from ottla_broker.controller.decisions.leader_election import Election
from ottla_broker.controller.values import NO_LEADER, LeaderAndIsr, ReplicaAssignment
from ottla_broker.protocol.errors import ErrorCode, KafkaError


def is_ongoing(assignment: ReplicaAssignment) -> bool:
    return bool(assignment.adding or assignment.removing)


def original(assignment: ReplicaAssignment) -> tuple[int, ...]:
    """ORS: the replicas without those that are being added.

    Their order is that of RS, as in Apache Kafka: those that stay come first.
    """
    return tuple(broker for broker in assignment.replicas if broker not in assignment.adding)


def target(assignment: ReplicaAssignment) -> tuple[int, ...]:
    """TRS: the replicas without those that are being removed."""
    return tuple(broker for broker in assignment.replicas if broker not in assignment.removing)


def reassign(current: ReplicaAssignment, wanted: Sequence[int]) -> ReplicaAssignment:
    """The assignment during the reassignment to `wanted`, without replicas that only `current` was adding.

    >>> reassign(ReplicaAssignment((3, 1, 2), adding=(3,), removing=(1,)), (4, 2))
    ReplicaAssignment(replicas=(4, 2, 1), adding=(4,), removing=(1,))
    >>> reassign(ReplicaAssignment((1, 2)), (2, 1))
    ReplicaAssignment(replicas=(2, 1), adding=(), removing=())
    """
    before = original(current)
    return ReplicaAssignment(
        (*wanted, *(broker for broker in before if broker not in wanted)),
        tuple(broker for broker in wanted if broker not in before),
        tuple(broker for broker in before if broker not in wanted),
    )


def finished(assignment: ReplicaAssignment) -> ReplicaAssignment:
    return ReplicaAssignment(target(assignment))


def unneeded(before: ReplicaAssignment, after: ReplicaAssignment) -> tuple[int, ...]:
    """The replicas of `before` that `after` no longer has."""
    return tuple(broker for broker in before.replicas if broker not in after.replicas)


def plan(
    current: ReplicaAssignment,
    leadership: LeaderAndIsr | None,
    wanted: Sequence[int] | None,
    *,
    live: Set[int],
    online: Set[int],
) -> ReplicaAssignment:
    """The assignment with which a reassignment starts.

    A partition that never had a leader holds nothing: it gets the target at once.

    Args:
        wanted: the target, None cancels.
        live: the live brokers.
        online: the brokers whose replica of this partition is online.

    Raises:
        KafkaError: the first of INVALID_REPLICA_ASSIGNMENT (empty, a broker twice, a negative id, one to add that is
            not alive), NO_REASSIGNMENT_IN_PROGRESS (nothing to cancel), INVALID_REPLICA_ASSIGNMENT (it would remove the
            only replicas that hold every committed record, or that can lead).
    """
    if wanted is None:
        if not is_ongoing(current):
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        after = reassign(current, original(current))
    else:
        _check_replicas(wanted)
        after = reassign(current, wanted)
        missing = [broker for broker in after.adding if broker not in live]
        if missing:
            raise _refused(
                f"Replica assignment has brokers that are not alive. Replica list: {_join(after.adding)}, "
                f"live broker list: {_join(sorted(live))}"
            )
    if leadership is None:
        return finished(after)
    staying = [broker for broker in leadership.isr if broker in after.replicas]
    if not staying:
        raise _refused(
            f"Only {_join(leadership.isr)} are in sync, and none of them would stay: committed records would be lost. "
            "Wait until a replica that stays is in sync."
        )
    if leadership.leader in online and not any(broker in online for broker in staying):
        raise _refused(
            f"Leader {leadership.leader} would leave, and of the others in sync ({_join(staying)}) none is online."
        )
    return after


def check_factor(current: ReplicaAssignment, wanted: Sequence[int] | None) -> None:
    """Raises INVALID_REPLICATION_FACTOR when the target has another number of replicas than ORS (KIP-860).

    >>> check_factor(ReplicaAssignment((3, 1, 2), adding=(3,), removing=(1,)), (4, 2))
    >>> check_factor(ReplicaAssignment((1, 2)), None)
    >>> check_factor(ReplicaAssignment((1, 2)), (1, 2, 3))
    Traceback (most recent call last):
    ...
    ottla_broker.protocol.errors.KafkaError: The replication factor is changed from 2 to 3
    """
    before = len(original(current))
    if wanted is not None and len(wanted) != before:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"The replication factor is changed from {before} to {len(wanted)}"
        )


def _check_replicas(wanted: Sequence[int]) -> None:
    if not wanted:
        raise _refused("Empty replica list specified in partition reassignment.")
    if len(set(wanted)) != len(wanted):
        raise _refused(f"Duplicate replica ids in partition reassignment replica list: {_join(wanted)}")
    if min(wanted) < 0:
        raise _refused(f"Invalid broker id in replica list: {_join(wanted)}")


class ReassignmentPhase(Enum):
    """The phases of the table above. DONE: no reassignment is ongoing."""

    COPY = "copy"
    WAIT = "wait"
    END = "end"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class ReassignmentStep:
    """The next step of a partition. `election` is to be written first, None when there is none."""

    phase: ReassignmentPhase
    reason: str
    election: Election | None = None


def next_step(
    assignment: ReplicaAssignment, current: LeaderAndIsr, online: Set[int], *, announce: bool = False
) -> ReassignmentStep:
    """The step that an assignment is at.

    Args:
        online: the brokers whose replica is online.
        announce: the assignment has changed, or this controller does not know whether every replica has it. Then it
            goes out under a new leader epoch: a leader ignores another assignment in its present epoch.
    """
    wanted = target(assignment)
    missing = [broker for broker in wanted if broker not in current.isr]
    if not is_ongoing(assignment):
        if not announce:
            return ReassignmentStep(ReassignmentPhase.DONE, "no reassignment is ongoing")
        return ReassignmentStep(
            ReassignmentPhase.DONE, "the assignment has changed", _led_within(assignment.replicas, current, online)
        )
    if missing:
        reason = f"{_join(missing)} of the target {_join(wanted)} are not in the ISR {_join(current.isr)}"
        if not announce:
            return ReassignmentStep(ReassignmentPhase.COPY, reason)
        return ReassignmentStep(
            ReassignmentPhase.COPY, reason, _led_within(assignment.replicas, current, online, within="reassigning")
        )
    election = _led_within(wanted, current, online, within="reassigned to")
    if election.leadership.leader == NO_LEADER:
        reason = f"none of the target {_join(wanted)} is online"
        if not announce:
            return ReassignmentStep(ReassignmentPhase.WAIT, reason)
        return ReassignmentStep(
            ReassignmentPhase.WAIT, reason, _led_within(assignment.replicas, current, online, within="reassigning")
        )
    return ReassignmentStep(ReassignmentPhase.END, election.reason, election)


def _led_within(
    replicas: Sequence[int], current: LeaderAndIsr, online: Set[int], within: str = "the replicas are"
) -> Election:
    """The leadership with an ISR of these replicas only; the leader stays when it is one of them and online."""
    isr = tuple(broker for broker in current.isr if broker in replicas)
    why = f"{within} {_join(replicas)}: "
    if current.leader in isr and current.leader in online:
        return Election(
            current.led_by(current.leader, isr, current.recovery_state), f"{why}leader {current.leader} stays"
        )
    leader = next((broker for broker in replicas if broker in isr and broker in online), NO_LEADER)
    gone = "there is no leader" if current.leader == NO_LEADER else f"leader {current.leader} is removed"
    if leader == NO_LEADER:
        return Election(current.led_by(NO_LEADER, isr or current.isr, current.recovery_state), f"{why}{gone}")
    return Election(
        current.led_by(leader, isr, current.recovery_state),
        f"{why}{gone}, {leader} is the first of them that is online and in the ISR",
    )


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _join(brokers: Sequence[int]) -> str:
    return ",".join(str(broker) for broker in brokers)

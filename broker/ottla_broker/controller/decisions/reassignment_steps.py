"""How a partition gets other replicas: what is planned, and which step comes next (KIP-455, wire-protocol.md 5.18).

Pure: assignments and leaderships in, the next ones out, each with a reason. Not here: writing and telling it
(`reassignments`), placing replicas (`assignment`).

The words
    ORS  the replicas before; also what a cancelled reassignment goes back to
    TRS  the target: the replicas to end with, in their order of preference
    AR   to be added: TRS without ORS        RR  to be removed: ORS without TRS
    RS   what stands in the znode meanwhile: TRS, then RR

The phases. Each step is written before it is told, the topic's znode first, so that a controller that takes office
in the middle finds where it has to go on.

| phase | when                                        | what                                                          |
|-------|---------------------------------------------|---------------------------------------------------------------|
| start | asked for                                   | the znode becomes RS with AR and RR; what an earlier          |
|       |                                             | reassignment had added and nobody wants now is stopped,       |
|       |                                             | deleted and out of the ISR                                    |
| copy  | TRS not within the ISR                      | a new leader epoch: RS hears of it, AR begin to follow        |
| wait  | TRS within the ISR, none of TRS can lead    | nothing, until one of their brokers returns                   |
| end   | TRS within the ISR                          | one write: a leader from TRS, the ISR without RR, a new epoch;|
|       |                                             | then TRS hears, RR are deleted, the znode becomes TRS         |

The safety of it: the ISR only ever loses members while one that stays is in it, and all members of an ISR hold every
committed record. What would leave nobody in the ISR is refused (Apache Kafka 3.9 carries it out).

Worked example: a partition of brokers 1, 2, led by 1, goes to 3, 2.

    >>> now = ReplicaAssignment((1, 2))
    >>> moving = reassign(now, (3, 2))
    >>> moving.replicas, moving.adding, moving.removing
    ((3, 2, 1), (3,), (1,))
    >>> led = LeaderAndIsr(leader=1, leader_epoch=4, isr=(1, 2), partition_epoch=7, controller_epoch=1)
    >>> step = next_step(moving, led, frozenset({1, 2, 3}), announce=True)
    >>> step.phase.value, step.election.leadership.leader, step.election.leadership.leader_epoch
    ('copy', 1, 5)

Broker 3 has caught up; the leader has taken it into the ISR:

    >>> led = LeaderAndIsr(leader=1, leader_epoch=5, isr=(1, 2, 3), partition_epoch=9, controller_epoch=1)
    >>> step = next_step(moving, led, frozenset({1, 2, 3}))
    >>> step.phase.value, step.election.leadership.leader, step.election.leadership.isr
    ('end', 3, (2, 3))
    >>> step.election.reason
    'reassigned to 3,2: leader 1 leaves, 3 is the first of them that is online and in the ISR'
    >>> finished(moving)
    ReplicaAssignment(replicas=(3, 2), adding=(), removing=())

Had it been cancelled before that:

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
    """The assignment on its way to `wanted`. What `current` was adding and `wanted` has not, is gone from it at once.

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
    """Replicas that a new request takes away at once: an earlier one was adding them."""
    return tuple(broker for broker in before.replicas if broker not in after.replicas)


def plan(
    current: ReplicaAssignment,
    leadership: LeaderAndIsr | None,
    wanted: Sequence[int] | None,
    *,
    live: Set[int],
    online: Set[int],
) -> ReplicaAssignment:
    """The assignment to begin with. `wanted` is the target, None cancels.

    `live` are the brokers that live, `online` those whose replica of this partition can be used. A partition that
    never had a leader holds nothing: it gets the target at once.

    KafkaError, the first of: INVALID_REPLICA_ASSIGNMENT (empty, a broker twice, a negative id, one to add that is not
    alive), NO_REASSIGNMENT_IN_PROGRESS (nothing to cancel), INVALID_REPLICA_ASSIGNMENT (it would take away the only
    replicas that hold every committed record, or that can lead).
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


def _check_replicas(wanted: Sequence[int]) -> None:
    if not wanted:
        raise _refused("Empty replica list specified in partition reassignment.")
    if len(set(wanted)) != len(wanted):
        raise _refused(f"Duplicate replica ids in partition reassignment replica list: {_join(wanted)}")
    if min(wanted) < 0:
        raise _refused(f"Invalid broker id in replica list: {_join(wanted)}")


class Phase(Enum):
    """See the module. DONE: the assignment is not being changed."""

    COPY = "copy"
    WAIT = "wait"
    END = "end"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Step:
    """What comes next for a partition. `election` is to be written first; None: nothing is."""

    phase: Phase
    reason: str
    election: Election | None = None


def next_step(
    assignment: ReplicaAssignment, current: LeaderAndIsr, online: Set[int], *, announce: bool = False
) -> Step:
    """The step that an assignment is at.

    `online` are the brokers whose replica can be used. `announce`: the assignment has changed, or this controller
    does not know whether everybody has heard of it; then it is told under a new leader epoch, the only one that a
    leader listens to.
    """
    wanted = target(assignment)
    missing = [broker for broker in wanted if broker not in current.isr]
    if not is_ongoing(assignment):
        if not announce:
            return Step(Phase.DONE, "nothing is being reassigned")
        return Step(Phase.DONE, "the assignment has changed", _led_within(assignment.replicas, current, online))
    if missing:
        reason = f"{_join(missing)} of the target {_join(wanted)} are not in the ISR {_join(current.isr)}"
        if not announce:
            return Step(Phase.COPY, reason)
        return Step(Phase.COPY, reason, _led_within(assignment.replicas, current, online, within="reassigning"))
    election = _led_within(wanted, current, online, within="reassigned to")
    if election.leadership.leader == NO_LEADER:
        reason = f"none of the target {_join(wanted)} is online"
        if not announce:
            return Step(Phase.WAIT, reason)
        return Step(Phase.WAIT, reason, _led_within(assignment.replicas, current, online, within="reassigning"))
    return Step(Phase.END, election.reason, election)


def _led_within(
    replicas: Sequence[int], current: LeaderAndIsr, online: Set[int], within: str = "the replicas are"
) -> Election:
    """The leadership with an ISR of these replicas alone; the leader stays when it is one of them and online."""
    isr = tuple(broker for broker in current.isr if broker in replicas)
    why = f"{within} {_join(replicas)}: "
    if current.leader in isr and current.leader in online:
        return Election(
            current.led_by(current.leader, isr, current.recovery_state), f"{why}leader {current.leader} stays"
        )
    leader = next((broker for broker in replicas if broker in isr and broker in online), NO_LEADER)
    gone = "nobody leads" if current.leader == NO_LEADER else f"leader {current.leader} leaves"
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

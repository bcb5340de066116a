"""Decides which replica leads a partition, and what its ISR becomes.

Pure. `decide_initial_leader` and `decide_leader` take the assignment, the present leadership and the replicas that are
online, and give an Election with a reason, or None when there is nothing to write. `decide_preferred_election` and
`decide_unclean_election` answer a client that requests an election. Not here: reading and writing state znodes
(`acts.leader_elections`), controlled shutdown (`shutdown_election`), reassignment (`reassignment_steps`).

The rules
1. A leader is online, and comes from the ISR, in the order of the assignment.
2. Only with `unclean.leader.election.enable` of the topic may a replica outside the ISR lead; then the ISR is that
   replica alone and the partition is RECOVERING (KIP-704): records may be lost. A replica that a reassignment adds
   comes last: it may have fetched nothing yet, the others were in sync once. (Apache Kafka takes the first online one
   of the assignment, which has the added ones at its head.)
3. An ISR never becomes empty: when none of it is online it stays as it was, with leader -1. Any of its members holds
   every committed record, so whichever returns first may lead.
4. Every change that is written raises the leader epoch by one, so that the leader before is fenced.
5. A preferred election moves the leadership to the head of the assignment, and only if that replica is online and in
   sync: nothing is lost and the ISR stays (KIP-183). A requested unclean election (KIP-460) is rule 2 without the
   configuration.
6. A leader that has registered again since its leadership was written was gone while no controller was active. It stays
   the leader under a new epoch: it may have lost records in a power loss, and others may have them.

Source: Election and PartitionStateMachine of Apache Kafka.

Worked example: replicas 1, 2, 3; broker 1 leads with ISR 1, 2 and dies.

    >>> from ottla_broker.controller.values import LeaderAndIsr
    >>> before = LeaderAndIsr(leader=1, leader_epoch=4, isr=(1, 2), partition_epoch=7, controller_epoch=1)
    >>> decision = decide_leader((1, 2, 3), before, online=frozenset({2, 3}), unclean=False)
    >>> decision.leadership.leader, decision.leadership.isr, decision.leadership.leader_epoch
    (2, (2,), 5)
    >>> decision.reason
    'leader 1 is offline: 2 is the first online replica of the ISR 1,2'

Then broker 2 dies as well. Broker 3 is online but was not in sync:

    >>> decision = decide_leader((1, 2, 3), decision.leadership, online=frozenset({3}), unclean=False)
    >>> decision.leadership.leader, decision.leadership.isr
    (-1, (2,))
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass

from ottla_broker.controller.values import NO_LEADER, LeaderAndIsr, LeaderRecoveryState
from ottla_broker.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Election:
    """A leadership to write, with the reason. `unclean`: committed records may be lost with it."""

    leadership: LeaderAndIsr
    reason: str
    unclean: bool = False


@dataclass(frozen=True, slots=True)
class ElectionDecision:
    """The decision about a requested election: what to write, or the error and its reason."""

    error: ErrorCode
    reason: str
    election: Election | None = None


def decide_initial_leader(replicas: Sequence[int], online: Set[int], controller_epoch: int) -> Election | None:
    """The first leadership of a new partition: every online replica is in sync, the first of them leads.

    None when no replica is online: the partition stays new and its state znode absent.
    """
    live = tuple(broker for broker in replicas if broker in online)
    if not live:
        return None
    leadership = LeaderAndIsr(
        leader=live[0], leader_epoch=0, isr=live, partition_epoch=0, controller_epoch=controller_epoch
    )
    return Election(leadership, f"new partition: {live[0]} is the first online replica of {_join(replicas)}")


def decide_leader(
    replicas: Sequence[int],
    current: LeaderAndIsr,
    *,
    online: Set[int],
    unclean: bool,
    adding: Collection[int] = (),
    has_leader_restarted: bool = False,
) -> Election | None:
    """The leadership when the replicas on the brokers `online`, and no others, are online.

    Covers a broker that goes offline or returns, an offline log directory, and a partition without leader.

    Args:
        unclean: the topic's `unclean.leader.election.enable`.
        adding: the replicas that a reassignment adds.
        has_leader_restarted: the leader has registered again since its leadership was written (rule 6).

    Returns:
        None when the present leadership stays.

    Broker 3 is to take the place of 1, which is the whole ISR and dies; 2 has fallen behind:

    >>> before = LeaderAndIsr(leader=1, leader_epoch=4, isr=(1,), partition_epoch=7, controller_epoch=1)
    >>> decision = decide_leader((3, 2, 1), before, online=frozenset({2, 3}), unclean=True, adding=(3,))
    >>> decision.leadership.leader
    2
    """
    in_sync = tuple(broker for broker in current.isr if broker in online)
    if current.leader in online:
        if current.leader not in current.isr:
            return Election(
                current.led_by(*_first_in_order(replicas, in_sync, current)),
                f"leader {current.leader} is not in the ISR {_join(current.isr)}",
            )
        if len(in_sync) == len(current.isr):
            if not has_leader_restarted:
                return None
            return Election(
                current.led_by(current.leader, in_sync, current.recovery_state),
                f"leader {current.leader} has registered again: it leads in a new epoch",
            )
        gone = [broker for broker in current.isr if broker not in online]
        return Election(
            current.led_by(current.leader, in_sync, current.recovery_state),
            f"{_join(gone)} offline: removed from the ISR {_join(current.isr)}",
        )
    why = "no leader" if current.leader == NO_LEADER else f"leader {current.leader} is offline"
    if in_sync:
        leader, isr = _first_in_order(replicas, in_sync, current)
        return Election(
            current.led_by(leader, isr, current.recovery_state),
            f"{why}: {leader} is the first online replica of the ISR {_join(current.isr)}",
        )
    outsiders = sorted((broker for broker in replicas if broker in online), key=lambda broker: broker in adding)
    outsider = outsiders[0] if outsiders else None
    if unclean and outsider is not None:
        return Election(
            current.led_by(outsider, (outsider,), LeaderRecoveryState.RECOVERING),
            f"{why} and no replica of the ISR {_join(current.isr)} is online: unclean.leader.election.enable lets "
            f"{outsider} lead, committed records may be lost",
            unclean=True,
        )
    if current.leader == NO_LEADER:
        return None
    return Election(
        current.led_by(NO_LEADER, current.isr, current.recovery_state),
        f"{why} and no replica of the ISR {_join(current.isr)} is online: no leader until one returns",
    )


def decide_preferred_election(
    replicas: Sequence[int], current: LeaderAndIsr | None, *, online: Set[int]
) -> ElectionDecision:
    """Decides whether the first replica of the assignment becomes the leader.

    >>> state = LeaderAndIsr(leader=2, leader_epoch=4, isr=(2, 1), partition_epoch=7, controller_epoch=1)
    >>> decide_preferred_election((1, 2, 3), state, online=frozenset({1, 2, 3})).election.leadership.leader
    1
    >>> decide_preferred_election((1, 2, 3), state, online=frozenset({2, 3})).reason
    'the preferred leader 1 is offline'
    """
    preferred = replicas[0] if replicas else NO_LEADER
    if current is not None and current.leader == preferred:
        return ElectionDecision(ErrorCode.ELECTION_NOT_NEEDED, f"the preferred leader {preferred} leads already")
    if preferred not in online:
        return ElectionDecision(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"the preferred leader {preferred} is offline"
        )
    if current is None or preferred not in current.isr:
        return ElectionDecision(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"the preferred leader {preferred} is not in the ISR {_join(current.isr if current else ())}",
        )
    reason = f"{preferred} is the preferred leader and in sync; {current.leader} led"
    elected = current.led_by(preferred, current.isr, current.recovery_state)
    return ElectionDecision(ErrorCode.NONE, reason, Election(elected, reason))


def decide_unclean_election(
    replicas: Sequence[int], current: LeaderAndIsr | None, *, online: Set[int], adding: Collection[int] = ()
) -> ElectionDecision:
    """Decides whether any replica becomes the leader of a partition without one; committed records may be lost.

    `adding` as in `decide_leader`.

    >>> state = LeaderAndIsr(leader=-1, leader_epoch=4, isr=(1,), partition_epoch=7, controller_epoch=1)
    >>> decide_unclean_election((1, 2, 3), state, online=frozenset({2, 3})).election.leadership.isr
    (2,)
    >>> decide_unclean_election((1, 2, 3), state, online=frozenset()).error.name
    'ELIGIBLE_LEADERS_NOT_AVAILABLE'
    """
    if current is not None and current.leader in online:
        return ElectionDecision(ErrorCode.ELECTION_NOT_NEEDED, f"the partition has the leader {current.leader}")
    election = None
    if current is not None:
        election = decide_leader(replicas, current, online=online, unclean=True, adding=adding)
    if election is None or election.leadership.leader == NO_LEADER:
        return ElectionDecision(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no replica of {_join(replicas)} is online")
    return ElectionDecision(ErrorCode.NONE, election.reason, election)


def _first_in_order(
    replicas: Sequence[int], in_sync: tuple[int, ...], current: LeaderAndIsr
) -> tuple[int, tuple[int, ...]]:
    """(leader, ISR): the first in-sync replica of the assignment; no leader, with the ISR kept, when there is none.

    The ISR may have a broker that the assignment no longer names (an ongoing reassignment); it is chosen last.
    """
    if not in_sync:
        return NO_LEADER, current.isr
    return next((broker for broker in replicas if broker in in_sync), in_sync[0]), in_sync


def _join(brokers: Sequence[int]) -> str:
    return ",".join(str(broker) for broker in brokers)

"""The in-sync set and the high watermark as functions of values.

Lives here: who is in sync, who may join, where the high watermark stands, what an answer to AlterPartition means.
Not here: logs, requests, clocks. Pure: values in, decision and reason out. (KIP-497, KIP-966.)

Words: the *maximal* ISR is the committed one plus followers whose joining is under way. While the controller has not
confirmed a change, either set may be the true one, so the high watermark waits for the maximal one: a follower that
the controller may already count as in sync could be elected leader.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from ottla_broker.protocol.errors import ErrorCode

NEVER = -(1 << 62)
"""A time before all others. Not 0: a monotonic clock may have begun at 0 a moment ago."""


class JoinDecision(NamedTuple):
    """A yes or no and why."""

    holds: bool
    reason: str


class Watermark(NamedTuple):
    """An offset and why it is not higher."""

    offset: int
    reason: str


class Change(Enum):
    """What an unconfirmed AlterPartition asks for."""

    NONE = "none"
    EXPAND = "expand"
    SHRINK = "shrink"


@dataclass(frozen=True, slots=True)
class InSyncState:
    """The committed ISR and the change that is under way, in the order of the committed ISR."""

    committed: tuple[int, ...]
    change: Change = Change.NONE
    proposed: tuple[int, ...] = ()
    epochs: tuple[int, ...] = ()
    """Of the proposed brokers, -1 unknown: of the incarnations that had caught up, not of later ones (KIP-903)."""

    @property
    def maximal(self) -> tuple[int, ...]:
        """Whom the high watermark waits for.

        >>> InSyncState((1, 2), Change.EXPAND, (1, 2, 3)).maximal
        (1, 2, 3)
        >>> InSyncState((1, 2), Change.SHRINK, (1,)).maximal
        (1, 2)
        """
        return self.proposed if self.change is Change.EXPAND else self.committed

    @property
    def is_in_flight(self) -> bool:
        return self.change is not Change.NONE


class FollowerState:
    """What a leader knows of one follower, all of it from the follower's fetches.

    Offsets are -1 and times NEVER until the first fetch of this leader epoch, but that a leader gives those in the ISR
    the time of its election. Times are Clock.monotonic in milliseconds.
    """

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "last_caught_up_ms",
        "last_fetch_leader_end_offset",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
        "sent_high_watermark",
    )

    def __init__(self, broker_id: int, *, last_caught_up_ms: int = NEVER) -> None:
        self.broker_id = broker_id
        self.log_end_offset = -1
        self.log_start_offset = -1
        self.last_caught_up_ms = last_caught_up_ms
        self.last_fetch_ms = NEVER
        self.last_fetch_leader_end_offset = 0
        self.broker_epoch = -1
        self.sent_high_watermark = -1
        """The high watermark in the last fetch response; kept only where followers get each advance (KIP-392)."""

    def on_fetch(
        self, fetch_offset: int, log_start_offset: int, now_ms: int, leader_end_offset: int, broker_epoch: int
    ) -> None:
        """Records a fetch: asking for `fetch_offset` acknowledges everything below it.

        A follower was caught up at the time of its *previous* fetch when it now has everything that the leader had
        then, so under steady writes a follower that keeps pace never falls behind by an offset count.

        >>> follower = FollowerState(2)
        >>> follower.on_fetch(0, 0, now_ms=100, leader_end_offset=50, broker_epoch=7)   # behind
        >>> follower.last_caught_up_ms == NEVER
        True
        >>> follower.on_fetch(50, 0, now_ms=200, leader_end_offset=80, broker_epoch=7)  # has what there was at 100
        >>> follower.last_caught_up_ms
        100
        >>> follower.on_fetch(80, 0, now_ms=300, leader_end_offset=80, broker_epoch=7)  # has all there is
        >>> follower.last_caught_up_ms
        300
        """
        if fetch_offset >= leader_end_offset:
            caught_up_ms = now_ms
        elif self.log_end_offset >= 0 and fetch_offset >= self.last_fetch_leader_end_offset:
            caught_up_ms = self.last_fetch_ms
        else:
            caught_up_ms = NEVER
        if caught_up_ms > self.last_caught_up_ms:
            self.last_caught_up_ms = caught_up_ms
        self.log_start_offset = log_start_offset
        self.log_end_offset = fetch_offset
        self.last_fetch_leader_end_offset = leader_end_offset
        self.last_fetch_ms = now_ms
        if broker_epoch >= 0:
            self.broker_epoch = broker_epoch

    def on_repeated_fetch(self, now_ms: int) -> None:
        """It asked again at `now_ms`, being at the leader's end, where it had been at its last fetch.

        So does a fetch that does not name the partition, because nothing has changed in it (KIP-227).

        >>> follower = FollowerState(2)
        >>> follower.on_fetch(80, 0, now_ms=300, leader_end_offset=80, broker_epoch=7)
        >>> follower.on_repeated_fetch(900)
        >>> follower.last_caught_up_ms
        900
        """
        if now_ms > self.last_fetch_ms:
            self.last_fetch_ms = self.last_caught_up_ms = now_ms

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_max_ms: int) -> bool:
        """At the leader's end, or was within the last `lag_max_ms` (replica.lag.time.max.ms)."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_max_ms


def effective_min_isr(min_insync_replicas: int, replica_count: int) -> int:
    """min.insync.replicas never asks for more replicas than the partition has.

    >>> effective_min_isr(2, 3), effective_min_isr(2, 1)
    (2, 1)
    """
    return min_insync_replicas if min_insync_replicas < replica_count else replica_count


def is_waited_for(
    follower: FollowerState,
    state: InSyncState,
    leader_end_offset: int,
    live: Iterable[int],
    now_ms: int,
    lag_max_ms: int,
) -> bool:
    """Whether the high watermark goes no further than this follower: it is in the maximal ISR, or about to join it, as
    `high_watermark` has it.

    >>> one = FollowerState(1)
    >>> one.on_fetch(100, 0, 1000, 100, -1)
    >>> is_waited_for(one, InSyncState((0,)), 120, (0, 1), 1500, 500)
    True
    >>> is_waited_for(one, InSyncState((0,)), 120, (0, 1), 1501, 500)
    False
    """
    if follower.broker_id in state.maximal:
        return True
    return follower.is_caught_up(leader_end_offset, now_ms, lag_max_ms) and follower.broker_id in live


def high_watermark(
    current: int,
    leader_end_offset: int,
    followers: Iterable[FollowerState],
    state: InSyncState,
    min_isr: int,
    live: Iterable[int],
    now_ms: int,
    lag_max_ms: int,
) -> Watermark:
    """Where the leader's high watermark stands now: never below `current`.

    It is the smallest log end offset of the maximal ISR and of caught-up followers that are about to join it (else
    they would never reach it while writes go on). It stands still while the committed ISR is smaller than `min_isr`
    (KIP-966): what only a too small ISR holds was never promised to survive.

    `live` are the brokers of the metadata; only those may be about to join.

    >>> one, two = FollowerState(1), FollowerState(2)
    >>> one.on_fetch(90, 0, 1000, 100, -1)
    >>> two.on_fetch(70, 0, 1000, 100, -1)
    >>> high_watermark(60, 100, [one, two], InSyncState((0, 1, 2)), 2, (0, 1, 2), 1000, 500).offset
    70
    >>> high_watermark(60, 100, [one, two], InSyncState((0, 1)), 2, (0, 1), 1000, 500).offset
    90
    >>> high_watermark(60, 100, [one, two], InSyncState((0,)), 2, (0, 1), 1000, 500)
    Watermark(offset=60, reason='the ISR (1) is smaller than the minimum (2)')
    """
    if len(state.committed) < min_isr:
        return Watermark(current, f"the ISR ({len(state.committed)}) is smaller than the minimum ({min_isr})")
    offset = leader_end_offset
    reason = "the leader's log end offset"
    maximal = state.maximal
    for follower in followers:
        end = follower.log_end_offset
        if end >= offset:
            continue
        if follower.broker_id in maximal:
            offset, reason = end, "the slowest in-sync follower"
        elif follower.is_caught_up(leader_end_offset, now_ms, lag_max_ms) and follower.broker_id in live:
            offset, reason = end, "a caught-up follower that is about to join"
    if offset <= current:
        return Watermark(current, reason)
    return Watermark(offset, reason)


def may_join(
    follower: FollowerState,
    state: InSyncState,
    current_high_watermark: int,
    leader_epoch_start_offset: int,
    live: Iterable[int],
) -> JoinDecision:
    """May this follower join the ISR?

    Its log must reach the high watermark and the offset at which this leader's epoch began: below the latter, its
    tail may still be another epoch's and be truncated.

    >>> follower = FollowerState(2)
    >>> follower.on_fetch(10, 0, 0, 20, -1)
    >>> may_join(follower, InSyncState((1,)), 10, 0, (1, 2)).holds
    True
    >>> may_join(follower, InSyncState((1,)), 10, 11, (1, 2))
    JoinDecision(holds=False, reason="has not reached the start of the leader's epoch")
    """
    if state.is_in_flight:
        return JoinDecision(False, "another change is under way")
    if follower.broker_id in state.committed:
        return JoinDecision(False, "is in sync already")
    if follower.log_end_offset < current_high_watermark:
        return JoinDecision(False, "has not reached the high watermark")
    if follower.log_end_offset < leader_epoch_start_offset:
        return JoinDecision(False, "has not reached the start of the leader's epoch")
    if follower.broker_id not in live:
        return JoinDecision(False, "is not a live broker")
    return JoinDecision(True, "has caught up")


def out_of_sync(
    followers: Iterable[FollowerState],
    state: InSyncState,
    leader_end_offset: int,
    now_ms: int,
    lag_max_ms: int,
) -> list[int]:
    """In-sync followers that have not been caught up for `lag_max_ms`; none while another change is under way.

    >>> slow = FollowerState(2, last_caught_up_ms=0)
    >>> slow.on_fetch(10, 0, 0, 20, -1)
    >>> out_of_sync([slow], InSyncState((1, 2)), 20, 30_001, 30_000)
    [2]
    >>> out_of_sync([slow], InSyncState((1, 2)), 20, 30_000, 30_000)
    []
    """
    if state.is_in_flight:
        return []
    return [
        follower.broker_id
        for follower in followers
        if follower.broker_id in state.committed and not follower.is_caught_up(leader_end_offset, now_ms, lag_max_ms)
    ]


def short_of_committed(
    followers: Iterable[FollowerState], state: InSyncState, current_high_watermark: int
) -> list[int]:
    """In-sync followers that have lost what they acknowledged; none while another change is under way.

    Every member of the ISR has what is committed, or it would be elected and have the others cut it off. One that asks
    for less has lost power, or its log directory was away, and nobody who decides has seen that.

    >>> back = FollowerState(2)
    >>> back.on_fetch(10, 0, 0, 20, -1)
    >>> short_of_committed([back], InSyncState((1, 2)), 20), short_of_committed([back], InSyncState((1, 2)), 10)
    ([2], [])
    """
    if state.is_in_flight:
        return []
    return [
        follower.broker_id
        for follower in followers
        if follower.broker_id in state.committed and 0 <= follower.log_end_offset < current_high_watermark
    ]


class AlterPartitionOutcome(Enum):
    """What to do with an unconfirmed change after AlterPartition was answered."""

    COMMITTED = "take the controller's ISR"
    REVERT = "go back to the committed ISR"
    RETRY = "ask again"
    AWAIT = "keep it until the controller sends LeaderAndIsr"


_ANSWERS = {
    ErrorCode.NONE: AlterPartitionOutcome.COMMITTED,
    ErrorCode.OPERATION_NOT_ATTEMPTED: AlterPartitionOutcome.REVERT,
    ErrorCode.INELIGIBLE_REPLICA: AlterPartitionOutcome.REVERT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: AlterPartitionOutcome.AWAIT,
    ErrorCode.UNKNOWN_TOPIC_ID: AlterPartitionOutcome.AWAIT,
    ErrorCode.FENCED_LEADER_EPOCH: AlterPartitionOutcome.AWAIT,
    ErrorCode.INVALID_UPDATE_VERSION: AlterPartitionOutcome.AWAIT,
    ErrorCode.INVALID_REQUEST: AlterPartitionOutcome.AWAIT,
    ErrorCode.NEW_LEADER_ELECTED: AlterPartitionOutcome.AWAIT,
}


def after_alter_partition(error: ErrorCode) -> AlterPartitionOutcome:
    """The meaning of a partition's error in AlterPartitionResponse (KIP-497, KIP-841, KIP-903).

    A refused follower reverts the change; an epoch that the controller has left behind means that its LeaderAndIsr is
    on its way, and until it arrives the maximal ISR stays the larger one; all else is asked again.

    >>> after_alter_partition(ErrorCode.INELIGIBLE_REPLICA), after_alter_partition(ErrorCode.REQUEST_TIMED_OUT)
    (<AlterPartitionOutcome.REVERT: 'go back to the committed ISR'>, <AlterPartitionOutcome.RETRY: 'ask again'>)
    """
    return _ANSWERS.get(error, AlterPartitionOutcome.RETRY)

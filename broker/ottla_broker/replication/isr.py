"""The rules of the ISR and the high watermark, as functions of values.

Lives here: which followers are in sync, which may join the ISR, the offset of the high watermark, the meaning of an
AlterPartition response. Not here: logs, requests, clocks. Pure: each decision comes with its reason.

The *maximal* ISR is the committed ISR plus the followers of an unconfirmed expansion. Until the controller confirms a
change, either set may be in force. The high watermark waits for the maximal ISR, because the controller may already
count such a follower as in sync and elect it.

Source: kafka.cluster.Partition and PartitionState (KIP-497, KIP-966).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from ottla_broker.protocol.errors import ErrorCode

NEVER = -(1 << 62)
"""A time before all others. Not 0: a monotonic clock may start at 0."""


class JoinDecision(NamedTuple):
    """Whether a follower may join the ISR, and why."""

    holds: bool
    reason: str


class Watermark(NamedTuple):
    """The offset of the high watermark and what limits it."""

    offset: int
    reason: str


class Change(Enum):
    """The kind of an unconfirmed ISR change."""

    NONE = "none"
    EXPAND = "expand"
    SHRINK = "shrink"


@dataclass(frozen=True, slots=True)
class InSyncState:
    """The committed ISR and the unconfirmed change, in the order of the committed ISR."""

    committed: tuple[int, ...]
    change: Change = Change.NONE
    proposed: tuple[int, ...] = ()
    epochs: tuple[int, ...] = ()
    """The broker epochs of the proposed brokers at the time they caught up; -1 unknown (KIP-903)."""

    @property
    def maximal(self) -> tuple[int, ...]:
        """The brokers for which the high watermark waits.

        >>> InSyncState((1, 2), Change.EXPAND, (1, 2, 3)).maximal
        (1, 2, 3)
        >>> InSyncState((1, 2), Change.SHRINK, (1,)).maximal
        (1, 2)
        """
        return self.proposed if self.change is Change.EXPAND else self.committed

    @property
    def is_in_flight(self) -> bool:
        return self.change is not Change.NONE


@dataclass(frozen=True, slots=True)
class LedState:
    """The ISR when this replica stopped leading, with the change that the controller had not confirmed."""

    leader_epoch: int
    partition_epoch: int
    in_sync: InSyncState


def resumed_state(
    led: LedState | None, leader_epoch: int, partition_epoch: int, in_sync: tuple[int, ...]
) -> tuple[int, InSyncState]:
    """The partition epoch and the ISR with which a replica leads, by what it is told and by how it led before.

    A replica may stop leading and lead again in one leader epoch: its log directory was offline, or full. The
    controller may grant meanwhile what the leader has asked for, or have granted it behind the state that is told. So
    the newer partition epoch counts, and an unconfirmed change stays unconfirmed until a newer one proves its end.

    >>> asked = LedState(4, 7, InSyncState((1,), Change.EXPAND, (1, 2), (5, 6)))
    >>> resumed_state(asked, 4, 7, (1,))[1].maximal
    (1, 2)
    >>> resumed_state(asked, 4, 8, (1, 2))
    (8, InSyncState(committed=(1, 2), change=<Change.NONE: 'none'>, proposed=(), epochs=()))
    >>> resumed_state(asked, 5, 8, (1,))[1].maximal
    (1,)
    >>> resumed_state(LedState(4, 8, InSyncState((1, 2))), 4, 7, (1,))[1].maximal
    (1, 2)
    """
    if led is None or led.leader_epoch != leader_epoch or led.partition_epoch < partition_epoch:
        return partition_epoch, InSyncState(in_sync)
    return led.partition_epoch, led.in_sync


class FollowerState:
    """The leader's state of one follower, from the follower's fetches.

    Offsets are -1 and times NEVER until the first fetch in this leader epoch; for followers in the ISR a new leader
    sets `last_caught_up_ms` to the time of its election. Times are Clock.monotonic in milliseconds.

    Source: kafka.cluster.Replica.
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
        """The high watermark in the last fetch response; set only with a replica selector (KIP-392)."""

    def on_fetch(
        self, fetch_offset: int, log_start_offset: int, now_ms: int, leader_end_offset: int, broker_epoch: int
    ) -> None:
        """Records a fetch from `fetch_offset`, which acknowledges all records below.

        A follower was caught up at the time of its *previous* fetch if it now has every record that the leader had at
        that time. Under steady writes a follower that keeps pace therefore stays in sync, although its offset is lower.

        Source: kafka.cluster.Replica.updateFetchStateOrThrow.

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
        """Records another fetch from the leader's log end offset at `now_ms`.

        An incremental fetch that omits the partition counts too, because nothing has changed in it (KIP-227).

        >>> follower = FollowerState(2)
        >>> follower.on_fetch(80, 0, now_ms=300, leader_end_offset=80, broker_epoch=7)
        >>> follower.on_repeated_fetch(900)
        >>> follower.last_caught_up_ms
        900
        """
        if now_ms > self.last_fetch_ms:
            self.last_fetch_ms = self.last_caught_up_ms = now_ms

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_max_ms: int) -> bool:
        """At the leader's log end offset, or caught up within the last `lag_max_ms` (replica.lag.time.max.ms)."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_max_ms


def effective_min_isr(min_insync_replicas: int, replica_count: int) -> int:
    """min.insync.replicas, capped at the number of replicas.

    >>> effective_min_isr(2, 3), effective_min_isr(2, 1)
    (2, 1)
    """
    return min_insync_replicas if min_insync_replicas < replica_count else replica_count


def limits_high_watermark(
    follower: FollowerState,
    state: InSyncState,
    leader_end_offset: int,
    live: Iterable[int],
    now_ms: int,
    lag_max_ms: int,
) -> bool:
    """Whether the high watermark waits for this follower: it is in the maximal ISR, or caught up and about to join.
    The same rule as in `high_watermark`.

    >>> one = FollowerState(1)
    >>> one.on_fetch(100, 0, 1000, 100, -1)
    >>> limits_high_watermark(one, InSyncState((0,)), 120, (0, 1), 1500, 500)
    True
    >>> limits_high_watermark(one, InSyncState((0,)), 120, (0, 1), 1501, 500)
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
    """The leader's high watermark, never below `current`.

    It is the smallest log end offset of the maximal ISR and of caught-up followers outside it: without the latter a
    follower could never reach the high watermark under steady writes. It does not advance while the committed ISR is
    smaller than `min_isr` (KIP-966).

    Args:
        live: broker ids of the metadata cache; only live followers outside the ISR count.
        now_ms: Clock.monotonic in milliseconds.
        lag_max_ms: replica.lag.time.max.ms.

    Source: kafka.cluster.Partition.maybeIncrementLeaderHW.

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
    """Whether this follower may join the ISR.

    Its log must reach the high watermark and the start offset of the leader epoch: below the latter, its last records
    may be of another epoch and may be truncated.

    Source: kafka.cluster.Partition.isFollowerInSync and canAddReplicaToIsr.

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
    """In-sync followers that have not been caught up for `lag_max_ms`; none while another change is unconfirmed.

    Source: kafka.cluster.Partition.getOutOfSyncReplicas.

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


def missing_committed_records(
    followers: Iterable[FollowerState], state: InSyncState, current_high_watermark: int
) -> list[int]:
    """In-sync followers that lost committed records; none while another change is unconfirmed.

    Every member of the ISR must have all committed records: otherwise, once elected, it makes the others truncate them.
    A member that fetches from below the high watermark lost records, for example at a power loss, and the controller
    does not see that. Apache Kafka has no such check.

    >>> back = FollowerState(2)
    >>> back.on_fetch(10, 0, 0, 20, -1)
    >>> missing_committed_records([back], InSyncState((1, 2)), current_high_watermark=20)
    [2]
    >>> missing_committed_records([back], InSyncState((1, 2)), current_high_watermark=10)
    []
    """
    if state.is_in_flight:
        return []
    return [
        follower.broker_id
        for follower in followers
        if follower.broker_id in state.committed and 0 <= follower.log_end_offset < current_high_watermark
    ]


class AlterPartitionOutcome(Enum):
    """What to do with an unconfirmed change after an AlterPartition response."""

    COMMITTED = "use the controller's ISR"
    REVERT = "go back to the committed ISR"
    RETRY = "send it again"
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
    """What to do after a partition's error in an AlterPartition response.

    An ineligible replica reverts the change. An old epoch means that a newer LeaderAndIsr request is on its way; until
    it arrives the maximal ISR keeps the proposed replicas. Every other error is retried.

    Source: kafka.cluster.Partition.handleAlterPartitionError (KIP-497, KIP-841, KIP-903).

    >>> after_alter_partition(ErrorCode.INELIGIBLE_REPLICA), after_alter_partition(ErrorCode.REQUEST_TIMED_OUT)
    (<AlterPartitionOutcome.REVERT: 'go back to the committed ISR'>, <AlterPartitionOutcome.RETRY: 'send it again'>)
    """
    return _ANSWERS.get(error, AlterPartitionOutcome.RETRY)

"""What the client of one fetch session has received, and which of the session's partitions may have news for it.

What an incremental fetch costs depends on what has changed, not on the partitions of its session. Each partition of a
session is among the waiters of its replica, except between the first news and the next request. One is *active* when
its client named it in the request, when something happened to its replica, or while there is more to send; only active
ones are checked. When there is nothing to send of it, it comes to rest. For changes that wake no fetch (retention
advances a log's start), all are checked in rotation, each at least every `SWEEP_MS` of a session that is used.

A result names a partition only with records, an error, a diverging epoch, a preferred replica, or when its high
watermark or log start offset differs from what was last sent. After an error the next state is sent in any case, and
also when a partition is named with another leader epoch: the follower of that epoch may have dropped what the one
before received. A partition that had records goes behind the others, so that each is served under max_bytes.

A follower that rests at its leader's end acknowledges that end with each fetch, without being checked: the time of the
session's last fetch is recorded for it when it becomes active again, and a follower out of the ISR never rests.

Source: kafka.server.FetchSession and CachedPartition. Ids, epochs and eviction are `session_cache`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.fetch import PartitionData
from ottla_broker.replication.fetch.fetch_values import (
    FetchParams,
    FetchResult,
    ForgottenPartitions,
    RequestedPartition,
    RequestedTopic,
    TopicKey,
    WaitingFetch,
)
from ottla_broker.replication.fetch.partition_fetch import PartitionFetch
from ottla_broker.replication.leader_session import Key
from ottla_broker.replication.partition import Partition, Waiter

SWEEP_MS = 2000


class CachedPartition(PartitionFetch):
    """A partition of a session; the `Waiter` of its replica.

    `sent_high_watermark` and `sent_log_start` are what the client received last, -1 when they are sent in any case.
    """

    __slots__ = ("_on_progress", "_waiters_of", "is_woken", "key", "sent_high_watermark", "sent_log_start")

    def __init__(
        self,
        key: Key,
        topic: str,
        requested: RequestedPartition,
        waiters_of: Callable[[Partition], Iterable[dict[Waiter, None]]],
        on_progress: Callable[[CachedPartition], None],
    ) -> None:
        super().__init__(topic, requested)
        self.key = key
        self.sent_high_watermark = -1
        self.sent_log_start = -1
        self.is_woken = False
        self._waiters_of = waiters_of
        self._on_progress = on_progress

    def on_progress(self) -> None:
        """Something happened to the replica."""
        self._on_progress(self)

    def leave_waiters(self) -> None:
        """Until the next request, which may never come, no append pays for this partition."""
        self.is_woken = True
        assert self.partition is not None
        for waiters in self._waiters_of(self.partition):
            waiters.pop(self, None)

    def return_to_waiters(self) -> None:
        """The next request has come."""
        self.is_woken = False
        if self.partition is not None:
            for waiters in self._waiters_of(self.partition):
                waiters[self] = None

    def attach(self, partition: Partition) -> None:
        """Waits for this replica from now on."""
        if self.partition is partition:
            return
        self.detach()
        self.partition = partition
        for waiters in self._waiters_of(partition):
            waiters[self] = None

    def detach(self) -> None:
        """Waits for no replica."""
        if self.partition is not None:
            for waiters in self._waiters_of(self.partition):
                waiters.pop(self, None)
            self.partition = None


class SessionFetchState:
    """The partitions of one session. See the module for `active`.

    Args:
        wake: has waiters check again in a later iteration of the loop.
        now_ms: Clock.monotonic in milliseconds.
    """

    def __init__(
        self, session_id: int, params: FetchParams, wake: Callable[[Iterable[Waiter]], None], now_ms: int
    ) -> None:
        self.session_id = session_id
        self.replica_id = params.replica_id
        self.client = params.client
        self.partitions: dict[Key, CachedPartition] = {}
        self.active: dict[CachedPartition, None] = {}
        self.waiting: WaitingFetch | None = None
        self.is_closed = False
        self._wake = wake
        self._reports_high_watermark = params.reports_high_watermark
        self._mode = _mode(params)
        self._last_fetch_ms = now_ms
        self._swept_ms = now_ms
        self._to_sweep: Iterator[CachedPartition] = iter(())
        # Bound once: a session has thousands of partitions.
        self._item_callables = (self._waiters_of, self._on_progress)

    def __len__(self) -> int:
        return len(self.partitions)

    def open_with(
        self,
        topics: Iterable[tuple[TopicKey, str]],
        items: Sequence[PartitionFetch],
        results: Sequence[PartitionData],
    ) -> list[tuple[CachedPartition, PartitionData]]:
        """Takes partitions of the full request over, with the key and name of the topic of each, and what it received.

        Returns:
            What `rotate` gets, when all are there.
        """
        answered = [
            (self._add((key, item.requested.partition), name, item.requested), data)
            for item, data, (key, name) in zip(items, results, topics, strict=False)  # takes no topic more than items
        ]
        for item, data in answered:
            record_sent(item, data)
        return answered

    def update(
        self, requested: Iterable[RequestedTopic], forgotten: Iterable[ForgottenPartitions], params: FetchParams
    ) -> None:
        """Takes an incremental request over: first what it names, then what it forgets."""
        by_id = params.capabilities.uses_topic_ids
        for topic in requested:
            name = topic.topic_id if by_id else topic.topic
            for one in topic.partitions:
                item = self.partitions.get((name, one.partition))
                if item is None:
                    self._add((name, one.partition), topic.topic, one)
                else:
                    if one.current_leader_epoch != item.requested.current_leader_epoch:
                        item.sent_high_watermark = item.sent_log_start = -1
                    item.requested = one
                    self._activate(item)
        for removed in forgotten:
            name = removed.topic_id if by_id else removed.topic
            for index in removed.partitions:
                item = self.partitions.pop((name, index), None)
                if item is not None:
                    self.active.pop(item, None)
                    item.detach()
        mode = _mode(params)
        if mode != self._mode:
            self._mode = mode
            for item in self.partitions.values():
                self._activate(item)

    def sweep(self, now_ms: int) -> None:
        """Activates a share of the partitions, so that each is checked every `SWEEP_MS`."""
        count = min(len(self.partitions), len(self.partitions) * (now_ms - self._swept_ms) // SWEEP_MS)
        if count <= 0:
            return
        self._swept_ms = now_ms
        for _ in range(count):
            item = next(self._to_sweep, None)
            if item is None:
                self._to_sweep = iter(list(self.partitions.values()))
                item = next(self._to_sweep)
            if self.partitions.get(item.key) is item:
                self._activate(item)

    def on_fetch(self, now_ms: int) -> None:
        """A request of the session has acknowledged its active partitions."""
        self._last_fetch_ms = now_ms

    def rest(self, item: CachedPartition) -> None:
        """There is nothing to send of it."""
        del self.active[item]

    def rotate(self, answered: Iterable[tuple[CachedPartition, PartitionData]]) -> None:
        """Puts those with records behind the others: only the first one gets a batch of any size."""
        for item, data in answered:
            if data.records and item in self.active:
                del self.active[item]
                self.active[item] = None

    def displace_waiting(self) -> None:
        """Ends the request of this session that waits: another one has come, or the session is closed."""
        if self.waiting is not None:
            self.waiting.end_with(self.invalid_epoch())

    def invalid_epoch(self) -> FetchResult:
        """INVALID_FETCH_SESSION_EPOCH, for a request that another one of the session has overtaken."""
        return FetchResult([], self.session_id, int(ErrorCode.INVALID_FETCH_SESSION_EPOCH))

    def close(self) -> None:
        """The session is closed or evicted."""
        self.is_closed = True
        for item in self.partitions.values():
            item.detach()
        self.active.clear()
        self.displace_waiting()

    def _add(self, key: Key, topic: str, requested: RequestedPartition) -> CachedPartition:
        named_before = self.partitions.get(key)
        if named_before is not None:  # twice in one request
            self.active.pop(named_before, None)
        item = CachedPartition(key, topic, requested, *self._item_callables)
        self.partitions[key] = item
        self.active[item] = None
        return item

    def _on_progress(self, item: CachedPartition) -> None:
        if self.is_closed or item.partition is None:
            return
        self._activate(item)
        if self.waiting is None:
            item.leave_waiters()
        else:
            self._wake((self.waiting,))

    def _waiters_of(self, partition: Partition) -> Iterable[dict[Waiter, None]]:
        """The waiters of a replica among which this session's partitions are."""
        if self.replica_id < 0:
            return (partition.watermark_waiters,)
        if self._reports_high_watermark:
            return (partition.end_waiters, partition.watermark_waiters)
        return (partition.end_waiters,)

    def _activate(self, item: CachedPartition) -> None:
        if item in self.active:
            return
        self.active[item] = None
        # A follower that left the ISR since then was removed by the controller: the high watermark must not wait for
        # it.
        if self.replica_id >= 0 and item.partition is not None and self.replica_id in item.partition.in_sync.committed:
            follower = item.partition.followers.get(self.replica_id)
            if follower is not None and follower.log_end_offset >= 0:
                follower.on_repeated_fetch(self._last_fetch_ms)


def has_news(item: CachedPartition, data: PartitionData) -> bool:
    """Whether the client does not know this result yet."""
    return bool(
        data.records
        or data.error_code
        or data.high_watermark != item.sent_high_watermark
        or data.log_start_offset != item.sent_log_start
        or data.diverging_epoch is not None
        or data.preferred_read_replica >= 0
    )


def record_sent(item: CachedPartition, data: PartitionData) -> None:
    """The client receives this result."""
    # Whoever learns that its log diverges takes nothing else from the result: a follower truncates and fetches again.
    is_taken = not data.error_code and data.diverging_epoch is None
    item.sent_high_watermark = data.high_watermark if is_taken else -1
    item.sent_log_start = data.log_start_offset


def _mode(params: FetchParams) -> tuple[int, int, str]:
    """What a request says of all partitions: what changes here may change the result of each."""
    return params.isolation_level, params.replica_epoch, params.rack

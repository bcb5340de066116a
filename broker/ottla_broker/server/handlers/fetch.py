"""Fetch (key 1): records from an offset on, for consumers and followers.

Behaviour
    Answers at once when `min_bytes` are there, there is something in a closed segment, the client does not want to
    wait, or a partition has an error or diverges; otherwise waits for as long as `max_wait_ms`. Consumers see records
    below the high watermark, those with isolation level read_committed below the last stable offset, followers all.
    The first batch of the answer is returned even when it is larger than `max_bytes` (KIP-74). Records leave as file
    ranges, untouched. A fetch as a follower acknowledges everything below its offset.
    Sessions (KIP-227): `session_fetch`. Here are the fetches without one.
    Closest replica (KIP-392, replica.selector.class): the leader answers a consumer that names its rack with a
    PreferredReadReplica instead of records; a follower serves what is below its own high watermark. So that this does
    not lag, the leader then answers a follower's waiting fetch when the high watermark has advanced.
    Throttled replicas (KIP-73): a follower that the high watermark does not wait for gets nothing of them above the
    rate.
    Versions 0 to 3 get message formats 0 and 1: `fetch_conversion`.
    read_committed (KIP-98): with the records comes who was aborted among them (producer id and first offset, in the
    order of the markers); the consumer drops their records up to the marker, which it gets too. The last stable offset
    only moves when the high watermark does, so what waits for the one waits for the other.
Errors, in this order
    whole request: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
    partition: UNKNOWN_TOPIC_ID, KAFKA_STORAGE_ERROR (as NOT_LEADER_OR_FOLLOWER before v6), NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_TOPIC_OR_PARTITION, INCONSISTENT_TOPIC_ID, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
    NOT_LEADER_OR_FOLLOWER (a follower, and a client before v11), UNKNOWN_LEADER_EPOCH (a fetch as a follower by a
    broker that is no replica; NOT_LEADER_OR_FOLLOWER when it names no current leader epoch), OFFSET_OUT_OF_RANGE,
    UNSUPPORTED_COMPRESSION_TYPE (before v10: the topic's compression.type is zstd; before v4: a batch is zstd),
    UNSUPPORTED_VERSION (before v4: message.downconversion.enable is off), CORRUPT_MESSAGE (before v4: a batch cannot be
    converted).
Versions
    0: message format 0. 1: throttle time. 2: message format 1. 3: max_bytes, one batch at least (KIP-74).
    4: isolation level, last stable offset. 5: log start offset (KIP-107). 7: sessions. 9: current leader epoch
    (KIP-320). 10: zstd. 11: rack (KIP-392): consumers may read from followers. 12: flexible, last fetched epoch and
    diverging epoch (KIP-595). 13: topic ids (KIP-516). 15: replica epoch (KIP-903). 16: node endpoints (KIP-951).
    17: directory ids (KIP-853).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, cast

from ottla_broker.ports.disk import FileRange
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla_broker.records.compression import Codec
from ottla_broker.replication.delayed import TimerWheel
from ottla_broker.replication.divergence import UNDEFINED
from ottla_broker.replication.leader_session import FINAL_EPOCH
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.replica_selector import candidates, closest
from ottla_broker.server.context import RequestContext, Services
from ottla_broker.server.handlers.fetch_conversion import LAST_CONVERTED_VERSION, Conversions
from ottla_broker.server.handlers.shared.leader_hints import NodeHints, current_leader
from ottla_broker.storage.files.transaction_index import AbortedTransaction as Aborted
from ottla_broker.storage.log.reading import A_LOT, LogRead

logger = logging.getLogger("ottla.server")

_NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)
_WITH_LEADER_HINT = (_NOT_LEADER, int(ErrorCode.FENCED_LEADER_EPOCH))
_READ_COMMITTED = 1


def handle(services: Services, context: RequestContext, request: Any, respond: Callable[[Any], None]) -> None:
    """Answers through `respond` once, possibly later."""
    request.max_bytes = min(request.max_bytes, services.config["fetch.max.bytes"])
    # Who waits for more than an answer may hold would wait out its time with every fetch, whatever there is to read.
    request.min_bytes = min(request.min_bytes, request.max_bytes)
    if request.session_epoch == FINAL_EPOCH and not request.session_id:
        Fetching(services, context, request, respond).begin()
    else:
        services.session_fetches.begin(services, context, request, respond)


class Item:
    """One partition of the request. `error` is 0 while it can be read, `preferred` -1 while it is read here."""

    __slots__ = ("asked", "diverging", "error", "partition", "preferred", "topic")

    def __init__(self, topic: str, asked: Any) -> None:
        self.topic = topic
        self.asked = asked
        self.partition: Partition | None = None
        self.error = 0
        self.diverging: EpochEndOffset | None = None
        self.preferred = -1


class Fetching:
    """One fetch request from its arrival to its answer; the `Waiter` of its partitions in between."""

    __slots__ = (
        "_context",
        "_is_done",
        "_is_registered",
        "_items",
        "_rack",
        "_replica_epoch",
        "_replica_id",
        "_request",
        "_respond",
        "_services",
        "_tells_high_watermark",
        "_topics",
        "bucket",
        "is_woken",
    )

    def __init__(
        self, services: Services, context: RequestContext, request: Any, respond: Callable[[Any], None]
    ) -> None:
        self._services = services
        self._context = context
        self._request = request
        self._respond = respond
        state = request.replica_state
        self._replica_id: int = request.replica_id if state is None else state.replica_id
        self._replica_epoch: int = -1 if state is None else state.replica_epoch
        by_rack = services.sends_to_closest_replica
        self._rack: str = request.rack_id if by_rack and self._replica_id < 0 else ""
        self._tells_high_watermark = by_rack and self._replica_id >= 0
        self._topics: list[tuple[Any, list[Item]]] = []
        self._items: list[Item] = []
        self._is_done = False
        self._is_registered = False
        self.is_woken = False
        self.bucket: dict[Any, None] | None = None

    def begin(self) -> None:
        """Looks at every partition; answers, or starts to wait."""
        self._resolve()
        if self._replica_id >= 0:
            self._acknowledge()
        if self._request.max_wait_ms <= 0 or not self._items or self._is_satisfied():
            self._answer()
        else:
            self._wait(self._request.max_wait_ms / 1000)

    # Looking at the partitions

    def _resolve(self) -> None:
        manager = self._services.replica_manager
        by_id = self._context.api_version >= 13
        for topic in self._request.topics:
            name = manager.topic_name(topic.topic_id) if by_id else topic.topic
            items: list[Item] = []
            self._topics.append((topic, items))
            by_index = manager.topics.get(name) if name is not None else None
            for asked in topic.partitions:
                item = Item(name or "", asked)
                items.append(item)
                if name is None:
                    item.error = int(ErrorCode.UNKNOWN_TOPIC_ID)
                    continue
                partition = None if by_index is None else by_index.get(asked.partition)
                if partition is None or partition.log.is_failed:
                    found = manager.partition_or_error(name, asked.partition)
                    item.error = int(found) if isinstance(found, ErrorCode) else _NOT_LEADER
                    continue
                if by_id and partition.topic_id != topic.topic_id:
                    item.error = int(ErrorCode.INCONSISTENT_TOPIC_ID)
                    continue
                item.partition = partition
                self._check(item)
            self._items += items

    def _check(self, item: Item) -> None:
        """Sets `error` or `diverging` as of now."""
        partition = item.partition
        assert partition is not None
        asked = item.asked
        log = partition.log
        offset = asked.fetch_offset
        if log.is_failed or partition.is_removed:
            found = self._services.replica_manager.partition_or_error(item.topic, asked.partition)
            item.error = int(found) if isinstance(found, ErrorCode) else _NOT_LEADER
            return
        current_epoch = asked.current_leader_epoch
        epoch_error = partition.check_epoch(current_epoch) if current_epoch >= 0 else ErrorCode.NONE
        if epoch_error:
            item.error = int(epoch_error)
        elif not partition.is_leader and (
            self._replica_id >= 0 or self._context.api_version < 11 or partition.is_stopped
        ):
            item.error = _NOT_LEADER
        elif self._replica_id >= 0 and self._replica_id not in partition.followers:
            item.error = int(ErrorCode.UNKNOWN_LEADER_EPOCH) if current_epoch >= 0 else _NOT_LEADER
        elif self._rack and partition.is_leader and (closest := self._closest(partition, offset)) >= 0:
            item.preferred = closest
        elif offset < log.log_start_offset:
            item.error = int(ErrorCode.OFFSET_OUT_OF_RANGE)
        elif asked.last_fetched_epoch >= 0:
            self._check_divergence(item, partition)
        elif offset > log.log_end_offset:
            item.error = int(ErrorCode.OFFSET_OUT_OF_RANGE)
        elif self._context.api_version < 10 and log.config.codec is Codec.ZSTD:
            item.error = int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)

    def _check_divergence(self, item: Item, partition: Partition) -> None:
        asked = item.asked
        log = partition.log
        if asked.last_fetched_epoch == log.epochs.latest and asked.fetch_offset <= log.log_end_offset:
            return  # the usual case
        end = partition.divergence(asked.fetch_offset, asked.last_fetched_epoch)
        if end is UNDEFINED:
            item.error = int(ErrorCode.OFFSET_OUT_OF_RANGE)
        elif end is not None:
            item.diverging = EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset)

    def _closest(self, partition: Partition, offset: int) -> int:
        """The follower that the consumer is to read from, -1: from here."""
        brokers = self._services.metadata.brokers
        own = brokers.get(self._services.broker_id)
        found = (
            (follower, broker.rack)
            for follower in candidates(partition.followers.values(), partition.in_sync.committed, offset)
            if (broker := brokers.get(follower.broker_id)) is not None and self._context.listener in broker.endpoints
        )
        return closest(self._rack, own.rack if own is not None else None, found).broker_id

    def _acknowledge(self) -> None:
        """As a follower's fetch: everything below its offsets is on its disk."""
        for item in self._items:
            partition = item.partition
            if partition is not None and not item.error and item.diverging is None:
                asked = item.asked
                partition.on_follower_fetch(
                    self._replica_id, asked.fetch_offset, asked.log_start_offset, self._replica_epoch
                )

    def _upper_offset(self, partition: Partition) -> int:
        log = partition.log
        if self._replica_id >= 0:
            return log.log_end_offset
        return log.last_stable_offset if self._request.isolation_level == _READ_COMMITTED else log.high_watermark

    def _is_satisfied(self) -> bool:
        """True when there is something to say at once."""
        min_bytes: int = self._request.min_bytes
        available = 0
        for item in self._items:
            if item.error or item.diverging is not None or item.preferred >= 0:
                return True
            partition = item.partition
            assert partition is not None
            if self._tells_high_watermark and self._has_news(partition):
                return True
            offset = item.asked.fetch_offset
            upper = self._upper_offset(partition)
            if offset < upper and available < min_bytes and not self._is_held_back(partition):
                if min_bytes <= 1:
                    return True
                found = partition.log.bytes_between(offset, upper)
                if found >= A_LOT:
                    # Whoever reads closed segments is behind, and waits for nothing: what a fetch may take of its
                    # partitions can be less than min_bytes for good.
                    return True
                available += min(found, item.asked.partition_max_bytes)
        return available >= min_bytes

    def _is_held_back(self, partition: Partition) -> bool:
        """Whether the follower gets nothing of this partition now: `replication.quotas`."""
        if self._replica_id < 0 or not partition.log.config.throttled_by_leader:
            return False
        manager = self._services.replica_manager
        return (
            partition.log.config.throttled_by_leader.has(partition.index, manager.broker_id)
            and manager.quotas.leader.is_exceeded
            and not partition.is_waiting_for(self._replica_id)
        )

    def _has_news(self, partition: Partition) -> bool:
        """Whether the follower does not know the high watermark yet."""
        return partition.log.high_watermark > partition.followers[self._replica_id].sent_high_watermark

    # Waiting

    def _wait(self, longest_s: float) -> None:
        is_consumer = self._replica_id < 0
        for item in self._items:
            partition = item.partition
            assert partition is not None
            (partition.watermark_waiters if is_consumer else partition.end_waiters)[self] = None
            if self._tells_high_watermark:
                partition.watermark_waiters[self] = None
        self._is_registered = True
        self._services.replica_manager.wheel.arm(self, longest_s)

    def on_progress(self) -> None:
        """Something happened to one of the partitions: look again."""
        if self._is_done or not self._is_registered:
            return
        for item in self._items:
            self._check(item)
        if self._is_satisfied():
            self._answer()

    def on_timeout(self) -> None:
        if not self._is_done:
            for item in self._items:
                self._check(item)
            self._answer()

    def _stop_waiting(self) -> None:
        if not self._is_registered:
            return
        self._is_registered = False
        TimerWheel.disarm(self)
        is_consumer = self._replica_id < 0
        for item in self._items:
            partition = item.partition
            if partition is not None:
                (partition.watermark_waiters if is_consumer else partition.end_waiters).pop(self, None)
                if self._tells_high_watermark:
                    partition.watermark_waiters.pop(self, None)

    # Answering

    def _answer(self) -> None:
        self._is_done = True
        self._stop_waiting()
        if self._context.api_version <= LAST_CONVERTED_VERSION:
            self._services.clock.spawn(self._answer_converted(), name="fetch for an old consumer")
            return
        self._read_from(0, self._request.max_bytes, [])

    async def _answer_converted(self) -> None:
        try:
            while True:
                done = await self._convert()
                left_s = self._request.max_wait_ms / 1000 - (
                    self._services.clock.monotonic() - self._context.received_at
                )
                if left_s <= 0 or not done or any(data.records or data.error_code for data in done):
                    self._finish(done)
                    return
                # Markers of transactions alone: there was something, but nothing that these consumers can be shown.
                # Answering would have them ask the same again at once, for ever.
                for item in self._items:
                    self._check(item)
                if not self._is_satisfied():
                    break
            self._is_done = False
            self._wait(left_s)
        except Exception as error:
            logger.exception("a fetch of version %d failed", self._context.api_version)
            self._context.close_connection(f"internal error in FETCH: {error!r}")

    async def _convert(self) -> list[PartitionData]:
        request = self._request
        conversions = Conversions(self._services, self._context.api_version, request.max_bytes, len(self._items))
        done: list[PartitionData] = []
        for item in self._items:
            data = self._entry(item)
            done.append(data)
            partition = item.partition
            if data.error_code or partition is None:
                continue
            asked = item.asked
            try:
                found = await conversions.read(
                    partition, asked.fetch_offset, asked.partition_max_bytes, self._upper_offset(partition)
                )
            except KafkaError as error:
                self._fail_entry(data, error)
                continue
            data.records = found.data
            if found.data:
                partition.bytes_out(len(found.data))
            else:
                asked.fetch_offset = found.next_offset
        return done

    def _read_from(self, start: int, left_bytes: int, done: list[PartitionData]) -> None:
        """Reads the items from `start` on, one after the other; goes on in a callback where the disk is slow."""
        items = self._items
        for position in range(start, len(items)):
            item = items[position]
            if start:
                self._look_again(item)
            data = self._entry(item)
            done.append(data)
            partition = item.partition
            if data.error_code or item.diverging is not None or partition is None or item.preferred >= 0:
                continue
            offset = item.asked.fetch_offset
            upper = self._upper_offset(partition)
            is_first = left_bytes == self._request.max_bytes
            if offset >= upper or (left_bytes <= 0 and not is_first) or self._is_held_back(partition):
                continue
            try:
                read = partition.log.read(
                    offset, min(item.asked.partition_max_bytes, left_bytes), upper, at_least_one_batch=is_first
                )
            except KafkaError as error:
                self._fail_entry(data, error)
                continue
            if isinstance(read, asyncio.Future):
                if not read.done():
                    read.add_done_callback(partial(self._go_on, position, left_bytes, done, partition, upper))
                    return
                size, aborted = self._take(read, item, data, partition, upper)
            else:
                size, aborted = self._put(read, item, data, partition, upper)
            left_bytes -= size
            if aborted is not None:
                aborted.add_done_callback(partial(self._go_on_with_aborted, position, left_bytes, done))
                return
        if start:
            self._drop_stale(done)
        self._finish(done)

    def _go_on(
        self,
        position: int,
        left_bytes: int,
        done: list[PartitionData],
        partition: Partition,
        upper: int,
        read: asyncio.Future[LogRead],
    ) -> None:
        if not read.cancelled():
            item = self._items[position]
            self._look_again(item)
            if item.error or item.diverging is not None or item.preferred >= 0:
                if read.exception() is None:
                    _release(read.result().chunks)
                done[-1] = self._entry(item)
                self._read_from(position + 1, left_bytes, done)
                return
            size, aborted = self._take(read, item, done[-1], partition, upper)
            if aborted is not None:
                aborted.add_done_callback(partial(self._go_on_with_aborted, position, left_bytes - size, done))
                return
            self._read_from(position + 1, left_bytes - size, done)

    def _look_again(self, item: Item) -> None:
        """While the disk was waited for, this broker may have been told to follow, and have cut and written anew what
        is read from here on: nothing of that may go out as what its leader epoch of before had."""
        if item.partition is not None and not item.error:
            item.diverging, item.preferred = None, -1
            self._check(item)

    def _drop_stale(self, done: list[PartitionData]) -> None:
        """The same for what was read before the wait. Sent as it is, it would end the connection."""
        for data in done:
            if any(chunk.is_stale for chunk in cast("tuple[FileRange, ...]", data.records or ())):
                self._fail_entry(data, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it was truncated meanwhile"))

    def _take(
        self, read: asyncio.Future[LogRead], item: Item, data: PartitionData, partition: Partition, upper: int
    ) -> tuple[int, asyncio.Future[list[Aborted]] | None]:
        error = read.exception()
        if error is None:
            return self._put(read.result(), item, data, partition, upper)
        self._fail_entry(data, error)
        return 0, None

    def _put(
        self, read: LogRead, item: Item, data: PartitionData, partition: Partition, upper: int
    ) -> tuple[int, asyncio.Future[list[Aborted]] | None]:
        """The bytes taken, and what is still to come for the entry to be complete."""
        size: int = read.size
        if not size:
            return 0, None
        data.records = tuple(read.chunks)
        if self._replica_id < 0:
            partition.bytes_out(size)
            if partition.log.has_aborted_transactions and self._request.isolation_level == _READ_COMMITTED:
                aborted = partition.log.aborted_in(read, item.asked.fetch_offset, upper)
                if isinstance(aborted, asyncio.Future):
                    return size, aborted
                data.aborted_transactions = _aborted(aborted)
        else:
            self._count_replication(partition, size)
        return size, None

    def _count_replication(self, partition: Partition, size: int) -> None:
        manager = self._services.replica_manager
        quotas = manager.quotas
        quotas.bytes_out.inc(size)
        if self._replica_id in partition.adding:
            quotas.reassigned_out.inc(size)
        throttled = partition.log.config.throttled_by_leader
        if throttled and throttled.has(partition.index, manager.broker_id):
            quotas.leader.record(size)

    def _go_on_with_aborted(
        self, position: int, left_bytes: int, done: list[PartitionData], found: asyncio.Future[list[Aborted]]
    ) -> None:
        if found.cancelled():
            return
        data = done[-1]
        error = found.exception()
        if error is None:
            data.aborted_transactions = _aborted(found.result())
        else:
            # Without the list the consumer would take aborted records for committed ones.
            self._fail_entry(data, error)
        self._read_from(position + 1, left_bytes, done)

    def _entry(self, item: Item) -> PartitionData:
        data = PartitionData(partition_index=item.asked.partition, records=b"", high_watermark=-1)
        partition = item.partition
        if item.error or partition is None:
            error = item.error
            data.error_code = _NOT_LEADER if error == _STORAGE_ERROR and self._context.api_version < 6 else error
            data.aborted_transactions = None
            return data
        log = partition.log
        data.high_watermark = log.high_watermark
        data.last_stable_offset = log.last_stable_offset
        data.log_start_offset = log.log_start_offset
        data.aborted_transactions = [] if self._request.isolation_level == _READ_COMMITTED else None
        data.diverging_epoch = item.diverging
        data.preferred_read_replica = item.preferred
        if self._tells_high_watermark:
            follower = partition.followers.get(self._replica_id)
            if follower is not None:
                follower.sent_high_watermark = log.high_watermark
        return data

    def _fail_entry(self, data: PartitionData, error: BaseException) -> None:
        _release(cast("tuple[FileRange, ...]", data.records or ()))
        data.records = b""
        code = int(error.code) if isinstance(error, KafkaError) else _STORAGE_ERROR
        data.error_code = _NOT_LEADER if code == _STORAGE_ERROR and self._context.api_version < 6 else code
        data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
        data.aborted_transactions = None

    def _finish(self, done: list[PartitionData]) -> None:
        response = self._response(done)
        if self._context.api_version >= 16:
            self._add_leader_hints(response, done)
        self._respond(response)

    def _response(self, done: list[PartitionData]) -> FetchResponse:
        response = FetchResponse(responses=[])
        position = 0
        for topic, items in self._topics:
            response.responses.append(
                FetchableTopicResponse(
                    topic=topic.topic, topic_id=topic.topic_id, partitions=done[position : position + len(items)]
                )
            )
            position += len(items)
        return response

    def _add_leader_hints(self, response: FetchResponse, done: list[PartitionData]) -> None:
        hints: NodeHints | None = None
        for item, data in zip(self._items, done, strict=True):
            if data.error_code in _WITH_LEADER_HINT:
                leader, epoch = current_leader(self._services, item.topic, data.partition_index)
                data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                hints = hints or NodeHints(self._services, self._context.listener)
                hints.add(leader)
        if hints is not None:
            response.node_endpoints = [
                NodeEndpoint(node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
                for broker, endpoint in hints
            ]


def _release(chunks: Iterable[FileRange]) -> None:
    for chunk in chunks:
        chunk.release()


def _aborted(found: list[Aborted]) -> list[AbortedTransaction]:
    return [AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset) for one in found]

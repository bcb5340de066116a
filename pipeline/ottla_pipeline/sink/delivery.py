"""Sends batches to the leaders of their partitions: many in flight, again after a failure, until all are acknowledged.

One thread, one connection to each leader, several requests in flight on each; `select` says which one has an answer.
Produce requests have connections of their own, since answers come in the order of requests.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla_broker.records.batch import HEADER_BYTES
from ottla_pipeline.errors import DeliveryFailed, ProducerFenced, RecordError
from ottla_pipeline.sink.leaders import Leaders
from ottla_pipeline.sink.partition_queue import BatchOutcome, PartitionQueue, QueuedBatch, outcome_of
from ottla_pipeline.sink.plain_batch import PlainBatch, WritingProducer, header_of
from ottla_pipeline.sink.write_options import Sending
from ottla_pipeline.topic_partition import TopicPartition
from ottla_pipeline.wire.cluster import Address
from ottla_pipeline.wire.connection import Connection, error_of

_IDLE_S = 0.5
"""At most so long without a look at what may be sent or has expired."""


class _ProduceInFlight(NamedTuple):
    """A request in flight."""

    at: float
    batches: list[tuple[TopicPartition, QueuedBatch]]


class _Leader:
    """A connection to a broker, and the requests on it that have no answer yet."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.requests: deque[_ProduceInFlight] = deque()


class Delivery:
    """Batches on their way. `flush` returns when all are acknowledged; any error ends the delivery."""

    def __init__(
        self,
        sending: Sending,
        leaders: Leaders,
        connect: Callable[[str, int], Connection],
        producer: WritingProducer,
        transactional_id: str | None = None,
    ) -> None:
        self._sending = sending
        self._leaders = leaders
        self._connect = connect
        self._producer = producer
        self._transactional_id = transactional_id
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._open: dict[Address, _Leader] = {}
        self._buffered = 0
        self._unsent = 0
        self._stale: set[str] = set()
        self._metadata_at = 0.0
        self._last_error = "no leader was found"
        self.batch_bytes = sending.batch_bytes
        """What a batch may have before compression: lower once a broker has said that one is too large."""

    def add(self, partition: TopicPartition, batch: PlainBatch) -> None:
        """Takes a batch; waits while more than buffer.memory is not acknowledged. Raises as `flush`."""
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = PartitionQueue(has_sequences=self._producer.producer_id >= 0)
        queue.add(batch, time.monotonic())
        self._buffered += len(batch.payload)
        self._unsent += len(batch.payload)
        if self._unsent >= self._sending.request_bytes:
            self._unsent = 0
            self._receive([leader for leader in self._open.values() if leader.requests], 0.0)
            self._send()
        self._work(lambda: self._buffered < self._sending.buffer_bytes)

    def flush(self) -> None:
        """Waits until every batch is acknowledged.

        Raises:
            DeliveryFailed: not within delivery.timeout.ms.
            RecordError: a broker refuses a batch for good.
            ProducerFenced: another producer has the transactional id.
        """
        self._work(lambda: all(queue.is_empty for queue in self._queues.values()))

    def close(self) -> None:
        """Closes all connections; what is in flight may or may not be written."""
        for leader in self._open.values():
            leader.connection.close()
        self._open.clear()

    # -- the loop

    def _work(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            self._fail_what_is_late()
            self._refresh()
            was_sent = self._send()
            if is_done():
                return
            busy = [leader for leader in self._open.values() if leader.requests]
            if busy:
                self._receive(busy, 0.0 if was_sent else self._pause())
            elif not was_sent:
                time.sleep(self._pause())

    def _pause(self) -> float:
        now = time.monotonic()
        retries = [queue.retry_at - now for queue in self._queues.values() if queue.retry_at > now]
        return min([_IDLE_S, *retries])

    def _send(self) -> bool:
        """Sends what may be sent, one batch of a partition in each request; whether anything was."""
        now = time.monotonic()
        by_leader: dict[Address, list[TopicPartition]] = {}
        for partition, queue in self._queues.items():
            if queue.ready(now) is not None:
                address = self._leaders.leader(partition)
                if address is None:
                    self._stale.add(partition.topic)
                else:
                    by_leader.setdefault(address, []).append(partition)
        was_sent = False
        for address, partitions in by_leader.items():
            leader = self._leader(address, partitions)
            left = partitions
            while left and leader is not None and len(leader.requests) < self._sending.in_flight:
                left = self._send_one(address, leader, left, now)
                was_sent = True
                leader = self._open.get(address)
        return was_sent

    def _leader(self, address: Address, partitions: list[TopicPartition]) -> _Leader | None:
        found = self._open.get(address)
        if found is None:
            try:
                found = self._open[address] = _Leader(self._connect(*address))
            except OSError as error:
                self._last_error = str(error)
                self._stale.update(partition.topic for partition in partitions)
        return found

    def _send_one(
        self, address: Address, leader: _Leader, partitions: list[TopicPartition], now: float
    ) -> list[TopicPartition]:
        """Sends one request; the partitions that had no room in it."""
        topics: dict[str, list[PartitionProduceData]] = {}
        batches: list[tuple[TopicPartition, QueuedBatch]] = []
        filled = 0
        left: list[TopicPartition] = []
        for partition in partitions:
            queue = self._queues[partition]
            entry = queue.ready(now)
            if entry is None:
                continue
            size = HEADER_BYTES + len(entry.batch.payload)
            if batches and filled + size > self._sending.request_bytes:
                left.append(partition)
                continue
            queue.sent()
            if entry.header is None:
                entry.header = header_of(entry.batch, self._producer, entry.sequence)
            records = PartitionProduceData(index=partition.partition, records=[entry.header, entry.batch.payload])
            topics.setdefault(partition.topic, []).append(records)
            batches.append((partition, entry))
            filled += size
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=self._sending.acks,
            timeout_ms=self._sending.request_timeout_ms,
            topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
        )
        leader.requests.append(_ProduceInFlight(now, batches))
        try:
            leader.connection.send(ApiKey.PRODUCE, request)
        except OSError as error:
            self._lose(address, str(error))
        return left

    def _receive(self, busy: list[_Leader], timeout_s: float) -> None:
        if not busy:
            return
        waiting = [leader.connection for leader in busy if leader.connection.has_waiting_bytes]
        readable, _, _ = select.select([leader.connection for leader in busy], [], [], 0 if waiting else timeout_s)
        now = time.monotonic()
        for address, leader in list(self._open.items()):
            if leader.connection in readable or leader.connection in waiting:
                try:
                    answer = leader.connection.take()
                except OSError as error:
                    self._lose(address, str(error))
                    continue
                self._answered(leader.requests.popleft(), answer, now)
            elif leader.requests and now - leader.requests[0].at > self._sending.request_timeout_ms / 1000:
                self._lose(address, "no answer within kafka.request.timeout.ms")

    def _lose(self, address: Address, reason: str) -> None:
        """Closes a connection: what is in flight on it is sent again."""
        leader = self._open.pop(address)
        leader.connection.close()
        self._last_error = f"the broker {leader.connection.address}: {reason}"
        for request in leader.requests:
            for partition, entry in request.batches:
                self._retry(partition, entry)
                self._stale.add(partition.topic)

    def _answered(self, request: _ProduceInFlight, answer: Any, now: float) -> None:
        found = {
            TopicPartition(topic.name, partition.index): partition
            for topic in answer.responses
            for partition in topic.partition_responses
        }
        for partition, entry in request.batches:
            response = found.get(partition)
            queue = self._queues[partition]
            if response is None:
                self._last_error = f"{partition}: the broker's answer does not name it"
                self._retry(partition, entry)
                continue
            error = error_of(response.error_code)
            outcome = outcome_of(error, entry.batch.records, queue.follows_failed(entry))
            if outcome is BatchOutcome.WRITTEN:
                queue.written(entry)
                self._buffered -= len(entry.batch.payload)
                continue
            self._last_error = f"{partition}: {error.name}, {response.error_message or error.message}"
            if outcome is BatchOutcome.SPLIT:
                from ottla_pipeline.sink.batch_halves import halves  # pyarrow and numpy, which only this needs

                assert entry.header is not None, "it was sent"
                parts = halves(entry.header, entry.batch)
                queue.split(entry, parts)
                self._buffered += sum(len(part.payload) for part in parts) - len(entry.batch.payload)
                self.batch_bytes = max(min(self.batch_bytes, len(entry.batch.payload)) // 2, 1)
            elif outcome is BatchOutcome.FENCED:
                raise ProducerFenced(
                    f"{self._last_error}: another copy of this query or job writes with"
                    f" {self._transactional_id!r}, or the transaction took longer than kafka.transaction.timeout.ms"
                )
            elif outcome is BatchOutcome.REFUSED:
                raise _refused(partition, entry, response, self._last_error)
            else:
                self._retry(partition, entry)
                if outcome is BatchOutcome.RETRY_ELSEWHERE:
                    self._stale.add(partition.topic)

    def _retry(self, partition: TopicPartition, entry: QueuedBatch) -> None:
        self._queues[partition].failed(
            entry,
            time.monotonic(),
            self._sending.retry_backoff_ms / 1000,
            self._sending.retry_backoff_max_ms / 1000,
        )

    def _refresh(self) -> None:
        """Asks for leaders that are not known or were wrong, not more often than retry.backoff.ms."""
        now = time.monotonic()
        if self._stale and now - self._metadata_at >= self._sending.retry_backoff_ms / 1000:
            stale, self._stale = self._stale, set()
            self._leaders.refresh(stale)
            self._metadata_at = time.monotonic()

    def _fail_what_is_late(self) -> None:
        now = time.monotonic()
        for partition, queue in self._queues.items():
            oldest = queue.oldest
            if oldest is not None and now - oldest.queued_at > self._sending.delivery_timeout_ms / 1000:
                raise DeliveryFailed(
                    f"records for {partition} were not acknowledged within {self._sending.delivery_timeout_ms} ms"
                    f" (kafka.delivery.timeout.ms); last error: {self._last_error}"
                )


def _refused(partition: TopicPartition, entry: QueuedBatch, response: Any, reason: str) -> RecordError:
    wrong = [f"record {one.batch_index}: {one.batch_index_error_message}" for one in response.record_errors or ()]
    what = f" ({'; '.join(wrong[:3])})" if wrong else ""
    return RecordError(
        f"a batch of {entry.batch.records} records with {len(entry.batch.payload)} bytes is refused: {reason}{what}"
    )

"""ReplicatedTopicLog: a coordinator's log on this broker's replicas of its internal topic.

Implements `internal_topics.topic_log.CommittedTopicLog` with the ReplicaManager. An append does what a produce
request does, with a timeout. Loading reads the local log to its end, also records above the high watermark: they are
this leader's history.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from itertools import islice

from ottla_broker.internal_topics.topic_log import (
    AppendOutcome,
    LoadedBatch,
    PlacedAppend,
    StateRecord,
)
from ottla_broker.ports.clock import Clock
from ottla_broker.ports.disk import FileRange
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.batch import BatchHeader
from ottla_broker.records.compression import Codec
from ottla_broker.records.errors import RecordsError
from ottla_broker.records.formats import batches, is_batch_intact, iterate_batch
from ottla_broker.records.record import Record, build_batch, build_records
from ottla_broker.replication.delayed import DelayedProduce
from ottla_broker.replication.local_replicas.replica_manager import ReplicaManager
from ottla_broker.replication.partition import Partition
from ottla_broker.storage.log.verification import TransactionalAppend, VerificationNeeded

logger = logging.getLogger("ottla.server")

_WRITE_POLL_S = 0.01
"""Pause before the log end is checked again while the disk is still writing it."""


_COMMIT_POLL_S = 0.01
"""Pause before the high watermark is checked again."""

_RECORDS_PER_TURN = 200
"""Decoded, or handed on, before others run: a millisecond of the event loop."""


class _Acknowledgement:
    """An AckQueue writes the outcome of one append into it."""

    __slots__ = ("base_offset", "error_code")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.error_code = 0


class ReplicatedTopicLog:
    """See `ottla_broker.internal_topics.topic_log.CommittedTopicLog`."""

    def __init__(
        self, topic: str, replica_manager: ReplicaManager, clock: Clock, *, codec: Codec, load_bytes: int
    ) -> None:
        """`load_bytes`: how much of the log is read at a time."""
        self._topic = topic
        self._replicas = replica_manager
        self._clock = clock
        self._codec = codec
        self._load_bytes = load_bytes

    def append(
        self, partition: int, leader_epoch: int, records: Sequence[StateRecord], *, required_acks: int, timeout_ms: int
    ) -> asyncio.Future[AppendOutcome]:
        batch = build_batch(build_records(records, self._clock.now_ms()), codec=self._codec)
        return self.append_batch(partition, leader_epoch, batch, None, required_acks, timeout_ms).outcome

    def append_batch(
        self,
        partition: int,
        leader_epoch: int,
        batch: bytearray,
        transaction: TransactionalAppend | None,
        required_acks: int,
        timeout_ms: int,
    ) -> PlacedAppend:
        """As `append`, of a whole batch. INVALID_TXN_STATE when `transaction` does not verify what it begins."""
        future: asyncio.Future[AppendOutcome] = self._clock.create_future()
        try:
            replica = self.leader(partition, leader_epoch)
            info = replica.append(memoryview(batch), required_acks, False, transaction)
        except KafkaError as error:
            future.set_result(AppendOutcome(error.code))
            return PlacedAppend(-1, future)
        except VerificationNeeded:
            future.set_result(AppendOutcome(ErrorCode.INVALID_TXN_STATE))
            return PlacedAppend(-1, future)
        log = replica.log
        acknowledgement = _Acknowledgement(info.first_offset)
        if required_acks == 0:
            is_done = True
        elif required_acks == -1:
            is_done = log.state.high_watermark > info.last_offset
            if is_done:
                acknowledgement.error_code = replica.acknowledgement()
        else:
            is_done = log.state.log_end_offset > info.last_offset
        if is_done:
            _finish(future, acknowledgement)
            return PlacedAppend(info.first_offset, future)
        waiting = DelayedProduce(partial(_finish, future, acknowledgement))
        queue = replica.acks_all if required_acks == -1 else replica.acks_leader
        queue.add(info.last_offset + 1, waiting, acknowledgement)
        self._replicas.wheel.arm(waiting, timeout_ms / 1000)
        return PlacedAppend(info.first_offset, future)

    def most_bytes(self, partition: int) -> int:
        """max.message.bytes of the topic. Unknown where records are compressed first."""
        replica = self._replicas.topics.get(self._topic, {}).get(partition)
        if replica is None or self._codec is not Codec.NONE:
            return sys.maxsize
        return replica.log.state.config.max_message_bytes

    async def read(self, partition: int, leader_epoch: int) -> AsyncGenerator[LoadedBatch, None]:
        """Reads a partition's batches from its start to its end; one of many records comes in several parts.

        A batch that cannot be read is logged and skipped: one bad batch does not hide all others.

        Raises:
            KafkaError: this broker is no longer the leader in that epoch.
        """
        log = self.leader(partition, leader_epoch).log
        # What this replica fetched as a follower may not be on its disk yet.
        offset, end = log.state.log_start_offset, log.state.assigned_offset
        while True:
            log = self.leader(partition, leader_epoch).log
            end = min(end, log.state.assigned_offset)  # the directory may be full
            if offset >= end:
                return
            if offset >= log.state.log_end_offset:
                await self._clock.sleep(_WRITE_POLL_S)
                continue
            found = log.read(offset, self._load_bytes, log.state.log_end_offset, True)
            found = await found if asyncio.isfuture(found) else found
            data = b"".join(_bytes(chunk) for chunk in found.chunks)
            start = offset
            for position, header in batches(data):
                offset = header.next_offset
                batch = memoryview(data)[position : position + header.size]
                records = await self._decoded(partition, batch, header)
                if records is None:
                    continue
                for first in range(0, max(len(records), 1), _RECORDS_PER_TURN):
                    if first:
                        await self._clock.sleep(0)
                    yield LoadedBatch(
                        header.base_offset,
                        records[first : first + _RECORDS_PER_TURN],
                        header.producer_id,
                        header.is_transactional,
                        header.is_control,
                    )
            if not data:
                return  # nothing is left up to the end: it has been compacted away
            if offset == start:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self._topic}-{partition}: no whole batch at {offset}")

    async def _decoded(self, partition: int, batch: memoryview, header: BatchHeader) -> list[Record] | None:
        """The records of a batch, None when it cannot be read. Lets others run between many of them."""
        records: list[Record] = []
        try:
            if not is_batch_intact(batch, header.magic):
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "its checksum does not fit")
            found = iterate_batch(batch)
            while part := list(islice(found, _RECORDS_PER_TURN)):
                if records:
                    await self._clock.sleep(0)
                records += part
        except (KafkaError, RecordsError) as error:
            logger.error("skipping the batch at %s-%d offset %d: %s", self._topic, partition, header.base_offset, error)
            return None
        return records

    async def await_committed(self, partition: int, leader_epoch: int) -> None:
        """Waits for the in-sync replicas. While there are fewer than min.insync.replicas, nothing is committed."""
        end = self.leader(partition, leader_epoch).log.state.assigned_offset
        while self.leader(partition, leader_epoch).log.state.high_watermark < end:
            await self._clock.sleep(_COMMIT_POLL_S)

    def leader(self, partition: int, leader_epoch: int) -> Partition:
        """The replica, if this broker leads in that epoch. Raises NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR."""
        found = self._replicas.leader_or_error(self._topic, partition, leader_epoch)
        if isinstance(found, ErrorCode):
            is_fenced = found in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH)
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER if is_fenced else found)
        return found


def follow_leadership(
    topic: str,
    replica_manager: ReplicaManager,
    on_election: Callable[[int, int], None],
    on_resignation: Callable[[int, int | None], None],
) -> None:
    """Reports to a coordinator which partitions of its topic this broker leads.

    Args:
        on_election: takes the partition and the leader epoch.
        on_resignation: the same; the epoch is None when the partition is gone.
    """

    def on_change(leaders: Sequence[Partition], others: Sequence[Partition]) -> None:
        for partition in others:
            if partition.topic == topic:
                is_removed = replica_manager.partition(topic, partition.index) is None
                on_resignation(partition.index, None if is_removed else partition.leader_epoch)
        for partition in leaders:
            if partition.topic == topic:
                on_election(partition.index, partition.leader_epoch)

    replica_manager.add_leadership_listener(on_change)


def _finish(future: asyncio.Future[AppendOutcome], acknowledgement: _Acknowledgement) -> None:
    if not future.done():  # cancelled: the broker is halting
        future.set_result(AppendOutcome(ErrorCode.of(acknowledgement.error_code), acknowledgement.base_offset))


def _bytes(chunk: bytes | bytearray | memoryview | FileRange) -> bytes | bytearray | memoryview:
    if isinstance(chunk, (bytes, bytearray, memoryview)):
        return chunk
    try:
        return chunk.read()
    finally:
        chunk.release()

"""`__consumer_offsets` as the group coordinator sees it: `groups.log.GroupLog` over the replica manager."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

from ottla_broker.groups.log import AppendOutcome, LoadedBatch
from ottla_broker.ports import Clock
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.batch import batches
from ottla_broker.records.record import Record, build_batch, decode_records
from ottla_broker.replication.delayed import DelayedProduce
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.replica_manager import ReplicaManager
from ottla_broker.server.topic_creation import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from ottla_broker.groups.coordinator import GroupCoordinator
    from ottla_broker.groups.records import Record as GroupRecord

_ALL = -1


class _Acknowledgement:
    """The entry of an append in the queue of those that wait."""

    __slots__ = ("base_offset", "error_code")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.error_code = 0


class ReplicatedGroupLog:
    """See `GroupLog`.

    Args:
        load_bytes: `offsets.load.buffer.size`, how much is read at a time while a partition is loaded.
    """

    def __init__(self, replica_manager: ReplicaManager, clock: Clock, load_bytes: int) -> None:
        self._replica_manager = replica_manager
        self._clock = clock
        self._load_bytes = load_bytes

    def append(
        self, partition: int, leader_epoch: int, records: Sequence[GroupRecord], *, required_acks: int, timeout_ms: int
    ) -> asyncio.Future[AppendOutcome]:
        outcome: asyncio.Future[AppendOutcome] = self._clock.create_future()
        leader = self._leader(partition, leader_epoch)
        if isinstance(leader, ErrorCode):
            outcome.set_result(AppendOutcome(leader))
            return outcome
        now_ms = self._clock.now_ms()
        batch = build_batch([Record(i, now_ms, r.key, r.value) for i, r in enumerate(records)])
        try:
            info = leader.append(memoryview(batch), required_acks)
        except KafkaError as error:
            outcome.set_result(AppendOutcome(error.code))
            return outcome
        entry = _Acknowledgement(info.first_offset)

        def finish() -> None:
            if not outcome.done():
                outcome.set_result(AppendOutcome(ErrorCode.of(entry.error_code), entry.base_offset))

        reached = leader.log.high_watermark if required_acks == _ALL else leader.log.log_end_offset
        if required_acks == 0 or reached > info.last_offset:
            finish()
            return outcome
        waiting = DelayedProduce(finish)
        queue = leader.acks_all if required_acks == _ALL else leader.acks_leader
        queue.add(info.last_offset + 1, waiting, entry)
        self._replica_manager.wheel.arm(waiting, timeout_ms / 1000)
        return outcome

    async def read(self, partition: int, leader_epoch: int) -> AsyncGenerator[LoadedBatch, None]:
        leader = self._leader(partition, leader_epoch)
        if isinstance(leader, ErrorCode):
            raise OSError(f"{CONSUMER_OFFSETS}-{partition} cannot be read: {leader.message}")
        log = leader.log
        offset, end = log.log_start_offset, log.log_end_offset
        while offset < end:
            found = log.read(offset, self._load_bytes, end, True)
            if isinstance(found, asyncio.Future):
                found = await found
            data = b"".join(_take(chunk) for chunk in found.chunks)
            before = offset
            for position, header in batches(data):
                if header.last_offset < offset:
                    continue
                offset = header.last_offset + 1
                batch = memoryview(data)[position : position + header.size]
                yield LoadedBatch(
                    base_offset=header.base_offset,
                    records=decode_records(batch),
                    producer_id=header.producer_id,
                    is_transactional=header.is_transactional,
                    is_control=header.is_control,
                )
            if offset == before:
                raise OSError(f"{CONSUMER_OFFSETS}-{partition} has no whole batch at offset {offset}")
            await asyncio.sleep(0)  # a long log must not keep the loop from everybody else

    def _leader(self, partition: int, leader_epoch: int) -> Partition | ErrorCode:
        found = self._replica_manager.partition(CONSUMER_OFFSETS, partition)
        if found is None or not found.is_leader or found.leader_epoch != leader_epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return found


def follow_group_leadership(replica_manager: ReplicaManager, coordinator: GroupCoordinator) -> None:
    """Tells the coordinator which partitions of `__consumer_offsets` this broker leads."""

    def on_change(leaders: Sequence[Partition], others: Sequence[Partition]) -> None:
        for partition in others:
            if partition.topic == CONSUMER_OFFSETS:
                is_gone = replica_manager.partition(CONSUMER_OFFSETS, partition.index) is None
                coordinator.on_resignation(partition.index, None if is_gone else partition.leader_epoch)
        for partition in leaders:
            if partition.topic == CONSUMER_OFFSETS:
                coordinator.on_election(partition.index, partition.leader_epoch)

    replica_manager.add_leadership_listener(on_change)


def _take(chunk: object) -> bytes:
    """The bytes of a chunk, its file range released."""
    if isinstance(chunk, bytes | bytearray | memoryview):
        return bytes(chunk)
    try:
        data: bytes = chunk.read()  # type: ignore[attr-defined]
        return data
    finally:
        chunk.release()  # type: ignore[attr-defined]

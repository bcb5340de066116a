"""A group coordinator in virtual time on an in-memory log whose records are real batches."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any

from ottla_broker.config import BrokerConfig
from ottla_broker.groups.coordinator import GroupCoordinator
from ottla_broker.groups.decisions import JoinAnswer, SyncAnswer, SyncRequest
from ottla_broker.internal_topics.topic_log import (
    AppendOutcome,
    LoadedBatch,
    PlacedAppend,
    StateRecord,
    TransactionalProducer,
    VerifiedTransaction,
)
from ottla_broker.metrics import Metrics
from ottla_broker.ports.clock import Clock
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.batch import read_header
from ottla_broker.records.control_records import ControlType, EndTransactionMarker, build_marker
from ottla_broker.records.record import build_batch, build_records, decode_records
from ottla_broker.storage.log.verification import Verification
from simulation.clock import SimulatedClock
from simulation.world import World
from tests.broker.groups.consumer.group_driver import Topics
from tests.broker.groups.driver import join_request


def in_virtual_time(scenario: Callable[[Clock], Coroutine[Any, Any, None]]) -> None:
    """Runs the scenario to its end; whatever a task of it left unhandled fails the test."""
    world = World(1)
    world.loop.has_no_limit = True  # offsets expire after days
    clock = SimulatedClock(world.machine("m", "10.0.0.1").start_process())
    try:
        world.run(scenario(clock))
    finally:
        world.discard()  # tasks that the scenario did not wait for
    assert world.problems == []


class MemoryLog:
    """A `TransactionalTopicLog`: batches in memory, appended during the call, confirmed `delay_s` later."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.batches: dict[int, list[bytes]] = {}
        self.epochs: dict[int, int] = {}
        self.delay_s = 0.005
        self.error = ErrorCode.NONE
        """What appends answer from now on; with an error nothing is written."""
        self.late_error = ErrorCode.NONE
        """What appends answer that were written."""
        self.verification_error = ErrorCode.NONE
        """What the transaction coordinator answers from now on."""
        self.verified: list[tuple[int, TransactionalProducer]] = []
        self.most = sys.maxsize
        """What `most_bytes` gives."""
        self.failing_reads = 0
        self.read_delay_s = 0.0

    def lead(self, partition: int, leader_epoch: int) -> None:
        self.epochs[partition] = leader_epoch

    def append(
        self, partition: int, leader_epoch: int, records: Sequence[StateRecord], *, required_acks: int, timeout_ms: int
    ) -> asyncio.Future[AppendOutcome]:
        return self._append(partition, leader_epoch, records, required_acks, timeout_ms).outcome

    def most_bytes(self, partition: int) -> int:
        return self.most

    def verify_transaction(
        self, partition: int, leader_epoch: int, producer: TransactionalProducer, *, adds_partition: bool
    ) -> asyncio.Future[VerifiedTransaction]:
        self.verified.append((partition, producer))
        future: asyncio.Future[VerifiedTransaction] = self.clock.create_future()
        verification = Verification(producer.producer_epoch, -1, 0)
        answer = VerifiedTransaction(self.verification_error, None if self.verification_error else verification)
        self.clock.call_later(self.delay_s, future.set_result, answer)
        return future

    def append_in_transaction(
        self,
        partition: int,
        leader_epoch: int,
        records: Sequence[StateRecord],
        producer: TransactionalProducer,
        verification: Verification | None,
        *,
        required_acks: int,
        timeout_ms: int,
    ) -> PlacedAppend:
        assert verification is not None
        batch = {
            "attributes": 0x10,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "base_sequence": 0,
        }
        return self._append(partition, leader_epoch, records, required_acks, timeout_ms, **batch)

    def end_offset(self, partition: int) -> int:
        batches = self.batches.get(partition)
        return read_header(batches[-1]).next_offset if batches else 0

    def append_marker(self, partition: int, producer_id: int, kind: ControlType) -> int:
        """As WriteTxnMarkers does; returns its offset."""
        offset = self.end_offset(partition)
        batch = build_marker(EndTransactionMarker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp=0)
        batch[:8] = offset.to_bytes(8, "big")
        self.batches.setdefault(partition, []).append(bytes(batch))
        return offset

    def _append(
        self,
        partition: int,
        leader_epoch: int,
        records: Sequence[StateRecord],
        required_acks: int,
        timeout_ms: int,
        **batch: int,
    ) -> PlacedAppend:
        assert required_acks == -1
        assert timeout_ms == 5_000
        future: asyncio.Future[AppendOutcome] = self.clock.create_future()
        error = self.error
        if self.epochs.get(partition) != leader_epoch:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        offset = -1
        if error is ErrorCode.NONE:
            offset = self.end_offset(partition)
            built = build_batch(build_records(records, self.clock.now_ms(), offset), **batch)
            self.batches.setdefault(partition, []).append(bytes(built))
            error = self.late_error
        outcome = AppendOutcome(error, -1 if error else offset)
        self.clock.call_later(self.delay_s, future.set_result, outcome)
        return PlacedAppend(offset, future)

    async def read(self, partition: int, leader_epoch: int) -> AsyncGenerator[LoadedBatch, None]:
        await self.clock.sleep(self.read_delay_s)
        if self.failing_reads:
            self.failing_reads -= 1
            raise OSError(5, "Input/output error")
        for batch in list(self.batches.get(partition, [])):
            header = read_header(batch)
            yield LoadedBatch(
                header.base_offset,
                decode_records(batch),
                header.producer_id,
                header.is_transactional,
                header.is_control,
            )


class Broker:
    """One coordinator; leads every partition of `__consumer_offsets` unless told otherwise."""

    def __init__(
        self,
        clock: Clock,
        log: MemoryLog | None = None,
        *,
        partitions: int | None = 4,
        epoch: int = 0,
        topics: Topics | None = None,
        **config: int | str,
    ) -> None:
        self.clock = clock
        self.log = log or MemoryLog(clock)
        self.metrics = Metrics()
        self.partitions = partitions
        self.topics = topics or Topics(t=4)
        self.coordinator = GroupCoordinator(
            clock=clock,
            log=self.log,
            metrics=self.metrics,
            config=BrokerConfig.from_mapping({name.replace("__", "."): str(value) for name, value in config.items()}),
            partition_count=lambda: self.partitions,
            topics=self.topics,
        )
        self.coordinator.start()
        for partition in range(partitions or 0):
            self.elect(partition, epoch)
        self._ids = 0

    def elect(self, partition: int, epoch: int) -> None:
        self.log.lead(partition, epoch)
        self.coordinator.partitions.on_election(partition, epoch)

    async def loaded(self) -> None:
        while self.coordinator.list()[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            await self.clock.sleep(0.01)

    def join(self, group_id: str, member_id: str = "", **changes: Any) -> asyncio.Task[JoinAnswer]:
        self._ids += 1
        changes.setdefault("new_member_id", f"member-{self._ids}")
        request = join_request(member_id, **changes)
        return self.clock.spawn(self.coordinator.join(group_id, request), name="join")

    def sync(
        self, group_id: str, member_id: str, generation_id: int, assignments: dict[str, bytes] | None = None
    ) -> asyncio.Task[SyncAnswer]:
        request = SyncRequest(generation_id, member_id, None, None, None, assignments or {})
        return self.clock.spawn(self.coordinator.sync(group_id, request), name="sync")

    async def stable_group(self, group_id: str, count: int = 2, **changes: Any) -> list[str]:
        joins = await asyncio.gather(*[self.join(group_id, **changes) for _ in range(count)])
        members = [join.member_id for join in joins]
        generation = joins[0].generation_id
        assignments = {member: f"{generation}/{member}".encode() for member in members}
        syncs = await asyncio.gather(
            *[
                self.sync(group_id, member, generation, assignments if member == joins[0].leader else None)
                for member in members
            ]
        )
        assert [sync.assignment for sync in syncs] == list(assignments.values())
        return members

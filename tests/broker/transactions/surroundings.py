"""A transaction coordinator in virtual time, on an in-memory log of real batches, with leaders that take markers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ottla_broker.config import BrokerConfig
from ottla_broker.exposition import Exposition
from ottla_broker.internal_topics.topic_log import AppendOutcome, LoadedBatch, StateRecord
from ottla_broker.metrics import Metrics
from ottla_broker.ports.clock import Clock
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.batch import read_header
from ottla_broker.records.ids import TopicPartition
from ottla_broker.records.record import build_batch, build_records, decode_records
from ottla_broker.transactions.coordinator import ProducerAnswer, TransactionCoordinator
from ottla_broker.transactions.decisions import ProducerIdAndEpoch, TransactionMetadata
from ottla_broker.transactions.markers import Marker
from ottla_broker.transactions.records import read_key, read_value
from ottla_broker.transactions.replay import TransactionReplay
from ottla_broker.transactions.states import TransactionState

T0, T1, T2 = (TopicPartition("t", index) for index in range(3))


class MemoryLog:
    """A `CommittedTopicLog`: batches in memory, appended during the call, confirmed `delay_s` later."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.batches: dict[int, list[bytes]] = {}
        self.committed: dict[int, int] = {}
        """Number of batches of the partition that are on every replica."""
        self.epochs: dict[int, int] = {}
        self.delay_s = 0.005
        self.errors: list[ErrorCode] = []
        """What the next appends answer. NOT_ENOUGH_REPLICAS_AFTER_APPEND and REQUEST_TIMED_OUT are written."""
        self.is_replicating = True
        """Whether followers fetch what a new leader has: it is committed then."""
        self.failing_reads = 0
        self.read_delay_s = 0.0

    def lead(self, partition: int, leader_epoch: int) -> None:
        self.epochs[partition] = leader_epoch

    def append(
        self, partition: int, leader_epoch: int, records: Sequence[StateRecord], *, required_acks: int, timeout_ms: int
    ) -> asyncio.Future[AppendOutcome]:
        assert required_acks == -1
        future: asyncio.Future[AppendOutcome] = self.clock.create_future()
        error = self.errors.pop(0) if self.errors else ErrorCode.NONE
        if self.epochs.get(partition) != leader_epoch:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        offset = -1
        if error in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT):
            batches = self.batches.setdefault(partition, [])
            offset = read_header(batches[-1]).next_offset if batches else 0
            batches.append(bytes(build_batch(build_records(records, self.clock.now_ms(), offset))))
        count = len(self.batches.get(partition, []))

        def acknowledge() -> None:
            outcome = AppendOutcome(error, offset)
            if self.epochs.get(partition) != leader_epoch:
                outcome = AppendOutcome(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif error is ErrorCode.NONE:
                self.committed[partition] = max(self.committed.get(partition, 0), count)
            if not future.done():
                future.set_result(outcome)

        self.clock.call_later(self.delay_s, acknowledge)
        return future

    async def read(self, partition: int, leader_epoch: int) -> AsyncGenerator[LoadedBatch, None]:
        await self.clock.sleep(self.read_delay_s)
        if self.failing_reads:
            self.failing_reads -= 1
            raise OSError(5, "Input/output error")
        for batch in list(self.batches.get(partition, [])):
            yield LoadedBatch(read_header(batch).base_offset, decode_records(batch))

    async def await_committed(self, partition: int, leader_epoch: int) -> None:
        end = len(self.batches.get(partition, []))
        while self.committed.get(partition, 0) < end:
            await self.clock.sleep(self.delay_s)
            if self.epochs.get(partition) != leader_epoch:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if self.is_replicating:
                self.committed[partition] = max(self.committed.get(partition, 0), end)

    def history(self, transactional_id: str) -> list[TransactionState | None]:
        """The states of its records, in order; None for a tombstone."""
        return [
            None if record.value is None else read_value(record.value).state
            for batches in self.batches.values()
            for batch in batches
            for record in decode_records(batch)
            if record.key is not None and read_key(record.key) == transactional_id
        ]

    def committed_metadata(self, transactional_id: str) -> TransactionMetadata | None:
        """What every replica has."""
        replay = TransactionReplay()
        for partition, batches in self.batches.items():
            for batch in batches[: self.committed.get(partition, 0)]:
                replay.add(LoadedBatch(read_header(batch).base_offset, decode_records(batch)))
        return replay.found.get(transactional_id)


@dataclass
class Leaders:
    """A `PartitionLeaders`: broker 1 leads everything unless told otherwise."""

    clock: Clock
    log: MemoryLog
    leaders: dict[TopicPartition, int | None] = field(default_factory=dict)
    dead: set[int] = field(default_factory=set)
    answers: list[ErrorCode] = field(default_factory=list)
    """Of the next partitions that a marker comes for."""
    unforeseen: list[Exception] = field(default_factory=list)
    """What the next requests raise."""
    requests: list[tuple[int, tuple[Marker, ...]]] = field(default_factory=list)
    written: dict[TopicPartition, list[tuple[int, int, bool]]] = field(default_factory=dict)
    """By partition: producer id, producer epoch, whether it commits."""
    delay_s: float = 0.002

    def leader(self, partition: TopicPartition) -> int | None:
        return self.leaders.get(partition, 1)

    async def write_markers(
        self, broker_id: int, markers: Sequence[Marker]
    ) -> Mapping[int, Mapping[TopicPartition, ErrorCode]]:
        self.requests.append((broker_id, tuple(markers)))
        await self.clock.sleep(self.delay_s)
        if self.unforeseen:
            raise self.unforeseen.pop(0)
        if broker_id in self.dead:
            raise ConnectionError(f"broker {broker_id} is dead")
        return {
            marker.producer_id: {partition: self._write(marker, partition) for partition in marker.partitions}
            for marker in markers
        }

    def _write(self, marker: Marker, partition: TopicPartition) -> ErrorCode:
        error = self.answers.pop(0) if self.answers else ErrorCode.NONE
        if error is ErrorCode.NONE:
            stored = self.log.committed_metadata(marker.transactional_id)
            expected = TransactionState.PREPARE_COMMIT if marker.is_commit else TransactionState.PREPARE_ABORT
            assert stored is not None and stored.state is expected, "a marker before its outcome is committed"
            end = (marker.producer_id, marker.producer_epoch, marker.is_commit)
            self.written.setdefault(partition, []).append(end)
        return error


@dataclass
class Here:
    """A `MarkersHere` of broker 1: markers are committed, or refused with the next of `answers`, `delay_s` later."""

    clock: Clock
    broker_id: int = 1
    answers: list[ErrorCode] = field(default_factory=list)
    written: list[Marker] = field(default_factory=list)
    delay_s: float = 0.002

    def write(self, marker: Marker, on_written: Callable[[Mapping[TopicPartition, ErrorCode]], None]) -> None:
        self.written.append(marker)
        errors = {one: self.answers.pop(0) if self.answers else ErrorCode.NONE for one in marker.partitions}
        self.clock.call_later(self.delay_s, on_written, errors)


class Broker:
    """One coordinator; leads every partition of `__transaction_state` unless told otherwise."""

    def __init__(
        self,
        clock: Clock,
        log: MemoryLog | None = None,
        leaders: Leaders | None = None,
        *,
        here: Here | None = None,
        partitions: int = 4,
        epoch: int = 0,
        first_producer_id: int = 1000,
        **config: int,  # bool among them
    ) -> None:
        self.clock = clock
        self.log = log or MemoryLog(clock)
        self.leaders = leaders or Leaders(clock, self.log)
        self.metrics = Metrics()
        self.last_producer_id = first_producer_id - 1
        self.finalized_version = 0
        self.partition_count: int | None = partitions
        self.coordinator = TransactionCoordinator(
            clock=clock,
            log=self.log,
            leaders=self.leaders,
            markers_here=here,
            metrics=self.metrics,
            config=BrokerConfig.from_mapping(
                {name.replace("__", "."): str(value).lower() for name, value in config.items()}
            ),
            next_producer_id=self.next_producer_id,
            partition_count=lambda: self.partition_count,
            finalized_version=lambda: self.finalized_version,
        )
        self.coordinator.start()
        for partition in range(partitions):
            self.elect(partition, epoch)

    async def next_producer_id(self) -> int:
        await self.clock.sleep(0.001)
        self.last_producer_id += 1
        return self.last_producer_id

    def elect(self, partition: int, epoch: int) -> None:
        self.log.lead(partition, epoch)
        self.coordinator.partitions.on_election(partition, epoch)

    def index(self, transactional_id: str) -> int:
        return self.coordinator.partitions.index_of(transactional_id)

    def exposed(self) -> str:
        """Its metrics in Prometheus' text format."""
        return Exposition(self.metrics).text().decode()

    async def loaded(self) -> None:
        while self.coordinator.list((), None, -1)[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            await self.clock.sleep(0.01)

    async def initialize(
        self, transactional_id: str, timeout_ms: int = 60_000, expected: ProducerIdAndEpoch | None = None
    ) -> ProducerAnswer:
        """Tries again as a producer does while an earlier transaction is being ended."""
        while True:
            answer = await self.coordinator.initialize(transactional_id, timeout_ms, expected)
            if answer.error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                return ProducerAnswer(*answer[:3])
            await self.clock.sleep(0.02)

    async def begin(self, transactional_id: str, *partitions: TopicPartition) -> ProducerIdAndEpoch:
        """A producer with an open transaction."""
        answer = await self.initialize(transactional_id)
        assert answer.error is ErrorCode.NONE, answer
        added = await self.coordinator.add_partitions(
            transactional_id, answer.producer_id, answer.producer_epoch, partitions
        )
        assert added is ErrorCode.NONE, added
        return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

    async def end(self, transactional_id: str, producer: ProducerIdAndEpoch, *, is_commit: bool) -> ErrorCode:
        return await self.coordinator.end(transactional_id, *producer, is_commit=is_commit)

    def state(self, transactional_id: str) -> TransactionState:
        error, metadata = self.coordinator.describe(transactional_id)
        assert error is ErrorCode.NONE and metadata is not None, error
        return metadata.state

    async def reaches(self, transactional_id: str, state: TransactionState) -> None:
        for _ in range(10_000):
            if self.state(transactional_id) is state:
                return
            await self.clock.sleep(0.01)
        raise AssertionError(f"{transactional_id} stays in state {self.state(transactional_id).name}")


async def started(clock: Clock, log: MemoryLog | None = None, **config: int) -> Broker:
    """A broker that has loaded its partitions."""
    broker = Broker(clock, log, **config)
    await broker.loaded()
    return broker

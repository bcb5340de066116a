"""Coordinators that fail over at random under random producers: each transaction has one outcome, the answered one.

Three coordinators take turns in leading the only partition of `__transaction_state`. A new leader has what is
committed, and the first few of the other records by chance: the rest is lost. Appends fail, requests with markers get
lost before or after they are carried out, partitions change their leader. Nothing is delivered late to a partition:
that a marker may end a later transaction of the same epoch is what transaction.version 2 is for.

The decision over transactions in two phases (KIP-939) is made outside, when they are prepared: they have that outcome,
however often their producer dies before it has ended them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from ottla_broker.ports.clock import Clock
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition
from ottla_broker.transactions.decisions import ProducerIdAndEpoch
from ottla_broker.transactions.markers import Marker
from ottla_broker.transactions.states import TransactionState
from tests.broker.groups.surroundings import in_virtual_time
from tests.broker.transactions.surroundings import Broker, MemoryLog

PARTITIONS = [TopicPartition("t", index) for index in range(4)]
COORDINATORS = 3
FAULTS_S = 20.0
TIMEOUT_MS = 5_000
RETRIABLE = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


class FencedProducer(Exception):
    """The producer has to initialize again."""


@dataclass
class Decisions:
    """What is decided outside over the transactions of one transactional id, and outlives its producers."""

    prepared: ProducerIdAndEpoch | None = None
    """Of the last transaction whose decision is to commit."""
    number: int = 0
    """Of that transaction."""
    latest: int = 0
    """Of the last transaction that was begun."""
    outcomes: dict[int, bool] = field(default_factory=dict)
    """By transaction: whether it has to be committed. Decided once, before anybody ends it."""
    kept_count: int = 0


@dataclass
class Partition:
    """A partition as its log has it: who has a transaction open, and in which epochs."""

    epochs: dict[int, int] = field(default_factory=dict)
    coordinator_epoch: int = -1
    open: dict[int, int] = field(default_factory=dict)
    """By producer id, the number of its transaction."""


class Data:
    """The partitions, a `PartitionLeaders` of all coordinators."""

    def __init__(self, clock: Clock, draw: random.Random) -> None:
        self.clock = clock
        self.draw = draw
        self.faults = True
        self.partitions = {partition: Partition() for partition in PARTITIONS}
        self.outcomes: dict[int, set[bool]] = {}
        """By transaction: of each record in it, whether it is committed."""

    def leader(self, partition: TopicPartition) -> int | None:
        if self.faults and self.draw.random() < 0.1:
            return -1
        return partition.partition % 2

    async def write_markers(
        self, broker_id: int, markers: Sequence[Marker]
    ) -> Mapping[int, Mapping[TopicPartition, ErrorCode]]:
        await self.clock.sleep(self.draw.choice((0.001, 0.01)))
        fault = self.draw.random() if self.faults else 1.0
        if fault < 0.1:
            raise ConnectionError("lost before it was carried out")
        errors: dict[int, dict[TopicPartition, ErrorCode]] = {}
        for marker in markers:
            for partition in marker.partitions:
                errors.setdefault(marker.producer_id, {})[partition] = self.write_marker(marker, partition)
        if fault < 0.2:
            raise ConnectionError("lost after it was carried out")
        return errors

    def write_marker(self, marker: Marker, name: TopicPartition) -> ErrorCode:
        if self.faults and self.draw.random() < 0.1:
            return self.draw.choice((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS))
        partition = self.partitions[name]
        if marker.producer_epoch < partition.epochs.get(marker.producer_id, -1):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if marker.coordinator_epoch < partition.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        partition.coordinator_epoch = marker.coordinator_epoch
        partition.epochs[marker.producer_id] = marker.producer_epoch
        number = partition.open.pop(marker.producer_id, None)
        if number is not None:
            self.outcomes.setdefault(number, set()).add(marker.is_commit)
        return ErrorCode.NONE

    def write(self, name: TopicPartition, producer: ProducerIdAndEpoch, number: int) -> None:
        """A record of the transaction. A fenced producer is refused."""
        partition = self.partitions[name]
        if producer.producer_epoch < partition.epochs.get(producer.producer_id, -1):
            raise FencedProducer
        partition.epochs[producer.producer_id] = producer.producer_epoch
        assert partition.open.get(producer.producer_id, number) == number, "the transaction before is still open"
        partition.open[producer.producer_id] = number


class Fleet:
    def __init__(self, clock: Clock, seed: int) -> None:
        self.clock = clock
        self.draw = random.Random(seed)
        self.log = MemoryLog(clock)
        self.data = Data(clock, self.draw)
        self.epoch = 0
        self.leading = 0
        # Their partitions are elected below; every coordinator draws its own producer ids.
        self.brokers = [
            Broker(
                clock,
                self.log,
                self.data,  # type: ignore[arg-type]
                partitions=1,
                epoch=-1,
                first_producer_id=1_000 * (1 + number),
                transaction__abort__timed__out__transaction__cleanup__interval__ms=500,
                transaction__two__phase__commit__enable=True,
            )
            for number in range(COORDINATORS)
        ]
        for broker in self.brokers:
            broker.coordinator.partitions.on_resignation(0, 0)
        self.fail_over(0)
        self.number = 0
        self.answered: dict[int, bool] = {}
        """By transaction, what its producer was told: committed or aborted."""
        self.decisions: dict[str, Decisions] = {}
        """By transactional id of two phases."""

    def fail_over(self, leader: int) -> None:
        """The next leader has every committed record and the first few of the others."""
        self.epoch += 1
        self.brokers[self.leading].coordinator.partitions.on_resignation(0, self.epoch)
        batches, committed = self.log.batches.get(0, []), self.log.committed.get(0, 0)
        survive = self.draw.randint(committed, len(batches)) if len(batches) > committed else committed
        del batches[survive:]
        self.leading = leader
        self.brokers[leader].elect(0, self.epoch)

    @property
    def coordinator(self) -> Broker:
        """Where a producer asks: mostly the right one."""
        if self.data.faults and self.draw.random() < 0.1:
            return self.draw.choice(self.brokers)
        return self.brokers[self.leading]

    async def break_things(self) -> None:
        until = self.clock.monotonic() + FAULTS_S
        while self.clock.monotonic() < until:
            await self.clock.sleep(self.draw.choice((0.01, 0.1, 1.0)))
            fault = self.draw.random()
            if fault < 0.4:
                self.fail_over(self.draw.randrange(COORDINATORS))
            elif fault < 0.8:
                error = self.draw.choice((ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NOT_ENOUGH_REPLICAS))
                self.log.errors += [error] * self.draw.randint(1, 4)
            else:
                self.log.delay_s = self.draw.choice((0.001, 0.05))
        self.log.errors = []
        self.data.faults = False

    async def produce(self, transactional_id: str) -> None:
        """One producer: transaction after transaction, as long as there are faults."""
        producer: ProducerIdAndEpoch | None = None
        while self.data.faults:
            try:
                if producer is None:
                    producer = await self.initialize(transactional_id)
                await self.transact(transactional_id, producer)
            except FencedProducer:
                producer = None

    async def produce_in_two_phases(self, transactional_id: str) -> None:
        """One producer after the other, each of which ends what the one before it has left."""
        known = self.decisions[transactional_id] = Decisions()
        while self.data.faults:
            producer = await self.recover(transactional_id, known)
            try:
                while self.data.faults:
                    producer = await self.prepare(transactional_id, producer, known)
            except FencedProducer:
                pass  # it was killed
        await self.recover(transactional_id, known)

    async def recover(self, transactional_id: str, known: Decisions) -> ProducerIdAndEpoch:
        while True:
            answer = await self.coordinator.coordinator.initialize(
                transactional_id, 0, None, has_two_phases=True, keeps_transaction=True
            )
            if answer.error is ErrorCode.NONE:
                if self.draw.random() < 0.7:
                    break
            else:
                assert answer.error in RETRIABLE, answer  # else it is killed again, and begins with the next epoch
            await self.clock.sleep(0.02)
        producer = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
        if answer.ongoing.producer_id < 0:
            return producer
        known.kept_count += 1
        is_commit = answer.ongoing == known.prepared
        number = known.number if is_commit else known.latest
        assert known.outcomes.setdefault(number, False) is is_commit, "the open transaction is another one"
        return await self.decide(transactional_id, producer, is_commit=is_commit)

    async def prepare(
        self, transactional_id: str, producer: ProducerIdAndEpoch, known: Decisions
    ) -> ProducerIdAndEpoch:
        self.number += 1
        number = known.latest = self.number
        chosen = self.draw.sample(PARTITIONS, self.draw.randint(1, 3))
        while True:
            added = await self.coordinator.coordinator.add_partitions(transactional_id, *producer, chosen, 2)
            if added is ErrorCode.NONE:
                break
            assert added in RETRIABLE, added
            await self.clock.sleep(0.02)
        for partition in chosen:
            self.data.write(partition, producer, number)
        if self.draw.random() < 0.2:
            raise FencedProducer
        if self.draw.random() < 0.3:
            await self.clock.sleep(3 * TIMEOUT_MS / 1000)
        known.outcomes[number] = is_commit = self.draw.random() < 0.7
        if is_commit:
            known.prepared, known.number = producer, number
        if self.draw.random() < 0.3:
            raise FencedProducer
        return await self.decide(transactional_id, producer, is_commit=is_commit)

    async def decide(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, is_commit: bool
    ) -> ProducerIdAndEpoch:
        while True:
            answer = await self.coordinator.coordinator.end_with_next_epoch(
                transactional_id, *producer, is_commit=is_commit
            )
            if answer.error is ErrorCode.NONE:
                return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
            assert answer.error in RETRIABLE, answer
            await self.clock.sleep(0.02)

    async def initialize(self, transactional_id: str) -> ProducerIdAndEpoch:
        while True:
            answer = await self.coordinator.coordinator.initialize(transactional_id, TIMEOUT_MS, None)
            if answer.error is ErrorCode.NONE:
                return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
            assert answer.error in RETRIABLE, answer
            await self.clock.sleep(0.02)

    async def transact(self, transactional_id: str, producer: ProducerIdAndEpoch) -> None:
        self.number += 1
        number = self.number
        for _ in range(self.draw.randint(1, 3)):
            chosen = self.draw.sample(PARTITIONS, self.draw.randint(1, 3))
            while True:
                added = await self.coordinator.coordinator.add_partitions(transactional_id, *producer, chosen)
                if added not in RETRIABLE:
                    break
                await self.clock.sleep(0.02)
            if added is not ErrorCode.NONE:
                assert added in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING), added
                raise FencedProducer
            for partition in chosen:
                self.data.write(partition, producer, number)
        if self.draw.random() < 0.1:
            raise FencedProducer  # it dies: its transaction is aborted by the timeout, or by the next one
        is_commit = self.draw.random() < 0.7
        while True:
            error = await self.coordinator.coordinator.end(transactional_id, *producer, is_commit=is_commit)
            if error not in RETRIABLE:
                break
            await self.clock.sleep(0.02)
        if error is ErrorCode.NONE:
            self.answered[number] = is_commit
        else:
            assert error is ErrorCode.PRODUCER_FENCED, error
            raise FencedProducer


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 22, 24, 40, 54])
def test_every_transaction_has_the_outcome_that_its_producer_was_told(seed: int) -> None:
    """The last four fail where a coordinator serves what it has loaded before it is committed."""

    async def scenario(clock: Clock) -> None:
        fleet = Fleet(clock, seed)
        producers = [clock.spawn(fleet.produce(name), name=name) for name in ("a", "b", "a")]
        await fleet.break_things()
        for producer in producers:
            await producer
        await clock.sleep(2 * TIMEOUT_MS / 1000)
        leader = fleet.brokers[fleet.leading]
        for name in ("a", "b"):
            settled = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
            assert leader.state(name) in settled
        assert all(not partition.open for partition in fleet.data.partitions.values()), "a transaction is never ended"
        torn = {number: outcomes for number, outcomes in fleet.data.outcomes.items() if len(outcomes) > 1}
        assert not torn, "committed in one partition, aborted in another"
        told = {number: is_commit for number, is_commit in fleet.answered.items() if number in fleet.data.outcomes}
        assert {number: {is_commit} for number, is_commit in told.items()} == {
            number: fleet.data.outcomes[number] for number in told
        }
        assert sum(told.values()) > 3, "transactions are committed all the same"

    in_virtual_time(scenario)


@pytest.mark.parametrize("seed", range(8))
def test_every_transaction_in_two_phases_has_the_outcome_that_was_decided(seed: int) -> None:
    async def scenario(clock: Clock) -> None:
        fleet = Fleet(clock, seed)
        producers = [clock.spawn(fleet.produce_in_two_phases(name), name=name) for name in ("a", "b")]
        await fleet.break_things()
        for producer in producers:
            await producer
        await clock.sleep(1.0)
        assert all(not partition.open for partition in fleet.data.partitions.values()), "a transaction is never ended"
        decided: dict[int, bool] = {}
        for known in fleet.decisions.values():
            decided |= known.outcomes
        assert {number: {decided[number]} for number in fleet.data.outcomes} == fleet.data.outcomes
        assert {number for number, is_commit in decided.items() if is_commit} <= fleet.data.outcomes.keys()
        assert sum(known.kept_count for known in fleet.decisions.values()) > 0, "transactions are kept"

    in_virtual_time(scenario)

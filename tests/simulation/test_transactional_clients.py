"""A simulated producer with a transactional id, on a coordinator that answers as it is told to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from simulation.checker import Checker, Violation
from simulation.client import Client, Unavailable
from simulation.transaction_oracle import TransactionOracle
from simulation.transactional_clients import TransactionalClient
from simulation.workload import Guarantees, Workload
from simulation.world import World

TOPIC = ("t", 0)
BROKER = ("10.0.0.1", 9092)
TRANSACTIONS = 20


class Coordinator:
    """Accepts everything; the first `EndTxn` and every tenth one get no response."""

    bootstrap = (BROKER,)

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.epoch = -1
        self.given_up_in: set[int] = set()
        """Producer epochs of an EndTxn without a response."""
        self.added_in: list[tuple[int, bool]] = []
        """Of every AddPartitionsToTxn: its epoch, and whether an EndTxn of that epoch may arrive yet."""
        self._ends = 0
        self.refuses_offsets = False
        """TxnOffsetCommit gets INVALID_TXN_STATE."""
        self.on_offsets: Callable[[], object] = lambda: None
        """Called with every TxnOffsetCommit."""

    def leader_of(self, partition: tuple[str, int]) -> tuple[str, int]:
        return BROKER

    async def refresh(self) -> None:
        pass

    async def request(self, address: Any, api_key: ApiKey, version: int, body: Any, *, timeout_s: float) -> Any:
        wire = codec.module(api_key)
        if api_key is ApiKey.FIND_COORDINATOR:
            if version < 4:
                return wire.FindCoordinatorResponse(host=BROKER[0], port=BROKER[1])
            return wire.FindCoordinatorResponse(coordinators=[wire.Coordinator(host=BROKER[0], port=BROKER[1])])
        if api_key is ApiKey.INIT_PRODUCER_ID:
            self.epoch += 1
            return wire.InitProducerIdResponse(producer_id=1, producer_epoch=self.epoch)
        if api_key is ApiKey.OFFSET_FETCH:
            part = wire.OffsetFetchResponsePartition(partition_index=0, committed_offset=-1)
            return wire.OffsetFetchResponse(topics=[wire.OffsetFetchResponseTopic(name="t", partitions=[part])])
        if api_key is ApiKey.PRODUCE:
            part = wire.PartitionProduceResponse(index=0, base_offset=-1)
            return wire.ProduceResponse(responses=[wire.TopicProduceResponse(name="t", partition_responses=[part])])
        if api_key is ApiKey.ADD_PARTITIONS_TO_TXN:
            epoch = body.v3_and_below_producer_epoch
            self.added_in.append((epoch, epoch in self.given_up_in))
            return wire.AddPartitionsToTxnResponse()
        if api_key is ApiKey.END_TXN:
            self._ends += 1
            if self._ends % 10 == 1:
                self.given_up_in.add(body.producer_epoch)
                raise Unavailable("no answer")
            self._workload.is_stopping = self._ends > TRANSACTIONS
            return wire.EndTxnResponse()
        if api_key is ApiKey.ADD_OFFSETS_TO_TXN:
            return wire.AddOffsetsToTxnResponse()
        self.on_offsets()
        code = ErrorCode.INVALID_TXN_STATE if self.refuses_offsets else ErrorCode.NONE
        part = wire.TxnOffsetCommitResponsePartition(partition_index=0, error_code=int(code))
        return wire.TxnOffsetCommitResponse(topics=[wire.TxnOffsetCommitResponseTopic(name="t", partitions=[part])])


def running(world: World, oracle: TransactionOracle) -> tuple[Coordinator, TransactionalClient]:
    workload = Workload(world, Checker(), Guarantees((-1,), lambda broker: 0))
    coordinator = Coordinator(workload)
    draw = world.stream("producer")
    client = cast(Client, coordinator)
    return coordinator, TransactionalClient(workload, oracle, client, "id", [TOPIC], draw, lambda: 1)


def test_no_transaction_begins_in_an_epoch_whose_end_may_arrive_yet() -> None:
    world = World(1)
    coordinator, producer = running(world, TransactionOracle())
    world.run(producer.run())
    assert coordinator.given_up_in and len(coordinator.added_in) > TRANSACTIONS / 2
    assert [epoch for epoch, is_late in coordinator.added_in if is_late] == []


def test_a_producer_that_is_being_fenced_may_be_told_that_it_has_no_transaction() -> None:
    world, oracle = World(1), TransactionOracle()
    coordinator, producer = running(world, oracle)
    coordinator.refuses_offsets = True
    coordinator.on_offsets = lambda: oracle.asks_for_an_epoch("id")
    world.run(producer.run())


def test_a_producer_that_nobody_fences_has_a_transaction() -> None:
    world = World(1)
    coordinator, producer = running(world, TransactionOracle())
    coordinator.refuses_offsets = True
    with pytest.raises(Violation, match="INVALID_TXN_STATE"):
        world.run(producer.run())

"""Transactions with a partition whose state in the coordination store cannot be read for a while."""

from __future__ import annotations

import confluent_kafka

from ottla.testing import cluster
from ottla_broker.coordination import znodes
from ottla_broker.coordination.embedded import EmbeddedCoordination
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.transactions.states import TransactionState
from tests.integration.clients.driver import LIMIT_S, await_that
from tests.integration.clients.topics import create


def test_a_transaction_ends_in_a_partition_that_was_in_no_metadata_when_it_was_aborted() -> None:
    config = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    with cluster(brokers=1, config=config) as fleet:
        create(fleet.bootstrap, "t", partitions=1, replicas=1)
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": fleet.bootstrap, "transactional.id": "id", "transaction.timeout.ms": "1000"}
        )
        producer.init_transactions(LIMIT_S)
        producer.begin_transaction()
        producer.produce("t", b"never committed", partition=0)
        assert producer.flush(LIMIT_S) == 0
        fleet.kill(0)
        assert fleet.fleet is not None and fleet.fleet._store is not None
        tool = EmbeddedCoordination(fleet.fleet._store, session_timeout_ms=60_000)
        path = znodes.PartitionStateZnode.path("t", 0)

        async def damage() -> bytes:
            await tool.start()
            data, _ = await tool.get(path)
            await tool.set(path, b"not JSON")
            return data

        async def repair() -> None:
            await tool.set(path, state)
            await tool.close()

        state = fleet.run(damage())
        fleet.start(0)
        broker = fleet.fleet.brokers[0]
        coordinator = broker._serving.parts.transactions.coordinator

        def is_aborted() -> bool:
            error, metadata = coordinator.describe("id")
            return error is ErrorCode.NONE and metadata is not None and metadata.state is not TransactionState.ONGOING

        await_that(is_aborted, "the transaction times out")
        fleet.kill(0)
        fleet.run(repair())
        fleet.start(0)
        consumer = confluent_kafka.Consumer({"bootstrap.servers": fleet.bootstrap, "group.id": "g"})
        partition = confluent_kafka.TopicPartition("t", 0)
        await_that(
            lambda: consumer.get_watermark_offsets(partition, LIMIT_S)[1] == 2,
            "the last stable offset passes the marker",
        )
        consumer.close()

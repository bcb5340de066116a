"""A real idempotent producer, librdkafka's, whose first batch is refused for now with others in flight behind it."""

from __future__ import annotations

import asyncio
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import Message, Producer

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.replication.partition import Partition
from tests.broker.replication.fleet import CLIENT, Fleet

VALUES = [str(number) for number in range(20)]


def _produce(port: int) -> list[str]:
    """Sends the values, one in each batch and five batches at a time; those that were reported as delivered."""
    delivered: list[str] = []

    def on_delivery(error: ClientError | None, message: Message) -> None:
        assert error is None, error
        delivered.append((message.value() or b"").decode())

    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "enable.idempotence": True,
            "batch.num.messages": 1,
            "enable.metrics.push": False,
        }
    )
    # They all wait for the producer id, so that the first five are sent without an answer in between.
    for value in VALUES:
        producer.produce("orders", value, partition=0, on_delivery=on_delivery)
    assert producer.flush(120) == 0
    return delivered


@pytest.mark.parametrize(
    "refusal",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
async def test_what_is_reported_as_delivered_is_in_the_log(
    one: Fleet, monkeypatch: pytest.MonkeyPatch, refusal: ErrorCode
) -> None:
    services: Any = one.nodes[1].dispatcher.services
    producer_ids = count(1000)

    async def next_for_producer() -> int:
        return next(producer_ids)

    services.producer_ids = SimpleNamespace(next_for_producer=next_for_producer)
    append = Partition.append
    appends = count()

    def refuse_the_first(partition: Partition, *batch: Any) -> Any:
        if next(appends) == 0:
            raise KafkaError(refusal)
        return append(partition, *batch)

    monkeypatch.setattr(Partition, "append", refuse_the_first)
    delivered = await asyncio.to_thread(_produce, one.nodes[1].ports[CLIENT])
    assert sorted(delivered) == sorted(VALUES)
    assert await one.values(1, "orders") == VALUES

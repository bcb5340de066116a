"""Idempotent producers of real clients, of which a batch is refused with a retriable error, with others in flight."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import Message, Producer

from ottla.local.jars import find_java, kafka_class_path
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.batch import batches
from ottla_broker.replication.partition import Partition
from tests.broker.replication.fleet import CLIENT, Fleet

VALUES = [str(number) for number in range(20)]
REFUSALS = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
]


def _produce(port: int) -> list[str]:
    """Sends the values with librdkafka, one in each batch and five batches at a time; gives what is reported as
    delivered."""
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


def _produce_with_java(port: int) -> None:
    """Sends the values with Java's client, one in each batch and five batches at a time."""
    settings = (f"bootstrap.servers=127.0.0.1:{port}", "enable.idempotence=true", "batch.size=1", "linger.ms=0")
    properties = [argument for setting in settings for argument in ("--producer-property", setting)]
    tool = ["kafka.tools.ConsoleProducer", "--topic", "orders", "--bootstrap-server", f"127.0.0.1:{port}"]
    done = subprocess.run(
        [find_java(), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", kafka_class_path(), *tool, *properties],
        input="\n".join(VALUES) + "\n",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """One broker with the topic "orders" of one partition, which has ids for producers."""
    fleet = Fleet(tmp_path)
    await fleet.start(1)
    await fleet.create("orders", (1,))
    ids = count(1000)

    async def next_for_producer() -> int:
        return next(ids)

    services: Any = fleet.nodes[1].dispatcher.services
    services.producer_ids = SimpleNamespace(next_for_producer=next_for_producer)
    yield fleet
    fleet.stop()


@pytest.fixture
def refuse_one(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, ErrorCode], None]:
    """Has the broker refuse one of the batches that come, by its number from 0."""

    def refuse(number: int, error: ErrorCode) -> None:
        append = Partition.append
        appends = count()

        def append_or_refuse(partition: Partition, *batch: Any) -> Any:
            if next(appends) == number:
                raise KafkaError(error)
            return append(partition, *batch)

        monkeypatch.setattr(Partition, "append", append_or_refuse)

    return refuse


FIRST, LATER = 0, 7
"""Numbers of batches: the log knows the producer of the later one."""


async def producers_of(fleet: Fleet) -> set[tuple[int, int]]:
    """The ids and epochs of all batches in the log."""
    found = set()
    offset = 0
    while records := (await fleet.fetch(1, "orders", offset)).records:
        for _, header in batches(records):
            found.add((header.producer_id, header.producer_epoch))
            offset = header.last_offset + 1
    return found


@pytest.mark.parametrize("number", [FIRST, LATER])
@pytest.mark.parametrize("error", REFUSALS)
async def test_what_librdkafka_reports_as_delivered_is_in_the_log(
    fleet: Fleet, refuse_one: Callable[[int, ErrorCode], None], error: ErrorCode, number: int
) -> None:
    """Without a new epoch, upon which it writes again what other partitions have and it has not heard of."""
    refuse_one(number, error)
    delivered = await asyncio.to_thread(_produce, fleet.nodes[1].ports[CLIENT])
    assert sorted(delivered) == sorted(VALUES)
    assert await fleet.values(1, "orders") == VALUES
    assert await producers_of(fleet) == {(1000, 0)}


@pytest.mark.java
@pytest.mark.parametrize("number", [FIRST, LATER])
@pytest.mark.parametrize("error", REFUSALS)
async def test_javas_client_sends_all_of_them_again_in_order(
    fleet: Fleet, refuse_one: Callable[[int, ErrorCode], None], error: ErrorCode, number: int
) -> None:
    refuse_one(number, error)
    await asyncio.to_thread(_produce_with_java, fleet.nodes[1].ports[CLIENT])
    assert await fleet.values(1, "orders") == VALUES
    assert await producers_of(fleet) == {(1000, 0)}

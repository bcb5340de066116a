"""Real consumers of a log with committed, aborted and open transactions: read_committed sees what it must, no more."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from tests.integration.clients.driver import LIMIT_S
from tests.integration.clients.java import JavaMachine
from tests.integration.clients.topics import create
from tests.integration.clients.transactions import Transactions, write_every_kind

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
DUMP = "kafka.tools.DumpLogSegments"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"

Read = Callable[[str, str, int], list[bytes]]
"""Bootstrap, topic, how many: at least so many values, and what else comes with them."""


def librdkafka(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), LIMIT_S, cached=False)
    found: list[bytes] = []
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            value = message.value()
            assert isinstance(value, bytes)
            found.append(value)
        elif len(found) >= count:
            break
    consumer.close()
    assert end >= count
    return found


def kafka_python(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap.split(","), isolation_level="read_committed")
    partition = KafkaPythonPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    found: list[bytes] = []
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        records = consumer.poll(timeout_ms=500).get(partition, [])
        found += [record.value for record in records]
        if not records and len(found) >= count:
            break
    consumer.close()
    return found


@pytest.mark.parametrize("read", [librdkafka, kafka_python], ids=["librdkafka", "kafka-python"])
def test_read_committed(bootstrap: str, internal: str, name: str, read: Read) -> None:
    create(bootstrap, name, segment_bytes="2000", index_interval_bytes="100")
    transactions = Transactions(internal, name)
    before, after = write_every_kind(transactions)
    assert read(bootstrap, name, len(before)) == before
    transactions.end(4, commit=True)
    assert read(bootstrap, name, len(after)) == after


@pytest.mark.java
def test_the_java_consumer_and_tools(bootstrap: str, internal: str, name: str, machine: JavaMachine) -> None:
    create(bootstrap, name, segment_bytes="2000", index_interval_bytes="100")
    transactions = Transactions(internal, name)
    before, after = write_every_kind(transactions)

    def console(isolation: str, count: int) -> list[bytes]:
        """The first `count` records; what must not be seen would stand among them or before them."""
        given = ("--bootstrap-server", bootstrap, "--topic", name, "--from-beginning", "--isolation-level", isolation)
        done = machine.tool(CONSOLE_CONSUMER, *given, "--max-messages", str(count), "--timeout-ms", "60000")
        return done.out.encode().splitlines()

    assert console("read_committed", len(before)) == before
    assert console("read_uncommitted", 12 * 7 + 3)[-3:] == [
        b"open 1",
        b"behind the open one",
        b"aborted behind the open one",
    ]
    described = machine.tool(
        TRANSACTIONS, "--bootstrap-server", bootstrap, "describe-producers", "--topic", name, "--partition", "0"
    )
    assert described.status == 0, described.err
    rows = {fields[0]: fields for fields in map(str.split, described.out.splitlines()[1:])}
    assert sorted(rows) == ["1", "2", "3", "4"]
    start = rows["4"][-1]
    assert start.isdigit() and rows["1"][-1] == "None"
    # Kafka's own tool for a transaction that nobody ends: it has the leader write the marker.
    given = ("--bootstrap-server", internal, "abort", "--topic", name, "--partition", "0", "--start-offset", start)
    ended = machine.tool(TRANSACTIONS, *given)
    assert ended.status == 0, ended.err
    expected = [value for value in after if value != b"open 1"]
    assert console("read_committed", len(expected)) == expected

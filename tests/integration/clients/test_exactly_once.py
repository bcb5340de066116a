"""Consume, transform, produce: offsets and records of one transaction, with every client that has transactions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka import KafkaError, KafkaException
from kafka.errors import CommitFailedError
from kafka.structs import OffsetAndMetadata

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from tests.integration.clients.driver import LIMIT_S, await_that
from tests.integration.clients.java import JavaMachine
from tests.integration.clients.topics import create, metadata
from tests.integration.wire import Wire, batch, produce_request

RECORDS = [b"%d" % number for number in range(10)]


def committed_records(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """The first `count` records of partition 0 that a read_committed consumer gets."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-of-{topic}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + LIMIT_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value())
    consumer.close()
    return found


def committed_offset(bootstrap: str, group: str, topic: str) -> int:
    """-1001 (OFFSET_INVALID) without one. librdkafka asks for stable offsets: it waits for open transactions."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    (found,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=LIMIT_S)
    consumer.close()
    offset: int = found.offset
    return offset


@pytest.fixture
def topics(bootstrap: str, name: str) -> tuple[str, str]:
    """The topic with RECORDS, and the one to which they are copied."""
    source, target = f"{name}-in", f"{name}-out"
    for topic in (source, target):
        create(bootstrap, topic)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for value in RECORDS:
        producer.produce(source, value, partition=0)
    assert producer.flush(LIMIT_S) == 0
    return source, target


def librdkafka_consumer(bootstrap: str, group: str, source: str, **config: Any) -> confluent_kafka.Consumer:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            **config,
        }
    )
    consumer.subscribe([source])
    return consumer


def librdkafka_producer(bootstrap: str, transactional_id: str) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(LIMIT_S)
    return producer


def polled(consumer: confluent_kafka.Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    deadline = time.monotonic() + LIMIT_S
    while len(found) < count:
        assert time.monotonic() < deadline, found
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(message.value())
    return found


def test_librdkafka_commits_records_and_offsets_together(bootstrap: str, name: str, topics: tuple[str, str]) -> None:
    source, target = topics
    consumer = librdkafka_consumer(bootstrap, name, source)
    producer = librdkafka_producer(bootstrap, name)

    def copy(count: int, end: Callable[[], object]) -> None:
        producer.begin_transaction()
        for value in polled(consumer, count):
            producer.produce(target, b"copy of " + value, partition=0)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), LIMIT_S
        )
        end()

    copy(4, producer.commit_transaction)
    assert committed_offset(bootstrap, name, source) == 4
    copy(3, producer.abort_transaction)
    assert committed_offset(bootstrap, name, source) == 4
    consumer.seek(confluent_kafka.TopicPartition(source, 0, 4))
    copy(6, producer.commit_transaction)
    assert committed_offset(bootstrap, name, source) == 10
    consumer.close()
    assert committed_records(bootstrap, target, 10) == [b"copy of " + value for value in RECORDS]


def test_a_consumer_that_was_replaced_cannot_commit_through_its_producer(
    bootstrap: str, name: str, topics: tuple[str, str]
) -> None:
    """KIP-447: each process has a transactional id of its own, so only the generation tells who is the zombie."""
    source, target = topics
    zombie = librdkafka_consumer(bootstrap, name, source, **{"group.instance.id": "a"})
    assert polled(zombie, 1) == RECORDS[:1]
    metadata = zombie.consumer_group_metadata()
    position = zombie.position(zombie.assignment())
    successor = librdkafka_consumer(bootstrap, name, source, **{"group.instance.id": "a"})
    assert polled(successor, 1) == RECORDS[:1]

    late = librdkafka_producer(bootstrap, f"{name}-zombie")
    late.begin_transaction()
    late.produce(target, b"of the zombie", partition=0)
    with pytest.raises(KafkaException) as refused:
        late.send_offsets_to_transaction(position, metadata, LIMIT_S)
    error: KafkaError = refused.value.args[0]
    assert error.code() == KafkaError.FENCED_INSTANCE_ID and error.txn_requires_abort()
    late.abort_transaction()

    producer = librdkafka_producer(bootstrap, f"{name}-successor")
    producer.begin_transaction()
    producer.produce(target, b"of the successor", partition=0)
    producer.send_offsets_to_transaction(
        successor.position(successor.assignment()), successor.consumer_group_metadata(), LIMIT_S
    )
    producer.commit_transaction()
    assert committed_records(bootstrap, target, 1) == [b"of the successor"]
    assert committed_offset(bootstrap, name, source) == 1
    successor.close()
    zombie.close()


def python_consumer(bootstrap: str, group: str, source: str) -> kafka.KafkaConsumer:
    return kafka.KafkaConsumer(
        source,
        bootstrap_servers=bootstrap.split(","),
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=3,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=500,
    )


def python_producer(bootstrap: str, transactional_id: str) -> kafka.KafkaProducer:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap.split(","), transactional_id=transactional_id)
    producer.init_transactions()
    return producer


def python_polled(consumer: kafka.KafkaConsumer) -> list[bytes]:
    """The next records, at least one."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        found = [record.value for records in consumer.poll(timeout_ms=500).values() for record in records]
        if found:
            return found
    raise AssertionError("no records")


def test_kafka_python_commits_records_and_offsets_together(bootstrap: str, name: str, topics: tuple[str, str]) -> None:
    source, target = topics
    consumer, producer = python_consumer(bootstrap, name, source), python_producer(bootstrap, name)
    partition = kafka.TopicPartition(source, 0)

    def copy() -> list[bytes]:
        values = [b"copy of " + value for value in python_polled(consumer)]
        producer.begin_transaction()
        for value in values:
            producer.send(target, value, partition=0)
        offset = OffsetAndMetadata(consumer.position(partition), "", -1)
        producer.send_offsets_to_transaction({partition: offset}, consumer.group_metadata())
        return values

    first = copy()
    producer.commit_transaction()
    assert committed_offset(bootstrap, name, source) == len(first)
    second = copy()
    producer.abort_transaction()
    assert committed_offset(bootstrap, name, source) == len(first)
    third = copy()
    producer.commit_transaction()
    assert committed_offset(bootstrap, name, source) == len(first + second + third)
    assert committed_records(bootstrap, target, len(first + third)) == first + third
    consumer.close()
    producer.close()


def test_a_member_of_an_older_generation_cannot_commit(bootstrap: str, name: str, topics: tuple[str, str]) -> None:
    source, _ = topics
    consumer, producer = python_consumer(bootstrap, name, source), python_producer(bootstrap, name)
    python_polled(consumer)
    metadata = consumer.group_metadata()
    offsets = {kafka.TopicPartition(source, 0): OffsetAndMetadata(3, "", -1)}
    for stale in (
        metadata._replace(generation_id=metadata.generation_id - 1),
        metadata._replace(member_id="somebody else"),
    ):
        producer.begin_transaction()
        with pytest.raises(CommitFailedError):
            producer.send_offsets_to_transaction(offsets, stale)
        producer.abort_transaction()
    producer.begin_transaction()
    producer.send_offsets_to_transaction(offsets, metadata)
    producer.commit_transaction()
    assert committed_offset(bootstrap, name, source) == 3
    consumer.close()
    producer.close()


@pytest.mark.java
def test_java_commits_records_and_offsets_together(
    bootstrap: str, name: str, topics: tuple[str, str], machine: JavaMachine
) -> None:
    source, target = topics
    config = {
        "group.id": name,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
        "max.poll.records": "3",
        "isolation.level": "read_committed",
    }

    def copy(*, commit: bool) -> list[bytes]:
        answer = machine.ask(
            "copy",
            bootstrap=bootstrap,
            config=config,
            source=source,
            target=target,
            transactionalId=name,
            count=3,
            commit=commit,
        )
        return [value.encode() for value in answer["values"]]

    assert copy(commit=True) == RECORDS[:3]
    assert committed_offset(bootstrap, name, source) == 3
    assert copy(commit=False) == RECORDS[3:6]
    assert committed_offset(bootstrap, name, source) == 3
    assert copy(commit=True) == RECORDS[3:6], "the next one begins where the last committed transaction ended"
    assert committed_offset(bootstrap, name, source) == 6
    assert committed_records(bootstrap, target, 6) == RECORDS[:6]


async def test_aiokafka_commits_records_and_offsets_together(
    bootstrap: str, name: str, topics: tuple[str, str]
) -> None:
    """It names the group alone, as producers did before KIP-447."""
    source, target = topics
    partition = aiokafka.TopicPartition(source, 0)
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name) as producer:
        async with producer.transaction():
            await producer.send(target, b"committed", partition=0)
            await producer.send_offsets_to_transaction({partition: 4}, name)
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send_and_wait(target, b"aborted", partition=0)
                await producer.send_offsets_to_transaction({partition: 7}, name)
                raise ZeroDivisionError
    assert committed_offset(bootstrap, name, source) == 4
    assert committed_records(bootstrap, target, 1) == [b"committed"]


@pytest.mark.parametrize(("version", "expected"), [(10, "INVALID_TXN_STATE"), (11, "TRANSACTION_ABORTABLE")])
def test_a_batch_for_a_partition_that_is_not_in_the_transaction_is_refused(
    bootstrap: str, name: str, topics: tuple[str, str], version: int, expected: str
) -> None:
    source, target = topics
    address = bootstrap.split(",")[0]
    init = codec.module(ApiKey.INIT_PRODUCER_ID)
    adds = codec.module(ApiKey.ADD_PARTITIONS_TO_TXN)
    find = codec.module(ApiKey.FIND_COORDINATOR)
    addresses = dict(enumerate(bootstrap.split(",")))

    def produce(topic: str, sequence: int) -> ErrorCode:
        records = batch(
            b"v",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            attributes=0x10,
        )
        request = produce_request(topic, records)
        request.transactional_id = name
        with Wire(address) as wire:
            leader = addresses[metadata(wire, topic)[0]]
        with Wire(leader) as wire:
            answer = wire.ask(ApiKey.PRODUCE, version, request)
        return ErrorCode.of(answer.responses[0].partition_responses[0].error_code)

    with Wire(address) as wire:
        asked = find.FindCoordinatorRequest(key_type=1, coordinator_keys=[name])

        def is_known() -> bool:
            return wire.ask(ApiKey.FIND_COORDINATOR, 4, asked).coordinators[0].error_code == 0

        await_that(is_known, "the coordinator is known")
        coordinator = addresses[wire.ask(ApiKey.FIND_COORDINATOR, 4, asked).coordinators[0].node_id]
    with Wire(coordinator) as wire:
        asked = init.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        await_that(
            lambda: wire.ask(ApiKey.INIT_PRODUCER_ID, 5, asked).error_code == 0, "the coordinator has been loaded"
        )
        producer = wire.ask(ApiKey.INIT_PRODUCER_ID, 5, asked)
        added = wire.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            adds.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=[adds.AddPartitionsToTxnTopic(name=source, partitions=[0])],
            ),
        )
        assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    assert produce(source, 0) is ErrorCode.NONE
    assert produce(target, 0).name == expected

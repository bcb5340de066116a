"""At least once, without Spark: rows of a task against real brokers, also while leaders go away."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ottla.testing import RunningCluster, cluster
from ottla_pipeline.errors import RecordError, UnknownTopic

pytest.importorskip("pyarrow")

import pyarrow as pa

from ottla_pipeline.sink.task import send_rows
from ottla_pipeline.sink.write_options import parse_write_options


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningCluster]:
    with cluster(brokers=3, racks=3, config={"auto.create.topics.enable": "false"}) as found:
        yield found


def topic(fleet: RunningCluster, name: str, partitions: int = 4, *, replicas: int = 3, **config: str) -> str:
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    admin.create_topics([NewTopic(name, partitions, replicas, config=config)])[name].result(60)
    return name


def read_all(fleet: RunningCluster, name: str, partitions: int = 4) -> list[tuple[int, bytes | None, bytes]]:
    """(partition, key, value) of all committed records."""
    consumer = Consumer({
        "bootstrap.servers": fleet.bootstrap, "group.id": "reader", "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "isolation.level": "read_committed", "enable.partition.eof": True,
    })  # fmt: skip
    consumer.assign([TopicPartition(name, number, 0) for number in range(partitions)])
    found: list[tuple[int, bytes | None, bytes]] = []
    ended: set[int] = set()
    while len(ended) < partitions:
        message = consumer.poll(60)
        assert message is not None, "no answer"
        if message.error():
            ended.add(message.partition())
        else:
            found.append((message.partition(), message.key(), message.value()))
    consumer.close()
    return found


def rows(count: int, first: int = 0, size: int = 0) -> pa.RecordBatch:
    numbers = [b"%d" % number for number in range(first, first + count)]
    return pa.RecordBatch.from_pydict({"key": numbers, "value": [number.ljust(size, b".") for number in numbers]})


def send(fleet: RunningCluster, batches: list[pa.RecordBatch], **options: str) -> int:
    given = {"kafka.bootstrap.servers": fleet.bootstrap, "guarantee": "at-least-once", **options}
    return send_rows(batches, parse_write_options(given))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_rows_arrive_in_the_partitions_of_their_keys(fleet: RunningCluster, codec: str) -> None:
    name = topic(fleet, f"plain-{codec}")
    batches = [rows(500, 500 * number, 300) for number in range(10)]
    assert send(fleet, batches, topic=name, **{"kafka.compression.type": codec}) == 5000
    found = read_all(fleet, name)
    assert sorted(int(value.rstrip(b".")) for _, _, value in found) == list(range(5000))
    assert {partition for partition, _, _ in found} == {0, 1, 2, 3}


def test_batches_that_a_topic_finds_too_large_are_split(fleet: RunningCluster) -> None:
    name = topic(fleet, "small-batches", **{"max.message.bytes": "5000"})
    assert send(fleet, [rows(300, 0, 1000)], topic=name) == 300
    assert Counter(int(value.rstrip(b".")) for _, _, value in read_all(fleet, name)) == Counter(range(300))


def test_a_record_that_a_topic_finds_too_large_is_one_error(fleet: RunningCluster) -> None:
    name = topic(fleet, "small-records", **{"max.message.bytes": "500"})
    with pytest.raises(RecordError, match=r"batch of 1 records .* is refused: small-records-\d: MESSAGE_TOO_LARGE"):
        send(fleet, [rows(3, 0, 1000)], topic=name)


def test_a_topic_that_does_not_exist_is_one_error(fleet: RunningCluster) -> None:
    with pytest.raises(UnknownTopic, match=r"topic 'nowhere' does not exist at 127.0.0.1:"):
        send(fleet, [rows(3)], topic="nowhere")
    with pytest.raises(UnknownTopic, match="'no/name' is no name that a topic can have"):
        send(fleet, [rows(3)], topic="no/name")


def test_brokers_that_create_topics_create_the_one_that_is_written_to() -> None:
    with cluster(brokers=1, config={"num.partitions": "2", "default.replication.factor": "1"}) as alone:
        assert send(alone, [rows(100)], topic="made") == 100
        assert len(read_all(alone, "made", 2)) == 100


@pytest.mark.parametrize("idempotent", ["true", "false"])
def test_every_row_arrives_while_each_broker_is_killed_in_turn(fleet: RunningCluster, idempotent: str) -> None:
    name = topic(fleet, f"killed-{idempotent}", 6)
    passed = threading.Semaphore(0)
    count = 40

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(count):
            passed.release()
            yield rows(2000, 2000 * number, 300)

    failed: list[BaseException] = []

    def write() -> None:
        try:
            given = {
                "kafka.bootstrap.servers": fleet.bootstrap, "guarantee": "at-least-once", "topic": name,
                "kafka.enable.idempotence": idempotent, "kafka.batch.size": "20000", "kafka.buffer.memory": "500000",
            }  # fmt: skip
            send_rows(batches(), parse_write_options(given))
        except BaseException as error:
            failed.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    for broker in (0, 1, 2):
        for _ in range(count // 5):
            passed.acquire()
        fleet.kill(broker)
        fleet.start(broker)
    writer.join()
    assert failed == []
    found = Counter(int(value.rstrip(b".")) for _, _, value in read_all(fleet, name, 6))
    assert set(found) == set(range(2000 * count))
    if idempotent == "true":
        assert set(found.values()) == {1}

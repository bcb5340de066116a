"""Several log directories, as clients and administrators see them: the location of replicas and their moves."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]
from kafka import KafkaAdminClient

from ottla.testing import RunningCluster, cluster
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from tests.integration.broker_errors import BrokerErrors, broker_errors
from tests.integration.clients.driver import LIMIT_S, await_that
from tests.integration.clients.topics import create
from tests.integration.wire import Wire
from tests.watermarks import watermarks

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
CORDONED = "cordoned.log.dirs"


@pytest.fixture(scope="module")
def errors() -> Iterator[BrokerErrors]:
    with broker_errors() as found:
        yield found


@pytest.fixture(scope="module")
def fleet(errors: BrokerErrors) -> Iterator[RunningCluster]:
    with cluster(brokers=3, racks=3, disks=2, config={"min.insync.replicas": "2"}) as found:
        yield found


@dataclass(frozen=True)
class Found:
    """One log as DescribeLogDirs shows it."""

    path: str
    size: int
    lag: int
    is_future: bool


def described(fleet: RunningCluster, broker: int, topic: str | None, index: int = 0, version: int = 4) -> list[Found]:
    api = codec.module(ApiKey.DESCRIBE_LOG_DIRS)
    topics = None if topic is None else [api.DescribableLogDirTopic(topic=topic, partitions=[index])]
    with Wire(fleet.address(broker)) as wire:
        answer = wire.ask(ApiKey.DESCRIBE_LOG_DIRS, version, api.DescribeLogDirsRequest(topics=topics))
    assert [result.error_code for result in answer.results] == [0, 0]
    assert [result.log_dir for result in answer.results] == paths(fleet, broker)
    for result in answer.results:
        assert version < 4 or 0 < result.usable_bytes <= result.total_bytes
    return [
        Found(result.log_dir, part.partition_size, part.offset_lag, part.is_future_key)
        for result in answer.results
        for found in result.topics
        for part in found.partitions
    ]


def paths(fleet: RunningCluster, broker: int) -> list[str]:
    return [str(fleet.data / f"broker-{broker}" / name) for name in ("d0", "d1")]


def home(fleet: RunningCluster, broker: int, topic: str, index: int = 0) -> str:
    (path,) = [found.path for found in described(fleet, broker, topic, index) if not found.is_future]
    return path


def other(fleet: RunningCluster, broker: int, path: str) -> str:
    (found,) = [one for one in paths(fleet, broker) if one != path]
    return found


def move(fleet: RunningCluster, broker: int, topic: str, path: str, index: int = 0, version: int = 2) -> ErrorCode:
    api = codec.module(ApiKey.ALTER_REPLICA_LOG_DIRS)
    named = api.AlterReplicaLogDirTopic(name=topic, partitions=[index])
    request = api.AlterReplicaLogDirsRequest(dirs=[api.AlterReplicaLogDir(path=path, topics=[named])])
    with Wire(fleet.address(broker)) as wire:
        answer = wire.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, version, request)
    (result,) = answer.results
    (part,) = result.partitions
    assert (result.topic_name, part.partition_index) == (topic, index)
    return ErrorCode.of(part.error_code)


def configure(fleet: RunningCluster, broker: str, name: str, value: str | None, *, at: int = 0) -> str:
    """Of one broker, or of all for ""; gives what the broker has against it.

    In force at the broker that was asked, `at` for those of all: the others hear of it a little later.
    """
    api = codec.module(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    change = api.AlterableConfig(name=name, config_operation=1 if value is None else 0, value=value)
    resource = api.AlterConfigsResource(resource_type=4, resource_name=broker, configs=[change])
    with Wire(fleet.address(int(broker or at))) as wire:
        request = api.IncrementalAlterConfigsRequest(resources=[resource])
        answer = wire.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
    (result,) = answer.responses
    return result.error_message or ""


def produce(fleet: RunningCluster, topic: str, count: int, size: int = 10, partitions: int = 1) -> None:
    producer = Producer({"bootstrap.servers": fleet.bootstrap, "acks": "all", "linger.ms": 1, "batch.size": 4000})
    for number in range(count):
        producer.produce(topic, b"%d" % number + bytes(size), partition=number % partitions)
    assert producer.flush(LIMIT_S) == 0


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return request.node.name.replace("[", "-").replace("]", "")[-100:]


def test_every_version_describes_and_moves(fleet: RunningCluster, name: str) -> None:
    create(fleet.bootstrap, name)
    produce(fleet, name, 5)
    for version in range(5):
        (found,) = described(fleet, 0, name, version=version)
        assert not found.is_future and found.size > 50 and found.lag == 0
        assert len(described(fleet, 0, None, version=version)) >= 1
    assert described(fleet, 0, name, index=1) == []
    for version in range(3):
        path = other(fleet, 0, home(fleet, 0, name))
        assert move(fleet, 0, name, path, version=version) is ErrorCode.NONE
        await_that(lambda: home(fleet, 0, name) == path, "the replica has moved")  # noqa: B023
        assert move(fleet, 0, name, path + "/", version=version) is ErrorCode.NONE  # it is there


def test_a_move_that_cannot_be_is_refused(fleet: RunningCluster, name: str) -> None:
    create(fleet.bootstrap, name)
    assert move(fleet, 0, name, "/no/such/directory") is ErrorCode.LOG_DIR_NOT_FOUND
    assert move(fleet, 0, name, paths(fleet, 1)[0]) is ErrorCode.LOG_DIR_NOT_FOUND
    assert move(fleet, 0, "x" * 240, paths(fleet, 0)[0]) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert move(fleet, 0, name, paths(fleet, 0)[0], index=7) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(fleet, 0, f"{name}-none", paths(fleet, 0)[0]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_replica_is_born_where_it_was_told_to_be(fleet: RunningCluster, name: str) -> None:
    """That is how kafka-reassign-partitions places a new replica: the error is expected, the wish remembered. For a
    topic that does not exist yet the error is another one."""
    wished = {broker: paths(fleet, broker)[broker % 2] for broker in range(3)}
    for broker, path in wished.items():
        for index in range(4):
            assert move(fleet, broker, name, path, index) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    create(fleet.bootstrap, name, partitions=4)
    for broker, path in wished.items():
        assert [home(fleet, broker, name, index) for index in range(4)] == [path] * 4


def test_leaders_and_followers_move_under_load_unnoticed(fleet: RunningCluster, name: str) -> None:
    """Every replica to and fro: no refused request, no record lost, twice or out of order, and none that moves."""
    create(fleet.bootstrap, name, partitions=2, segment_bytes="100000")
    produce(fleet, name, 500, size=500, partitions=2)
    before = moves_done(fleet, 0)
    settings = {"enable.idempotence": True, "linger.ms": 0, "batch.size": 16_000}
    producer = Producer({"bootstrap.servers": fleet.bootstrap, **settings})
    refused: list[Any] = []
    is_over = threading.Event()
    sent = [500]

    def keep_producing() -> None:
        while not is_over.is_set():
            number = sent[0]
            value = b"%d" % number + bytes(500)
            producer.produce(
                name, value, partition=number % 2, on_delivery=lambda error, _: error and refused.append(error)
            )
            sent[0] = number + 1
            producer.poll(0)
            if number % 4 == 0:
                time.sleep(0.004)  # every move copies everything so far: on a busy machine that is to have an end

    load = threading.Thread(target=keep_producing)
    load.start()
    try:
        for _round in range(2):
            for index in range(2):
                for broker in range(3):
                    path = other(fleet, broker, home(fleet, broker, name, index))
                    assert move(fleet, broker, name, path, index) is ErrorCode.NONE
                    await_that(
                        lambda broker=broker, index=index, path=path: home(fleet, broker, name, index) == path,
                        "the replica has moved",
                    )
    finally:
        is_over.set()
        load.join()
    assert producer.flush(LIMIT_S) == 0 and refused == []
    read = read_all(fleet, name, 2)
    for index in range(2):
        assert read[index] == list(range(index, sent[0], 2))
    assert moves_done(fleet, 0) == before + 4
    await_that(lambda: in_sync(fleet, name) == [3, 3], "all replicas are in sync")


def moves_done(fleet: RunningCluster, broker: int) -> int:
    with urllib.request.urlopen(f"http://{fleet.http(broker)}/metrics", timeout=LIMIT_S) as answer:
        metrics = answer.read().decode()
    (done,) = [line for line in metrics.splitlines() if line.startswith("ottla_future_replica_swaps_total")]
    return int(float(done.split()[-1]))


def read_all(fleet: RunningCluster, topic: str, partitions: int) -> list[list[int]]:
    consumer = Consumer({"bootstrap.servers": fleet.bootstrap, "group.id": topic, "enable.partition.eof": False})
    read: list[list[int]] = []
    for index in range(partitions):
        _, end = watermarks(consumer, topic, index)
        consumer.assign([TopicPartition(topic, index, 0)])
        numbers: list[int] = []
        while len(numbers) < end:
            found = consumer.consume(min(1000, end - len(numbers)), LIMIT_S)
            assert found, f"{len(numbers)} of {end} records of {topic}-{index} can be read"
            for message in found:
                assert message.error() is None, message.error()
                value = message.value()
                assert value is not None
                numbers.append(int(value.rstrip(b"\0")))
        read.append(numbers)
    consumer.close()
    return read


def in_sync(fleet: RunningCluster, topic: str) -> list[int]:
    described = AdminClient({"bootstrap.servers": fleet.bootstrap}).list_topics(topic, timeout=LIMIT_S).topics[topic]
    return [len(part.isrs) for part in described.partitions.values()]


def test_a_throttled_move_shows_how_far_it_is_and_survives_a_crash(fleet: RunningCluster, name: str) -> None:
    create(fleet.bootstrap, name, segment_bytes="20000")
    produce(fleet, name, 300, size=200)
    assert configure(fleet, "", RATE, "1000", at=1) == ""
    try:
        path = home(fleet, 1, name)
        assert move(fleet, 1, name, other(fleet, 1, path)) is ErrorCode.NONE
        copy = begun_copy(fleet, 1, name, 300)
        assert copy.path == other(fleet, 1, path) and copy.size > 0
        assert move(fleet, 1, name, path) is ErrorCode.NONE
        assert futures(fleet, 1, name) == []  # the move is cancelled
        assert move(fleet, 1, name, copy.path) is ErrorCode.NONE
        begun_copy(fleet, 1, name, 300)
        fleet.kill(1)
        fleet.start(1)
        await_that(lambda: any(found.lag >= 0 for found in futures(fleet, 1, name)), "it goes on after the crash")
        assert home(fleet, 1, name) == path
    finally:
        configure(fleet, "", RATE, None, at=1)
    await_that(lambda: home(fleet, 1, name) == copy.path, "unthrottled it arrives")
    await_that(lambda: in_sync(fleet, name) == [3], "the replica is in sync")
    assert read_all(fleet, name, 1) == [list(range(300))]


def begun_copy(fleet: RunningCluster, broker: int, topic: str, records: int) -> Found:
    """The copy, as soon as some of the records are written to it, though not all; its size grows a moment before."""
    found: list[Found] = []

    def has_begun() -> bool:
        found[:] = futures(fleet, broker, topic)
        return any(0 < copy.lag < records for copy in found)

    await_that(has_begun, "the copy has begun")
    (copy,) = found
    return copy


def futures(fleet: RunningCluster, broker: int, topic: str) -> list[Found]:
    return [found for found in described(fleet, broker, topic) if found.is_future]


def test_a_cordoned_directory_takes_nothing_new_and_keeps_what_it_has(fleet: RunningCluster, name: str) -> None:
    create(fleet.bootstrap, f"{name}-before", partitions=4)
    cordoned, free = paths(fleet, 2)
    there = [index for index in range(4) if home(fleet, 2, f"{name}-before", index) == cordoned]
    assert there
    assert "/no/such/directory is none of them" in configure(fleet, "2", CORDONED, "/no/such/directory")
    assert "for the whole cluster" in configure(fleet, "", CORDONED, cordoned)
    assert configure(fleet, "2", CORDONED, cordoned) == ""
    try:
        create(fleet.bootstrap, name, partitions=6)
        assert {home(fleet, 2, name, index) for index in range(6)} == {free}
        assert move(fleet, 2, name, cordoned) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        produce(fleet, f"{name}-before", 8, partitions=4)
        assert move(fleet, 2, f"{name}-before", free, there[0]) is ErrorCode.NONE
        await_that(lambda: home(fleet, 2, f"{name}-before", there[0]) == free, "it is drained")
    finally:
        configure(fleet, "2", CORDONED, None)
    create(fleet.bootstrap, f"{name}-after", partitions=6)
    assert cordoned in {home(fleet, 2, f"{name}-after", index) for index in range(6)}


def test_kafka_python_moves_and_describes(fleet: RunningCluster, name: str) -> None:
    create(fleet.bootstrap, name)
    admin = KafkaAdminClient(bootstrap_servers=fleet.bootstrap.split(","))
    path = other(fleet, 0, home(fleet, 0, name))
    ((replica, error),) = admin.alter_replica_log_dirs({(name, 0, 0): path}).items()
    assert (replica.topic, replica.partition, replica.broker_id, error.errno) == (name, 0, 0, 0)
    await_that(lambda: home(fleet, 0, name) == path, "the replica has moved")
    for answer in admin.describe_log_dirs({name: [0]}):
        found = [entry for entry in answer["log_dirs"] if entry["topics"]]
        assert len(answer["log_dirs"]) == 2 and len(found) == 1
    admin.close()


def test_the_brokers_complained_about_nothing(errors: BrokerErrors) -> None:
    errors.check()

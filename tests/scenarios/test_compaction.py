"""Compaction with real processes: kill -9 during cleanings, and Apache Kafka's tools on the result."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.local.jars import find_java, kafka_class_path
from ottla.local.zookeeper_server import ZooKeeperServer
from tests.integration.apache_kafka import complaints, dumped
from tests.integration.processes import BrokerProcess

pytestmark = pytest.mark.java

TOPIC = "accounts"
LIMIT_S = 120.0
KEYS = 40
LIVES = 5
ROUND = 600
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "10000",
    "min.cleanable.dirty.ratio": "0.01",
    "compression.type": "producer",
}


@pytest.fixture
def broker(zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[BrokerProcess]:
    chroot = f"{zookeeper.connect}/{tmp_path.name}"
    made = BrokerProcess(
        tmp_path / "broker",
        0,
        chroot,
        {"log.cleaner.backoff.ms": "20", "offsets.topic.segment.bytes": "1000", "offsets.topic.num.partitions": "1"},
    )
    try:
        made.start()
        yield made
    finally:
        made.close()


def _produce(bootstrap: str, draw: random.Random, state: dict[bytes, tuple[int, bytes | None]]) -> None:
    """Updates and deletions of a few keys; what is acknowledged is taken down by key, with its offset."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.num.messages": 20,
            "compression.type": "lz4",
        }
    )

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        key, offset = message.key(), message.offset()
        assert key is not None and offset is not None
        if offset > state.get(key, (-1, None))[0]:
            state[key] = (offset, message.value())

    for number in range(ROUND):
        key = b"account %d" % draw.randrange(KEYS)
        value = None if draw.random() < 0.1 else b"balance %d " % number * draw.randrange(1, 20)
        producer.produce(TOPIC, key=key, value=value, partition=0, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(LIMIT_S) == 0


def _consume(bootstrap: str) -> list[tuple[int, bytes, bytes | None]]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "enable.partition.eof": True, "check.crcs": True}
    )
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    found: list[tuple[int, bytes, bytes | None]] = []
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            break
        offset, key = message.offset(), message.key()
        assert offset is not None and key is not None
        found.append((offset, key, message.value()))
    consumer.close()
    return found


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.02)


def _until_cleaned(broker: BrokerProcess, beyond: int) -> None:
    """Until the cleaner's checkpoint tells of a higher offset."""
    checkpoint = broker.log_dirs[0] / "cleaner-offset-checkpoint"

    def is_cleaned() -> bool:
        lines = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
        entries = [line.split() for line in lines]
        return any(topic == TOPIC and int(offset) > beyond for topic, _, offset in entries)

    _until(is_cleaned, f"compaction beyond {beyond}")


def test_a_compacted_topic_survives_kill_9_in_the_middle_of_cleanings(broker: BrokerProcess) -> None:
    draw = random.Random(7)
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=COMPACTED)])[TOPIC].result(LIMIT_S)
    state: dict[bytes, tuple[int, bytes | None]] = {}
    for _ in range(LIVES):
        _produce(broker.address, draw, state)
        time.sleep(draw.random() * 0.3)  # the cleaner is somewhere: any moment will do
        broker.kill()
        folder = broker.log_dirs[0] / f"{TOPIC}-0"
        left = [path.name for path in folder.iterdir()]
        broker.start()
        # Not at once: the cleaner is at work again, and may have one of its own for a moment.
        _until(lambda folder=folder: not list(folder.glob("*.swap")), f"{left} is put in order")
    _produce(broker.address, draw, state)
    _until_cleaned(broker, LIVES * ROUND - 1)
    seen = _consume(broker.address)
    offsets = [offset for offset, _, _ in seen]
    assert offsets == sorted(set(offsets))
    assert len(seen) < LIVES * ROUND
    assert {key: (offset, value) for offset, key, value in seen} == state
    assert "cannot be compacted" not in broker.log

    broker.stop()
    assert complaints(dumped(broker.log_dirs[0])) == []


def test_the_console_consumer_reads_a_compacted_topic(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config={**COMPACTED, "segment.ms": "100"})])[TOPIC].result(LIMIT_S)
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
    now_ms = int(time.time() * 1000)
    for address in ("bill@microsoft.com", "bill@gatesfoundation.org", "bill@gmail.com"):
        producer.produce(TOPIC, key=b"123", value=address.encode(), timestamp=now_ms)
        assert producer.flush(LIMIT_S) == 0
    # Later by more than segment.ms: this record begins a segment.
    producer.produce(TOPIC, key=b"end", value=b"of the topic", timestamp=now_ms + 200)
    assert producer.flush(LIMIT_S) == 0
    _until_cleaned(broker, 2)
    tool = ["org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", broker.address, "--topic", TOPIC]
    arguments = ["--from-beginning", "--max-messages", "2", "--property", "print.offset=true"]
    ran = subprocess.run(
        [find_java(), "-cp", kafka_class_path(), *tool, *arguments, "--property", "print.key=true"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ran.stdout.splitlines() == ["Offset:2\t123\tbill@gmail.com", "Offset:3\tend\tof the topic"], ran.stderr


def test_groups_are_found_again_when_their_topic_has_been_compacted(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(LIMIT_S)
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "readers"})
    for offset in range(1, 200):
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
    checkpoint = broker.log_dirs[0] / "cleaner-offset-checkpoint"
    _until(
        lambda: checkpoint.exists() and "__consumer_offsets" in checkpoint.read_text(), "the offsets topic is compacted"
    )
    consumer.close()
    broker.kill()
    broker.start()
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "readers"})
    assert [one.offset for one in consumer.committed([TopicPartition(TOPIC, 0)], timeout=LIMIT_S)] == [199]
    consumer.close()

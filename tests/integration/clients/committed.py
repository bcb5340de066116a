"""What a read_committed consumer sees of a whole topic."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.integration.clients.driver import LIMIT_S


def read_committed(bootstrap: str, topic: str, partitions: int) -> list[bytes]:
    """Every value up to the last stable offset of each partition, which is awaited to be the end of the log."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: list[bytes] = []
    at_end: set[int] = set()
    deadline = time.monotonic() + LIMIT_S
    while len(at_end) < partitions:
        assert time.monotonic() < deadline, (topic, at_end, len(found))
        message = consumer.poll(0.5)
        if message is None:
            continue
        error = message.error()
        if error is None:
            value = message.value()
            assert isinstance(value, bytes)
            found.append(value)
        elif error.code() == KafkaError._PARTITION_EOF:
            at_end.add(message.partition() or 0)
    consumer.close()
    return sorted(found)

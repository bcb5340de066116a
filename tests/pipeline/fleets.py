"""Topics and records of a running fleet, for the tests of pipelines."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ottla.testing import RunningCluster


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def admin_of(fleet: RunningCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": fleet.bootstrap})


def create(fleet: RunningCluster, topic: str, partitions: int = 2, replicas: int = 1, **config: str) -> None:
    """Creates a topic, and waits until every broker knows all of its leaders."""
    admin = admin_of(fleet)
    wanted = NewTopic(
        topic, partitions, replicas, config={key.replace("_", "."): value for key, value in config.items()}
    )

    def is_created() -> bool:
        try:
            admin.create_topics([wanted])[topic].result(60)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False  # its predecessor is still being deleted
        return True

    until(is_created, f"{topic} is created")
    wait_for_partitions(fleet, topic, partitions)


def wait_for_partitions(fleet: RunningCluster, topic: str, partitions: int) -> None:
    """Until every broker knows all leaders of a topic."""
    for broker in fleet.running:
        one = AdminClient({"bootstrap.servers": fleet.address(broker)})

        def knows(one: AdminClient = one) -> bool:
            found = one.list_topics(topic, timeout=60).topics[topic].partitions
            return len(found) == partitions and all(entry.leader >= 0 for entry in found.values())

        until(knows, f"{broker} knows {topic}")


def delete(fleet: RunningCluster, topic: str) -> None:
    """Deletes a topic, and waits until no broker knows it."""
    admin = admin_of(fleet)
    admin.delete_topics([topic])[topic].result(60)
    for broker in fleet.running:
        one = AdminClient({"bootstrap.servers": fleet.address(broker)})

        def is_gone(one: AdminClient = one) -> bool:
            return topic not in one.list_topics(timeout=60).topics

        until(is_gone, f"{broker} has forgotten {topic}")


def produce(fleet: RunningCluster, topic: str, counts: dict[int, int], *, size: int = 0, **config: Any) -> None:
    """Writes so many records to each partition, with the values 0, 1, ... filled up to a size."""
    producer = Producer({"bootstrap.servers": fleet.bootstrap, "acks": "all", **config})
    for partition, count in counts.items():
        for number in range(count):
            producer.produce(topic, value=(b"%d" % number).ljust(size), partition=partition)
    assert producer.flush(60) == 0

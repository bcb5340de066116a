"""Consumer groups on a running fleet, with a real client (librdkafka)."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.testing import cluster
from ottla.testing.cluster import RunningCluster

DEADLINE_S = 120.0
PARTITIONS = 4
RECORDS = 200


def until(is_reached: Callable[[], bool], *consumers: Consumer) -> None:
    """Polls the consumers until it is; a poll waits for the broker, so nothing here sleeps."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_reached():
        assert time.monotonic() < deadline, "not reached in time"
        for consumer in consumers:
            consumer.poll(0.05)


def consumer_of(fleet: RunningCluster, group: str, **config: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": fleet.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "session.timeout.ms": "45000",
            "heartbeat.interval.ms": "200",
            "topic.metadata.refresh.interval.ms": "1000",  # the first broker asked may not have heard of the topic
            "log_level": "0",
            **{key.replace("_", "."): value for key, value in config.items()},
        }
    )


def test_members_share_partitions_and_another_coordinator_goes_on_where_one_died() -> None:
    with cluster(brokers=3) as fleet:
        admin = AdminClient({"bootstrap.servers": fleet.bootstrap, "log_level": "0"})
        for created in admin.create_topics([NewTopic("t", PARTITIONS, 3)]).values():
            created.result(DEADLINE_S)
        producer = Producer({"bootstrap.servers": fleet.bootstrap, "enable.idempotence": True, "log_level": "0"})
        for number in range(RECORDS):
            producer.produce("t", b"%d" % number, partition=number % PARTITIONS)
        assert producer.flush(DEADLINE_S) == 0

        first = consumer_of(fleet, "g", group_instance_id="first")
        second = consumer_of(fleet, "g", group_instance_id="second")
        first.subscribe(["t"])
        until(lambda: len(first.assignment()) == PARTITIONS, first)
        second.subscribe(["t"])
        until(lambda: len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2, first, second)

        offsets = [TopicPartition("t", partition, 10 + partition) for partition in range(PARTITIONS)]
        for consumer in (first, second):
            mine = {assigned.partition for assigned in consumer.assignment()}
            consumer.commit(offsets=[offset for offset in offsets if offset.partition in mine], asynchronous=False)
        described = admin.describe_consumer_groups(["g"])["g"].result(DEADLINE_S)
        assert sorted(member.group_instance_id for member in described.members) == ["first", "second"]

        assert described.coordinator is not None
        fleet.kill(described.coordinator.id)

        def has_moved() -> bool:
            try:
                found = first.committed([TopicPartition("t", partition) for partition in range(PARTITIONS)], 2.0)
            except KafkaException:
                return False
            return [(each.partition, each.offset) for each in found] == [(p, 10 + p) for p in range(PARTITIONS)]

        until(has_moved, first, second)

        def commits_again() -> bool:
            try:
                partition = first.assignment()[0].partition
                first.commit(offsets=[TopicPartition("t", partition, 40)], asynchronous=False)
            except (KafkaException, IndexError):
                return False
            return first.committed([TopicPartition("t", partition)], 2.0)[0].offset == 40

        until(commits_again, first, second)
        first.close()
        second.close()

"""Offsets that a group coordinator of one kind has taken in a transaction, and one of the other kind settles."""

from __future__ import annotations

import signal
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.config.topics import CONSUMER_OFFSETS
from ottla_broker.internal_topics.partitioning import partition_for
from tests.integration.clients.driver import LIMIT_S, await_that
from tests.mixed.fleet import BROKERS, Kind, MixedFleet
from tests.nemesis.load import TOPIC

pytestmark = [pytest.mark.java, pytest.mark.long]
GROUP = "group"


def coordinating(fleet: MixedFleet) -> tuple[list[int], list[int]]:
    """Replicas and ISR of the group's partition; its leader is the first of the replicas in the ISR."""
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    partitions = admin.list_topics(CONSUMER_OFFSETS, LIMIT_S).topics[CONSUMER_OFFSETS].partitions
    found = partitions[partition_for(GROUP, len(partitions))]
    return list(found.replicas), list(found.isrs)


def await_whole(fleet: MixedFleet) -> None:
    await_that(
        lambda: fleet.state().is_whole and len(coordinating(fleet)[1]) == len(BROKERS), "every replica is in sync"
    )


@pytest.mark.parametrize(
    ("first", "second"), [(Kind.APACHE, Kind.OURS), (Kind.OURS, Kind.APACHE)], ids=["apache-first", "ours-first"]
)
def test_offsets_of_an_open_transaction_are_settled_by_a_coordinator_of_the_other_kind(
    tmp_path: Path, zookeeper: ZooKeeperServer, first: Kind, second: Kind
) -> None:
    connect = f"{zookeeper.connect}/mixed-{uuid.uuid4()}"
    fleet = MixedFleet(tmp_path, connect, (first,) * len(BROKERS), "3.9")
    try:
        fleet.start()
        consumer = Consumer({"bootstrap.servers": fleet.bootstrap, "group.id": GROUP, "enable.auto.commit": False})
        consumer.committed([TopicPartition(TOPIC, 0)], LIMIT_S)
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 1)], asynchronous=False)
        (leader, successor, _), _ = coordinating(fleet)
        fleet.end(successor, signal.SIGTERM)
        fleet.start_again(successor, second)
        await_whole(fleet)

        producers = []
        for number, name in enumerate(("committed", "aborted")):
            producer = Producer({"bootstrap.servers": fleet.bootstrap, "transactional.id": name})
            producer.init_transactions(LIMIT_S)
            producer.begin_transaction()
            offsets = [TopicPartition(TOPIC, number, 5 + number)]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), LIMIT_S)
            producers.append(producer)
        fleet.end(leader, signal.SIGKILL)
        fleet.start_again(leader, first)
        await_whole(fleet)
        producers[0].commit_transaction(LIMIT_S)
        producers[1].abort_transaction(LIMIT_S)

        consumer.close()
        # A new consumer, which asks who coordinates the group now.
        consumer = Consumer({"bootstrap.servers": fleet.bootstrap, "group.id": GROUP, "enable.auto.commit": False})
        found = consumer.committed([TopicPartition(TOPIC, index) for index in (0, 1)], LIMIT_S)
        assert [one.offset for one in found] == [5, -1001], "the committed ones alone"
        consumer.close()
    except AssertionError:
        print("\n".join(slot.last_lines() for slot in fleet.slots))
        raise
    finally:
        fleet.close()

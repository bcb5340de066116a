"""Committed offsets are found again: with any `offsets.topic.compression.codec`, and when missing partitions appear."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.testing import cluster
from ottla.testing.cluster import RunningCluster
from ottla_broker.config.topics import CONSUMER_OFFSETS
from ottla_broker.coordination import znodes
from ottla_broker.internal_topics.partitioning import partition_for
from ottla_broker.records.batch import batches
from ottla_broker.records.compression import Codec, codec_of
from tests.integration.clients.topics import create

LIMIT_S = 120.0


def consumer(fleet: RunningCluster) -> Consumer:
    return Consumer({"bootstrap.servers": fleet.bootstrap, "group.id": "g", "log_level": "0"})


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_committed_offsets_are_stored_with_the_codec_and_loaded_again(codec: Codec) -> None:
    config = {"offsets.topic.compression.codec": str(int(codec)), "offsets.topic.num.partitions": "1"}
    with cluster(config=config) as fleet:
        create(fleet.bootstrap, "t", replicas=1)
        committing = consumer(fleet)
        committing.commit(offsets=[TopicPartition("t", 0, 7, "note " * 20)], asynchronous=False)
        committing.close()
        fleet.stop(0)
        fleet.start(0)
        reading = consumer(fleet)
        found = reading.committed([TopicPartition("t", 0)], LIMIT_S)[0]
        assert (found.offset, found.metadata) == (7, "note " * 20)
        reading.close()
        (log,) = fleet.data.glob("broker-0/*/__consumer_offsets-0/*.log")
        written = [header.attributes for _, header in batches(log.read_bytes())]
    assert written
    assert {codec_of(attributes) for attributes in written} == {codec}


def test_a_group_keeps_its_offsets_when_a_missing_partition_of_the_offsets_topic_appears() -> None:
    """Broker 1 died before a controller has elected a leader for its partition: no broker has it in its metadata."""
    names = (f"g-{number}" for number in range(100))
    group = next(name for name in names if (partition_for(name, 3), partition_for(name, 2)) == (1, 0))
    with cluster(brokers=2) as fleet:
        create(fleet.bootstrap, "t", replicas=2)
        assert fleet.fleet is not None
        coordination = fleet.fleet.brokers[0]._ports.coordination

        async def until_exists(path: str, wanted: bool) -> None:
            changed = asyncio.Event()
            while (await coordination.exists(path, lambda event: changed.set()) is not None) is not wanted:
                await changed.wait()
                changed.clear()

        fleet.kill(1)
        fleet.run(until_exists(znodes.BrokerRegistration.path(1), wanted=False))
        assignment = znodes.TopicAssignment({0: (0,), 1: (0,), 2: (1,)}, uuid.uuid4())

        async def create_offsets_topic() -> None:
            await coordination.create(znodes.topic_path(CONSUMER_OFFSETS), assignment.encode())

        fleet.run(create_offsets_topic())
        settings = {"bootstrap.servers": fleet.bootstrap, "group.id": group, "log_level": "0"}
        committing = Consumer(settings)
        committing.commit(offsets=[TopicPartition("t", 0, 7)], asynchronous=False)
        committing.close()
        fleet.start(1)
        fleet.run(until_exists(znodes.PartitionStateZnode.path(CONSUMER_OFFSETS, 2), wanted=True))
        reading = Consumer(settings)
        while len(reading.list_topics(CONSUMER_OFFSETS, LIMIT_S).topics[CONSUMER_OFFSETS].partitions) < 3:
            pass  # every round is a request over a socket
        assert reading.committed([TopicPartition("t", 0)], LIMIT_S)[0].offset == 7
        reading.close()

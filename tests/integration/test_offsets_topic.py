"""`offsets.topic.compression.codec`: committed offsets are stored with that codec and can be loaded."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla_broker.records.batch import batches
from ottla_broker.records.compression import Codec, codec_of
from ottla_broker.testing import cluster
from ottla_broker.testing.cluster import RunningCluster
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

"""Consumers that name their rack read from the follower there, and go on when it dies (KIP-392)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from ottla.testing import RunningCluster, cluster
from tests.integration.clients.driver import Driver, Gathering, GroupMember, await_that
from tests.integration.clients.java import Java
from tests.integration.clients.librdkafka import Librdkafka
from tests.integration.clients.topics import create, numbered

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
CLIENTS_WITH_RACKS = [Librdkafka.name, pytest.param(Java.name, marks=pytest.mark.java)]


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningCluster]:
    """Broker i is in rack-i."""
    config = {"replica.selector.class": RACK_AWARE, "min.insync.replicas": "2", "group.min.session.timeout.ms": "500"}
    with cluster(brokers=3, racks=3, config=config) as found:
        yield found


def bytes_read(fleet: RunningCluster, broker: int, topic: str) -> float:
    """By consumers, from this broker; 0 while it does not run."""
    assert fleet.fleet is not None
    found = fleet.fleet.brokers.get(broker)
    if found is None:
        return 0
    name = "kafka_server_brokertopicmetrics_bytesout"
    return found.metrics.counter(name, "Bytes that consumers fetched.", topic=topic).value


@pytest.mark.parametrize("driver", CLIENTS_WITH_RACKS, indirect=True)
def test_a_consumer_reads_in_its_rack_and_survives_the_death_of_the_follower_there(
    driver: Driver, fleet: RunningCluster, bootstrap: str, name: str
) -> None:
    create(bootstrap, name)
    leader = Librdkafka().describe_topic(bootstrap, name).leaders[0]
    follower = (leader + 1) % 3
    config = {"client.rack": f"rack-{follower}", "metadata.max.age.ms": "300000"}
    gathering = Gathering()
    with closing(driver.join(bootstrap, GroupMember(f"{name}-a", name, name, config=config), gathering)):
        driver.produce(bootstrap, name, numbered(10))
        gathering.wait_until(lambda found: len(found.values()) >= 10, "the first ten read")
        from_leader = bytes_read(fleet, leader, name)
        for first in range(10, 50, 10):
            driver.produce(bootstrap, name, numbered(first + 10, first=first))
            gathering.wait_until(lambda found, count=first + 10: len(found.values()) >= count, "the next ten read")
        assert bytes_read(fleet, follower, name) > 0
        assert bytes_read(fleet, leader, name) == from_leader, "once sent away it does not come back for records"

        fleet.kill(follower)
        driver.produce(bootstrap, name, numbered(60, first=50))
        gathering.wait_until(lambda found: len(found.values()) >= 60, "ten more read from elsewhere")
        assert bytes_read(fleet, leader, name) > from_leader
        fleet.start(follower)
    assert sorted(gathering.values(), key=str) == sorted((record.value for record in numbered(60)), key=str)
    in_sync = frozenset((0, 1, 2))
    await_that(
        lambda: Librdkafka().describe_topic(bootstrap, name).in_sync_replicas[0] == in_sync, "all are in sync again"
    )

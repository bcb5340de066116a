"""The Java client of Apache Kafka 4.3.1, which speaks the newest versions that a fleet of ours lists."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.testing import RunningCluster, cluster
from tests.integration.clients.driver import QUICK_MEMBER, Gathering, GroupMember, Record
from tests.integration.clients.java import Java, JavaMachine
from tests.integration.clients.topics import create, create_again

pytestmark = pytest.mark.java


@pytest.fixture
def java(machine_4: JavaMachine) -> Java:
    return Java(machine_4)


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningCluster]:
    with cluster(brokers=3, racks=3, config={"group.min.session.timeout.ms": "500"}) as found:
        yield found


def test_produce_read_and_describe(java: Java, fleet: RunningCluster) -> None:
    create(fleet.bootstrap, "t", 3)
    java.produce(fleet.bootstrap, "t", [Record(None, str(number).encode()) for number in range(100)])
    read = java.read(fleet.bootstrap, "t", 3)
    assert sorted(int(record.value or b"") for record in read) == list(range(100))
    assert set(java.describe_topic(fleet.bootstrap, "t").in_sync_replicas.values()) == {frozenset({0, 1, 2})}


def test_a_topic_that_is_created_again_is_written_and_read(java: Java, fleet: RunningCluster) -> None:
    """Topics are named by their ids: those of the first topic are unknown afterwards."""
    create(fleet.bootstrap, "again")
    java.produce(fleet.bootstrap, "again", [Record(None, b"first")])
    java.delete_topic(fleet.bootstrap, "again")
    create_again(java, fleet.bootstrap, "again")
    java.produce(fleet.bootstrap, "again", [Record(None, b"second")])
    assert [record.value for record in java.read(fleet.bootstrap, "again")] == [b"second"]


def test_a_group_reads_and_commits(java: Java, fleet: RunningCluster) -> None:
    create(fleet.bootstrap, "g", 2)
    gathering = Gathering()
    member = java.join(fleet.bootstrap, GroupMember("a", "group", "g", QUICK_MEMBER), gathering)
    try:
        gathering.wait_until(lambda found: found.shares(2), "both partitions")
    finally:
        member.close()
    answer = java.machine.ask(
        "commit", bootstrap=fleet.bootstrap, topic="g", offset=7, metadata="x", config={"group.id": "committing"}
    )
    assert (answer["offset"], answer["metadata"]) == (7, "x")

"""What the Java client offers beyond the others."""

from __future__ import annotations

import pytest

from tests.integration.clients.driver import QUICK_MEMBER, Gathering, GroupMember, Record, await_that
from tests.integration.clients.java import Java, JavaError, JavaMachine
from tests.integration.clients.topics import FOREVER, create, create_again, numbered

pytestmark = pytest.mark.java


@pytest.fixture
def java(machine: JavaMachine) -> Java:
    return Java(machine)


def test_offsets_by_time(java: Java, bootstrap: str, name: str) -> None:
    create(bootstrap, name, retention_ms=FOREVER)
    start = 1_700_000_000_000
    java.produce(bootstrap, name, [Record(None, b"x", timestamp_ms=start + 1000 * n) for n in range(10)])
    times = [0, start + 2500, start + 9000, start + 9001]
    assert java.machine.ask("times", bootstrap=bootstrap, topic=name, timestamps=times)["offsets"] == [0, 3, 9, -1]


def test_an_offset_out_of_range_is_reset_or_told(java: Java, bootstrap: str, name: str) -> None:
    create(bootstrap, name)
    java.produce(bootstrap, name, numbered(25))
    arguments = {"bootstrap": bootstrap, "topic": name, "offset": 1000}
    config = {"auto.offset.reset": "earliest", "max.poll.records": "10"}
    found = java.machine.ask("seek", **arguments, config=config)
    assert [record["offset"] for record in found["records"]] == list(range(10))
    with pytest.raises(JavaError) as raised:
        java.machine.ask("seek", **arguments, config={"auto.offset.reset": "none"})
    assert raised.value.kind == "OffsetOutOfRangeException"


def test_metadata_of_a_commit_comes_back(java: Java, bootstrap: str, name: str) -> None:
    create(bootstrap, name)
    answer = java.machine.ask(
        "commit", bootstrap=bootstrap, topic=name, offset=7, metadata="wörk ✓", config={"group.id": name}
    )
    assert (answer["offset"], answer["metadata"], answer["epoch"]) == (7, "wörk ✓", 0)


@pytest.mark.parametrize(
    "assignor", ["RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor"]
)
def test_every_assignor(java: Java, bootstrap: str, name: str, assignor: str) -> None:
    create(bootstrap, name, 4)
    gathering = Gathering()
    config = {
        **QUICK_MEMBER,
        "partition.assignment.strategy": f"org.apache.kafka.clients.consumer.{assignor}",
    }
    members = [java.join(bootstrap, GroupMember(f"{name}-{n}", name, name, config), gathering) for n in "ab"]
    try:
        gathering.wait_until(lambda found: found.shares(2, 2), "two each")
    finally:
        for member in members:
            member.close()


def test_a_static_member_that_returns_keeps_its_partitions(java: Java, bootstrap: str, name: str) -> None:
    create(bootstrap, name, 2)
    gathering = Gathering()
    static = {**QUICK_MEMBER, "session.timeout.ms": "60000"}
    stays = java.join(bootstrap, GroupMember(f"{name}-a", name, name, {**static, "group.instance.id": "a"}), gathering)
    goes = java.join(bootstrap, GroupMember(f"{name}-b", name, name, {**static, "group.instance.id": "b"}), gathering)
    try:
        gathering.wait_until(lambda found: found.shares(1, 1), "one each")
        had = gathering.assignments[f"{name}-b"]
        goes.close()
        goes = java.join(
            bootstrap, GroupMember(f"{name}-c", name, name, {**static, "group.instance.id": "b"}), gathering
        )
        gathering.wait_until(lambda found: found.assignments.get(f"{name}-c") == had, "it has its partition back")
        assert len(gathering.assignments[f"{name}-a"]) == 1
    finally:
        goes.close()
        stays.close()


def test_operations_and_the_cluster(java: Java, bootstrap: str, name: str) -> None:
    create(bootstrap, name)
    java.machine.ask("commit", bootstrap=bootstrap, topic=name, offset=1, metadata="", config={"group.id": name})
    found = java.machine.ask("operations", bootstrap=bootstrap, topic=name, group=name)
    assert len(found["clusterId"]) == 22
    assert found["controller"] in range(3)
    assert sorted(found["racks"]) == ["rack-0", "rack-1", "rack-2"]
    assert set(found["cluster"]) == {
        "CREATE",
        "CLUSTER_ACTION",
        "DESCRIBE_CONFIGS",
        "IDEMPOTENT_WRITE",
        "ALTER",
        "DESCRIBE",
        "ALTER_CONFIGS",
    }
    assert set(found["topic"]) == {
        "READ",
        "WRITE",
        "CREATE",
        "DESCRIBE",
        "DELETE",
        "ALTER",
        "DESCRIBE_CONFIGS",
        "ALTER_CONFIGS",
    }
    assert set(found["group"]) == {"READ", "DESCRIBE", "DELETE"}


def test_a_topic_that_is_created_again_has_another_id(java: Java, bootstrap: str, name: str) -> None:
    create(bootstrap, name)
    before = java.machine.ask("describe", bootstrap=bootstrap, topic=name)["topicId"]
    java.delete_topic(bootstrap, name)
    create_again(java, bootstrap, name)
    java.produce(bootstrap, name, numbered(1))

    def is_new() -> bool:
        """Each broker hears of it by itself, and any of them may be asked."""
        try:
            return bool(java.machine.ask("describe", bootstrap=bootstrap, topic=name)["topicId"] != before)
        except JavaError as error:
            assert error.kind == "UnknownTopicOrPartitionException", error
            return False

    await_that(is_new, "it has another id")

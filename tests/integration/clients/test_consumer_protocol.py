"""Groups of the consumer protocol (KIP-848) with the Java client of Apache Kafka 4.3.1, and with librdkafka."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from ottla.testing import RunningCluster, cluster
from ottla_broker.internal_topics.partitioning import partition_for
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import api_versions, consumer_group_heartbeat, update_features
from tests.integration.clients.driver import Gathering, GroupMember, Record
from tests.integration.clients.java import Java, JavaMachine
from tests.integration.clients.topics import create
from tests.integration.wire import Wire

CACHE = Path(os.environ.get("OTTLA_CACHE") or Path.home() / ".cache" / "ottla")
CLIENTS_4 = CACHE / "kafka-clients-4-jars" / "kafka-clients-4.3.1.jar"
CONSUMER = {"group.protocol": "consumer"}
CLASSIC = {
    "heartbeat.interval.ms": "200",
    "session.timeout.ms": "30000",
    "partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
CONFIG = {
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "group.consumer.migration.policy": "bidirectional",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
}
LIMIT_S = 120.0


def finalize_group_version(fleet: RunningCluster) -> None:
    """As kafka-features.sh upgrade --feature group.version=1 does; returns when every broker knows."""
    request = update_features.UpdateFeaturesRequest(
        timeout_ms=60_000,
        feature_updates=[
            update_features.FeatureUpdateKey(feature="group.version", max_version_level=1, upgrade_type=1)
        ],
    )
    answers = []
    for broker in fleet.running:
        with Wire(fleet.address(broker)) as wire:
            answers.append(wire.ask(ApiKey.UPDATE_FEATURES, 1, request))
    finalized = [answer for answer in answers if answer.error_code == ErrorCode.NONE]
    assert [result.error_code for answer in finalized for result in answer.results] == [ErrorCode.NONE]
    assert fleet.fleet is not None
    for each in fleet.fleet.brokers.values():
        assert fleet.run(each._fleet_features.until_epoch(0, 60_000))


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningCluster]:
    with cluster(brokers=3, racks=3, config=CONFIG) as found:
        finalize_group_version(found)
        yield found


@pytest.fixture
def java(tmp_path: Path) -> Iterator[Java]:
    yield from _java(tmp_path / "java.log")


@pytest.fixture
def other_java(tmp_path: Path) -> Iterator[Java]:
    yield from _java(tmp_path / "other.log")


def _java(log: Path) -> Iterator[Java]:
    if not CLIENTS_4.exists():
        pytest.skip("kafka-clients-4.3.1.jar is missing")
    machine = JavaMachine(log, clients=CLIENTS_4)
    yield Java(machine)
    machine.close()


def until(is_reached: Callable[[], bool], *consumers: Consumer) -> None:
    """Polls the consumers until it is; a poll waits for the broker, so nothing here sleeps."""
    deadline = time.monotonic() + LIMIT_S
    while not is_reached():
        assert time.monotonic() < deadline, "not reached in time"
        for consumer in consumers:
            message = consumer.poll(0.05)
            assert message is None or message.error() is None or not message.error().fatal(), message.error()


def consumer_of(fleet: RunningCluster, group: str, **config: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": fleet.bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "topic.metadata.refresh.interval.ms": "1000",
            "log_level": "0",
            **{key.replace("_", "."): value for key, value in config.items()},
        }
    )


@pytest.mark.java
def test_members_join_leave_and_are_killed_and_read_everything(
    java: Java, other_java: Java, fleet: RunningCluster
) -> None:
    create(fleet.bootstrap, "shared", 6)
    gathering = Gathering()
    first = java.join(fleet.bootstrap, GroupMember("first", "g", "shared", CONSUMER), gathering)
    gathering.wait_until(lambda found: found.shares(6), "every partition with the first member")
    java.join(fleet.bootstrap, GroupMember("second", "g", "shared", CONSUMER), gathering)
    gathering.wait_until(lambda found: found.shares(3, 3), "two halves")
    other_java.join(fleet.bootstrap, GroupMember("third", "g", "shared", CONSUMER), gathering)
    gathering.wait_until(lambda found: found.shares(2, 2, 2), "three thirds")
    java.produce(fleet.bootstrap, "shared", [Record(None, str(number).encode()) for number in range(300)])
    gathering.wait_until(lambda found: found.has_committed(300), "read and committed")

    other_java.machine._process.kill()
    gathering.left("third")
    gathering.wait_until(lambda found: found.shares(3, 3), "two halves after a member was killed")
    first.close()
    gathering.wait_until(lambda found: found.shares(6), "every partition with the second member")

    coordinator = _coordinator(fleet, "g")
    fleet.kill(coordinator)
    java.produce(fleet.bootstrap, "shared", [Record(None, str(number).encode()) for number in range(300, 400)])
    gathering.wait_until(lambda found: found.has_committed(400), "read and committed with another coordinator")
    fleet.start(coordinator)
    assert sorted(int(value or b"") for value in gathering.values()) == list(range(400))


def _coordinator(fleet: RunningCluster, group: str) -> int:
    assert fleet.fleet is not None
    broker = fleet.fleet.brokers[fleet.running[0]]
    found = broker._serving.parts.metadata.partition("__consumer_offsets", partition_for(group, 4))
    assert found is not None
    return found.leader


@pytest.mark.java
def test_a_group_changes_its_protocol_online_and_back(java: Java, fleet: RunningCluster) -> None:
    create(fleet.bootstrap, "migrating", 4)
    gathering = Gathering()
    old = java.join(fleet.bootstrap, GroupMember("old", "m", "migrating", CLASSIC), gathering)
    gathering.wait_until(lambda found: found.shares(4), "every partition with the classic member")
    new = java.join(fleet.bootstrap, GroupMember("new", "m", "migrating", CONSUMER), gathering)
    gathering.wait_until(lambda found: found.shares(2, 2), "two halves, one member of each protocol")
    java.produce(fleet.bootstrap, "migrating", [Record(None, str(number).encode()) for number in range(100)])
    gathering.wait_until(lambda found: found.has_committed(100), "read and committed by both")
    old.close()
    gathering.wait_until(lambda found: found.shares(4), "every partition with the new member")

    java.join(fleet.bootstrap, GroupMember("back", "m", "migrating", CLASSIC), gathering)
    gathering.wait_until(lambda found: found.shares(2, 2), "two halves again")
    new.close()
    gathering.wait_until(lambda found: found.shares(4), "every partition with the classic member again")
    java.produce(fleet.bootstrap, "migrating", [Record(None, str(number).encode()) for number in range(100, 200)])
    gathering.wait_until(lambda found: found.has_committed(200), "read and committed after the way back")
    assert sorted(int(value or b"") for value in gathering.values()) == list(range(200))


def test_librdkafka_shares_partitions_and_is_described(fleet: RunningCluster) -> None:
    create(fleet.bootstrap, "rd", 4)
    first = consumer_of(fleet, "rd", group_instance_id="one", group_remote_assignor="range")
    second = consumer_of(fleet, "rd")
    first.subscribe(["rd"])
    until(lambda: len(first.assignment()) == 4, first)
    second.subscribe(["rd"])
    until(lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second)
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap, "log_level": "0"})
    described = admin.describe_consumer_groups(["rd"])["rd"].result(LIMIT_S)
    assert (described.type.name, described.state.name, described.partition_assignor) == ("CONSUMER", "STABLE", "range")
    assert sorted(len(member.assignment.topic_partitions) for member in described.members) == [2, 2]
    listed = admin.list_consumer_groups().result(LIMIT_S).valid
    assert {each.group_id: each.type.name for each in listed}["rd"] == "CONSUMER"
    second.close()
    until(lambda: len(first.assignment()) == 4, first)
    first.close()
    deleted = admin.delete_consumer_groups(["rd"])["rd"]
    error = deleted.exception(LIMIT_S)
    assert error is not None and "not empty" in str(error).lower(), "a static member has left for a while only"


@pytest.mark.java
def test_kafka_consumer_groups_of_3_9_lists_and_describes(fleet: RunningCluster, machine: JavaMachine) -> None:
    create(fleet.bootstrap, "listed", 2)
    consumer = consumer_of(fleet, "listed")
    consumer.subscribe(["listed"])
    until(lambda: len(consumer.assignment()) == 2, consumer)

    def tool(*arguments: str) -> list[list[str]]:
        answer = machine.tool(
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            "--bootstrap-server",
            fleet.bootstrap,
            *arguments,
        )
        assert answer.status == 0, answer.err
        return [line.split() for line in answer.out.splitlines() if line.startswith("listed")]

    assert tool("--list", "--type") == [["listed", "Consumer"]]
    assert tool("--list", "--type", "classic") == []
    (state,) = tool("--describe", "--group", "listed", "--state")
    assert "Stable" in state
    assert len(tool("--describe", "--group", "listed", "--members")) == 1
    consumer.close()


def test_librdkafka_subscribes_by_a_regular_expression(fleet: RunningCluster) -> None:
    create(fleet.bootstrap, "match-1", 1)
    consumer = consumer_of(fleet, "pattern")
    consumer.subscribe(["^match-.*"])
    until(lambda: {each.topic for each in consumer.assignment()} == {"match-1"}, consumer)
    create(fleet.bootstrap, "match-2", 1)
    until(lambda: {each.topic for each in consumer.assignment()} == {"match-1", "match-2"}, consumer)
    consumer.close()


def test_without_the_feature_a_consumer_of_the_protocol_gets_the_answer_of_kafka_3_9() -> None:
    config = {"group.coordinator.rebalance.protocols": "classic,consumer"}
    with cluster(brokers=1, config=config) as fleet, Wire(fleet.address(0)) as wire:
        client = api_versions.ApiVersionsRequest(client_software_name="t", client_software_version="1")
        listed = wire.ask(ApiKey.API_VERSIONS, 3, client)
        ranges = {each.api_key: (each.min_version, each.max_version) for each in listed.api_keys}
        assert ranges[ApiKey.CONSUMER_GROUP_HEARTBEAT] == (0, 0)
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(group_id="g", member_epoch=0)
        answer = wire.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, request)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION

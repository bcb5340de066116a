"""Preferred leaders asked for by Kafka's own tool and by kafka-python, on a fleet one of whose brokers was away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from ottla.testing import RunningCluster, cluster
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from tests.integration.clients.driver import await_that
from tests.integration.clients.java import JavaMachine
from tests.integration.clients.topics import create
from tests.integration.wire import Wire

TOOL = "org.apache.kafka.tools.LeaderElectionCommand"
PARTITIONS = 6
PREFERRED = 0


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningCluster]:
    with cluster(brokers=3, config={"auto.leader.rebalance.enable": "false"}) as found:
        yield found


def states(fleet: RunningCluster, topic: str) -> dict[int, tuple[int, int, int]]:
    """(leader, preferred leader, size of the ISR) by partition, as broker 0 knows them."""
    api = codec.module(ApiKey.METADATA)
    request = api.MetadataRequest(topics=[api.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    with Wire(fleet.address(0)) as wire:
        response = wire.ask(ApiKey.METADATA, 9, request)
    return {
        part.partition_index: (part.leader_id, part.replica_nodes[0], len(part.isr_nodes))
        for part in response.topics[0].partitions
    }


def is_in_sync(fleet: RunningCluster) -> bool:
    """As broker 0 knows it, of all topics: an election of all partitions is one of other tests' topics too."""
    api = codec.module(ApiKey.METADATA)
    with Wire(fleet.address(0)) as wire:
        response = wire.ask(ApiKey.METADATA, 9, api.MetadataRequest(topics=None))
    return all(len(part.isr_nodes) == len(part.replica_nodes) for topic in response.topics for part in topic.partitions)


def led_elsewhere(fleet: RunningCluster, topic: str) -> list[int]:
    return [number for number, (leader, preferred, _) in sorted(states(fleet, topic).items()) if leader != preferred]


@pytest.fixture
def elsewhere(fleet: RunningCluster, name: str) -> list[int]:
    """Partitions of a topic that broker 2 led before it was away; it is back and in sync."""
    create(fleet.bootstrap, name, PARTITIONS)
    fleet.stop(2)
    await_that(lambda: all(leader != 2 for leader, *_ in states(fleet, name).values()), "others lead")
    fleet.start(2)
    await_that(lambda: is_in_sync(fleet), "it is in sync again")
    found = led_elsewhere(fleet, name)
    assert len(found) == 2
    return found


def test_kafka_python_elects_one_partition_and_then_all(fleet: RunningCluster, name: str, elsewhere: list[int]) -> None:
    admin = KafkaAdminClient(bootstrap_servers=fleet.bootstrap.split(","))
    try:
        admin.elect_leaders(PREFERRED, {name: elsewhere[:1]})
        await_that(lambda: led_elsewhere(fleet, name) == elsewhere[1:], "one is back")
        admin.elect_leaders(PREFERRED)
        await_that(lambda: led_elsewhere(fleet, name) == [], "all are back")
        admin.elect_leaders(PREFERRED, {name: elsewhere})  # not needed, and no error
    finally:
        admin.close()


@pytest.mark.java
def test_kafka_leader_election(
    fleet: RunningCluster, name: str, elsewhere: list[int], machine: JavaMachine, tmp_path: Path
) -> None:
    def tool(*arguments: str) -> str:
        done = machine.tool(TOOL, "--bootstrap-server", fleet.bootstrap, *arguments)
        assert done.status == 0, done.out + done.err
        return done.out

    preferred = ("--election-type", "preferred")
    one, other = elsewhere
    out = tool(*preferred, "--topic", name, "--partition", str(one))
    assert f"Successfully completed leader election (PREFERRED) for partitions {name}-{one}" in out
    await_that(lambda: led_elsewhere(fleet, name) == [other], "one is back")
    path = tmp_path / "partitions.json"
    path.write_text(json.dumps({"partitions": [{"topic": name, "partition": number} for number in elsewhere]}))
    out = tool(*preferred, "--path-to-json-file", str(path))
    assert f"Successfully completed leader election (PREFERRED) for partitions {name}-{other}" in out
    assert f"Valid replica already elected for partitions {name}-{one}" in out
    await_that(lambda: led_elsewhere(fleet, name) == [], "both are back")
    # Of all partitions only those that need an election are told of.
    await_that(lambda: tool(*preferred, "--all-topic-partitions").strip() == "", "nothing is left to elect")
    out = tool("--election-type", "unclean", "--topic", name, "--partition", "0")
    assert f"Valid replica already elected for partitions {name}-0" in out
    failed = machine.tool(
        TOOL, "--bootstrap-server", fleet.bootstrap, *preferred, "--topic", "no-such", "--partition", "0"
    )
    assert failed.status != 0 and "UnknownTopicOrPartition" in failed.out + failed.err

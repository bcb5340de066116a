"""kafka-client-metrics.sh of Apache Kafka 3.9, and the metrics that its clients push."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator

import pytest

from ottla.testing import RunningCluster, cluster
from tests.integration.clients.driver import QUICK_MEMBER, Gathering, GroupMember, await_that
from tests.integration.clients.java import Java, JavaMachine
from tests.integration.clients.topics import create

pytestmark = pytest.mark.java

CLIENT_METRICS = "org.apache.kafka.tools.ClientMetricsCommand"


def test_kafka_client_metrics_alters_lists_describes_and_deletes(fleet: RunningCluster, machine: JavaMachine) -> None:
    def tool(*arguments: str) -> str:
        done = machine.tool(CLIENT_METRICS, "--bootstrap-server", fleet.bootstrap, *arguments)
        assert done.status == 0, done.out + done.err
        return done.out

    tool("--alter", "--name", "s", "--metrics", "org.apache.kafka.producer.", "--interval", "1000")
    tool("--alter", "--name", "s", "--match", "client_id=app-.*")
    # Each broker reads it by its watch, and the tool may ask any of them.
    await_that(lambda: tool("--list").split() == ["s"], "the resource is listed")
    printed = tool("--describe", "--name", "s")
    for value in ("metrics=org.apache.kafka.producer.", "interval.ms=1000", "match=client_id=app-.*"):
        assert value in printed
    tool("--delete", "--name", "s")
    await_that(lambda: tool("--list").strip() == "", "the resource is gone")


@pytest.fixture
def collecting() -> Iterator[RunningCluster]:
    with cluster(brokers=3, config={"ottla.client.metrics.max.series": "1000"}) as found:
        yield found


def test_a_java_consumer_pushes_the_metrics_that_it_is_asked_for(
    collecting: RunningCluster, machine: JavaMachine
) -> None:
    wanted = ("--metrics", "org.apache.kafka.consumer.", "--interval", "200", "--match", "client_software_version=3.*")
    at = ("--bootstrap-server", collecting.bootstrap)
    done = machine.tool(CLIENT_METRICS, *at, "--alter", "--name", "consumers", *wanted)
    assert done.status == 0, done.out + done.err
    create(collecting.bootstrap, "t", 1)
    gathering = Gathering()
    config = {**QUICK_MEMBER, "client.id": "observed"}
    member = Java(machine).join(collecting.bootstrap, GroupMember("a", "group", "t", config), gathering)

    def pushed() -> list[str]:
        found = []
        for broker in range(3):
            with urllib.request.urlopen(f"http://{collecting.http(broker)}/metrics", timeout=60) as response:
                found += [line for line in response.read().decode().splitlines() if line.startswith("kafka_client_")]
        return found

    try:
        await_that(lambda: bool(pushed()), "the consumer has pushed")
        for sample in pushed():
            assert sample.startswith("kafka_client_consumer_")
            labels = dict(re.findall(r'(\w+)="([^"]*)"', sample))
            assert labels["client_id"] == "observed"
            assert (labels["client_software_name"], labels["client_software_version"]) == ("apache-kafka-java", "3.9.1")
            assert labels["group_id"] == "group"
    finally:
        member.close()

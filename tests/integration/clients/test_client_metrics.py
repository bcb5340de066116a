"""kafka-client-metrics.sh of Apache Kafka 3.9."""

from __future__ import annotations

import pytest

from ottla_broker.testing import RunningCluster
from tests.integration.clients.driver import await_that
from tests.integration.clients.java import JavaMachine

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

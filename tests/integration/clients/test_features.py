"""kafka-features.sh of Apache Kafka 3.9 against a fleet that supports a feature."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from ottla.testing import RunningCluster, cluster
from ottla_broker.config import features
from tests.integration.clients.java import JavaMachine, ToolOutput

pytestmark = pytest.mark.java

FEATURES = "org.apache.kafka.tools.FeatureCommand"


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningCluster]:
    monkeypatch.setattr(features, "SUPPORTED", {"transaction.version": (0, 2), "x": (1, 3)})
    with cluster(brokers=2) as found:
        yield found


def test_kafka_features_upgrades_shows_downgrades_and_disables(fleet: RunningCluster, machine: JavaMachine) -> None:
    def tool(*arguments: str) -> ToolOutput:
        return machine.tool(FEATURES, "--bootstrap-server", fleet.bootstrap, *arguments)

    def levels() -> dict[str, str]:
        described = tool("describe")
        assert described.status == 0, described.err
        rows = re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)\s", described.out)
        return dict(rows)

    def wait_until_known(epoch: int) -> None:
        """By every broker: the tool may ask any of them."""
        for broker in fleet.fleet.brokers.values():  # type: ignore[union-attr]
            assert fleet.run(broker._fleet_features.until_epoch(epoch, 60_000))

    assert levels() == {"transaction.version": "0", "x": "0"}
    upgraded = tool("upgrade", "--feature", "transaction.version=2", "--feature", "x=1")
    assert upgraded.status == 0, upgraded.err
    wait_until_known(0)
    assert levels() == {"transaction.version": "2", "x": "1"}
    refused = tool("upgrade", "--feature", "x=4")
    assert refused.status == 1
    assert "versionLevel:4 is not within 1 to 3" in refused.out + refused.err
    dry = tool("downgrade", "--feature", "transaction.version=1", "--dry-run")
    assert dry.status == 0, dry.err
    assert levels() == {"transaction.version": "2", "x": "1"}
    downgraded = tool("downgrade", "--feature", "transaction.version=1")
    assert downgraded.status == 0, downgraded.err
    disabled = tool("disable", "--feature", "x")
    assert disabled.status == 0, disabled.err
    wait_until_known(2)
    assert levels() == {"transaction.version": "1", "x": "0"}

"""Upgrades and maintenance windows, with everything else that may happen to a fleet."""

from __future__ import annotations

from typing import Any

import pytest

from ottla_operator.api import names
from tests.operator.model_based.machines import run_fixed
from tests.operator.model_based.upgrades import RestartWatch


@pytest.mark.parametrize("examples", [3, pytest.param(10, marks=pytest.mark.long)])
def test_restarts_keep_to_windows_and_upgrades_take_two_rolls_after_random_events(examples: int) -> None:
    run_fixed("changes", examples=examples, steps=8)


def _pod(number: int, protocol: str, image: str) -> dict[str, Any]:
    labels = {names.BROKER_ID: str(number)}
    metadata = {"name": f"orders-broker-{number}-0", "labels": labels, "annotations": {names.PROTOCOL: protocol}}
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": [{"image": image}]}, "status": ready}


def _cluster(**status: Any) -> dict[str, Any]:
    windows = [{"schedule": "0 22 * * *", "duration": "1h"}]
    spec = {"maintenanceWindows": windows, "brokers": {}, "zookeeper": {}}
    return {"kind": "KafkaCluster", "metadata": {"name": "orders"}, "spec": spec, "status": status}


def _watch(pods: list[dict[str, Any]], passed: list[float]) -> RestartWatch:
    return RestartWatch(lambda: "2026-01-01T10:00:00Z", lambda: passed[0], lambda: pods, 90.0, lambda broker: False)


def test_the_model_notices_a_restart_outside_of_windows_and_a_protocol_that_is_raised_or_lowered_too_early() -> None:
    """A check that never fails would pass for everything."""
    pods = [_pod(0, "3.6", "ottla:1"), _pod(1, "3.6", "ottla:2")]
    passed = [0.0]
    watch = _watch(pods, passed)
    seen = [text for pod in pods for text in watch.see("ADDED", pod)]
    seen += watch.see("MODIFIED", _cluster(interBrokerProtocolVersion="3.6"))
    assert seen == []
    passed[0] = 1000.0
    raised = _cluster(interBrokerProtocolVersion="3.9", roll={"role": "broker", "batch": [1]})
    assert list(watch.see("MODIFIED", raised)) == [
        "broker [1] are restarted while no maintenance window is open",
        "the protocol is raised to 3.9 while brokers run ottla:1, ottla:2",
    ]
    assert list(watch.see("ADDED", _pod(1, "3.9", "ottla:2"))) == []
    assert list(watch.see("ADDED", _pod(1, "3.6", "ottla:2"))) == [
        "orders-broker-1-0 had protocol 3.9, and starts with 3.6"
    ]

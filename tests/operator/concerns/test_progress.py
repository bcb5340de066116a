"""No condition is True because a roll is under way: a roll excuses one restart that goes on, and nothing else."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ottla_operator.api.objects import CONFIG_MAP, POD
from ottla_operator.facts.progress import PATIENCE_S
from tests.operator.fleet import CLUSTER, Fleet

CRASHED = {"waiting": {"reason": "CrashLoopBackOff"}}
STATES: tuple[dict[str, Any], ...] = (
    CRASHED,
    {"waiting": {"reason": "ImagePullBackOff"}},
    {"waiting": {"reason": "ErrImagePull"}},
    {"waiting": {"reason": "CreateContainerConfigError"}},
    {"terminated": {"exitCode": 1}},
)
RUNNING: dict[str, Any] = {"running": {}}


async def _rolling_into(state: dict[str, Any], *, replicas: int) -> Fleet:
    """A roll whose first broker stays in this state."""
    document = copy.deepcopy(CLUSTER)
    document["spec"]["brokers"]["replicas"] = replicas
    fleet = Fleet(document)
    await fleet.converge()
    fleet.edit("spec.brokers.config", {"num.partitions": 7})
    await fleet.step()
    maps = {name: fleet.kubernetes.there(CONFIG_MAP, name)["data"] for name in fleet.kubernetes.names(CONFIG_MAP)}
    fleet.kubernetes.not_starting = {name for name, data in maps.items() if "num.partitions=7" in str(data)}
    fleet.kubernetes.container_state = state
    for _ in range(12):
        await fleet.step()
    assert fleet.status("roll", "step") == "WaitReady"
    return fleet


@pytest.mark.parametrize("state", [*STATES, RUNNING])
async def test_a_cluster_of_one_broker_is_not_ready_when_the_broker_does_not_start_in_a_roll(
    state: dict[str, Any],
) -> None:
    fleet = await _rolling_into(state, replicas=1)
    assert fleet.condition("BrokersReady")[:2] == ("False", "WaitingForBrokers")
    assert fleet.condition("Ready")[0] == "False"
    fleet.kubernetes.not_starting = set()
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "True"


@pytest.mark.parametrize("state", STATES)
async def test_a_broker_that_cannot_start_is_reported_when_a_roll_restarts_it(state: dict[str, Any]) -> None:
    fleet = await _rolling_into(state, replicas=3)
    status, reason, message = fleet.condition("BrokersReady")
    assert (status, reason) == ("False", "WaitingForBrokers") and message.startswith("not ready: 1 ")
    assert fleet.condition("Ready")[0] == "False"


async def test_an_unschedulable_broker_is_reported_when_a_roll_restarts_it() -> None:
    fleet = await _rolling_into(RUNNING, replicas=3)
    pod = fleet.kubernetes.there(POD, "orders-broker-1-0")
    unscheduled = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}]}
    fleet.kubernetes.put({**pod, "status": unscheduled})
    await fleet.task.reconcile_once()
    assert fleet.condition("BrokersReady")[:2] == ("False", "WaitingForBrokers")
    assert "0/3 nodes" in fleet.condition("BrokersReady")[2]


async def test_a_broker_that_a_roll_restarts_is_no_failure_until_it_takes_too_long() -> None:
    fleet = await _rolling_into(RUNNING, replicas=3)
    assert fleet.condition("BrokersReady")[0] == "True" and fleet.condition("Ready")[0] == "True"
    fleet.environment.passed_s = int(PATIENCE_S) + 1
    await fleet.step()
    assert fleet.condition("BrokersReady")[:2] == ("False", "WaitingForBrokers")


async def test_another_broker_that_is_down_during_a_roll_is_reported() -> None:
    fleet = await _rolling_into(RUNNING, replicas=3)
    fleet.kubernetes.remove(POD, "orders-broker-2-0")
    await fleet.task.reconcile_once()
    assert fleet.condition("BrokersReady")[2] == "not ready: 2 has no pod"


async def test_an_offline_log_directory_stays_reported_while_its_broker_restarts() -> None:
    fleet = Fleet(CLUSTER)
    await fleet.converge()
    fleet.environment.offline = {"orders-broker-2-d1-1"}
    await fleet.converge()
    fleet.kubernetes.remove(POD, "orders-broker-2-0")
    await fleet.task.reconcile_once()
    assert fleet.condition("DisksReady")[:2] == ("False", "LogDirNotOnline")
    fleet.environment.offline = set()
    await fleet.converge()
    assert fleet.condition("DisksReady")[0] == "True"


@pytest.mark.parametrize(
    ("path", "value"),
    [("spec.brokers.config", {"no.such": 1}), ("spec.brokers.disks", None)],
)
async def test_a_change_is_not_rolled_when_another_condition_prevents_it(path: str, value: Any) -> None:
    fleet = Fleet(CLUSTER)
    await fleet.converge()
    fleet.edit(path, value)
    await fleet.converge()
    assert fleet.condition("Rolled")[:2] == ("False", "DesiredStateUnknown")
    assert "broker 0" in fleet.condition("Rolled")[2]

"""Requests and limits of the pods, and pods that a namespace does not admit."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ottla_operator.api.objects import POD, Obj, dig, uid_of
from tests.operator.fleet import CLUSTER, Fleet

QUOTA = (
    'pods "x" is forbidden: exceeded quota: team, requested: requests.memory=256Mi, used: requests.memory=1Gi, '
    "limited: requests.memory=1Gi"
)
LIMITS = 'pods "x" is forbidden: maximum memory usage per Container is 128Mi, but limit is 1Gi'


async def _running(**resources: Any) -> Fleet:
    document = copy.deepcopy(CLUSTER)
    for role, value in resources.items():
        document["spec"][role]["resources"] = value
    fleet = Fleet(document)
    await fleet.converge()
    return fleet


def _resources(fleet: Fleet, pod: str) -> Obj:
    return dig(fleet.kubernetes.there(POD, pod), "spec", "containers", 0, "resources") or {}


async def test_pods_request_resources_unless_the_spec_declares_none() -> None:
    fleet = await _running()
    assert _resources(fleet, "orders-broker-0-0") == {"requests": {"cpu": "250m", "memory": "256Mi"}}
    assert _resources(fleet, "orders-zookeeper-1-0") == {"requests": {"cpu": "100m", "memory": "512Mi"}}
    fleet = await _running(brokers={}, zookeeper={})
    assert _resources(fleet, "orders-broker-0-0") == {} == _resources(fleet, "orders-zookeeper-1-0")


async def test_a_change_of_resources_is_rolled_in_any_form_of_a_quantity() -> None:
    fleet = await _running()
    before = {name: uid_of(fleet.kubernetes.there(POD, name)) for name in fleet.kubernetes.names(POD)}
    fleet.edit("spec.brokers.resources", {"requests": {"cpu": "0.5", "memory": "1024Mi"}, "limits": {"memory": "2e9"}})
    await fleet.converge()
    changed = {name for name, uid in before.items() if uid_of(fleet.kubernetes.there(POD, name)) != uid}
    assert changed == {"orders-broker-0-0", "orders-broker-1-0", "orders-broker-2-0"}
    assert fleet.condition("Rolled")[0] == "True" and fleet.condition("Ready")[0] == "True"
    fleet.kubernetes.writes.clear()
    await fleet.converge()
    assert fleet.kubernetes.writes == []
    fleet.edit("spec.brokers.resources", None)
    await fleet.converge()
    assert _resources(fleet, "orders-broker-0-0") == {"requests": {"cpu": "250m", "memory": "256Mi"}}


@pytest.mark.parametrize(("role", "condition"), [("brokers", "BrokersReady"), ("zookeeper", "ZooKeeperReady")])
async def test_invalid_resources_restart_no_broker(role: str, condition: str) -> None:
    fleet = await _running()
    before = {name: uid_of(fleet.kubernetes.there(POD, name)) for name in fleet.kubernetes.names(POD)}
    fleet.edit(f"spec.{role}.resources", {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})
    await fleet.converge()
    status, reason, message = fleet.condition(condition)
    assert (status, reason) == ("False", "InvalidSpec") and f"spec.{role}.resources.requests.cpu" in message
    assert fleet.condition("Rolled")[:2] == ("False", "DesiredStateUnknown")
    assert before == {name: uid_of(fleet.kubernetes.there(POD, name)) for name in fleet.kubernetes.names(POD)}
    fleet.edit(f"spec.{role}.resources", None)
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "True" and fleet.condition("Rolled")[0] == "True"


@pytest.mark.parametrize("why", [QUOTA, LIMITS], ids=("quota", "limit range"))
async def test_the_error_of_creating_a_server_pod_is_reported(why: str) -> None:
    fleet = Fleet()
    fleet.kubernetes.refuses_pods = why
    await fleet.converge()
    status, reason, message = fleet.condition("ZooKeeperReady")
    assert (status, reason) == ("False", "WaitingForServers") and why in message
    fleet.kubernetes.refuses_pods = ""
    await fleet.step()
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "True"


async def test_the_error_of_creating_a_broker_pod_is_reported_during_a_roll_too() -> None:
    fleet = await _running()
    fleet.kubernetes.refuses_pods = QUOTA
    fleet.kubernetes.remove(POD, "orders-broker-1-0")
    for _ in range(3):
        await fleet.step()
    assert f"1 has no pod ({QUOTA})" in fleet.condition("BrokersReady")[2]
    fleet.kubernetes.refuses_pods = ""
    await fleet.step()
    await fleet.converge()
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    fleet.kubernetes.refuses_pods = QUOTA
    for _ in range(12):
        await fleet.step()
    assert QUOTA in fleet.condition("Rolled")[2]

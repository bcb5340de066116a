"""The tests of tests/operator/runtime/test_cluster_task.py, on a real API server: every path of a reconcile."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ottla_operator.api.objects import KAFKA_CLUSTER, SERVICE, dig
from tests.operator.fleet import CLUSTER, Fleet
from tests.operator.kubernetes import Killed
from tests.operator.runtime import test_cluster_task as in_memory

pytestmark = [pytest.mark.kubernetes, pytest.mark.usefixtures("real_fleets")]

NOT_HERE = {
    "test_an_operator_killed_between_any_two_writes_ends_in_the_same_state": "hundreds of fleets; a small one below",
    "test_a_roll_killed_between_any_two_writes_goes_on_and_restarts_everybody_once": "copies the world; below",
    "test_an_object_of_our_name_that_is_not_ours_is_left_alone_and_named": "its Service is refused; below",
}
for _name, _test in vars(in_memory).items():
    if _name.startswith("test_") and _name not in NOT_HERE:
        globals()[_name] = _test

SMALL: dict[str, Any] = copy.deepcopy(CLUSTER)
SMALL["spec"]["brokers"] |= {"replicas": 1, "disks": [{"name": "d0", "size": "1Gi"}], "config": {}}
SMALL["spec"]["zookeeper"] = {"replicas": 1, "disk": {"size": "1Gi"}}


def test_the_tests_that_run_elsewhere_exist() -> None:
    assert all(hasattr(in_memory, name) for name in NOT_HERE)


async def _small() -> Fleet:
    fleet = Fleet(SMALL)
    await fleet.converge()
    return fleet


async def test_an_operator_killed_between_any_two_writes_ends_in_the_same_state() -> None:
    whole = await _small()
    expected = whole.picture()
    for survived in range(len(whole.kubernetes.writes)):
        fleet = Fleet(SMALL)
        fleet.kubernetes.kill_after = survived
        try:
            await fleet.converge()
        except Killed:
            fleet.kubernetes.kill_after = None
            fleet.restart_operator()
        fleet.kubernetes.settle()
        await fleet.converge()
        assert fleet.picture() == expected, f"killed after {survived} writes"


async def test_a_roll_killed_between_any_two_writes_goes_on_and_restarts_everybody_once() -> None:
    fleet = await _small()
    survived, value = 0, 0
    while True:
        value += 1
        fleet.kubernetes.writes.clear()
        fleet.edit("spec.brokers.config", {"log.retention.hours": value})
        fleet.kubernetes.kill_after = survived
        was_killed = False
        try:
            await fleet.converge()
        except Killed:
            was_killed = True
            fleet.kubernetes.kill_after = None
            fleet.restart_operator()
            fleet.kubernetes.settle()
            await fleet.converge()
        deleted = [name for verb, kind, name in fleet.kubernetes.writes if (verb, kind) == ("delete", "Pod")]
        assert deleted == ["orders-broker-0-0"], f"killed after {survived} writes"
        assert f"log.retention.hours={value}\n" in fleet.properties(0)
        assert fleet.condition("Rolled")[:2] == ("True", "AsDeclared") and fleet.status("roll") is None
        if not was_killed:
            break
        survived += 1
    assert survived > 5


async def test_an_object_of_our_name_that_is_not_ours_is_left_alone_and_named() -> None:
    fleet = Fleet()
    metadata = {"name": "orders-bootstrap", "namespace": "default"}
    ports = [{"name": "theirs", "port": 1, "protocol": "TCP", "targetPort": 1}]
    fleet.kubernetes.put({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}})
    await fleet.converge()
    assert fleet.condition("Ready")[1] == "NotOurs" and "orders-bootstrap" in fleet.condition("Ready")[2]
    assert fleet.kubernetes.there(SERVICE, "orders-bootstrap")["spec"]["ports"] == ports
    assert [item["ready"] for item in fleet.status("brokers")] == [True] * 3


async def test_a_field_that_our_schema_does_not_know_is_kept_out_of_the_document() -> None:
    fleet = await _small()
    fleet.edit("spec.brokers.nonsense", 1)
    assert dig(fleet.kubernetes.there(KAFKA_CLUSTER, "orders"), "spec", "brokers", "nonsense") is None

"""The tests of tests/operator/runtime/test_cluster_task.py, on a real API server: every path of a reconcile."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from e2e.kubernetes_api import Kubernetes
from ottla_operator.api.objects import EVENT, KAFKA_CLUSTER, dig
from ottla_operator.effects.kubernetes_api import path_of
from tests.operator.fleet import CLUSTER, Fleet
from tests.operator.runtime import test_cluster_task as in_memory

pytestmark = [pytest.mark.kubernetes, pytest.mark.usefixtures("real_fleets"), pytest.mark.long]

globals().update({name: test for name, test in vars(in_memory).items() if name.startswith("test_")})


@pytest.fixture
def killed() -> dict[str, Any]:
    """One broker with one disk: an operator is killed after each of its writes, and every write is a request here."""
    small = copy.deepcopy(CLUSTER)
    small["spec"]["brokers"] |= {"replicas": 1, "disks": [{"name": "d0", "size": "1Gi"}], "config": {}}
    small["spec"]["zookeeper"] = {"replicas": 1, "disk": {"size": "1Gi"}}
    return small


async def test_a_field_that_the_schema_does_not_know_is_pruned(killed: dict[str, Any]) -> None:
    fleet = Fleet(killed)
    fleet.edit("spec.brokers.nonsense", 1)
    assert dig(fleet.kubernetes.there(KAFKA_CLUSTER, "orders"), "spec", "brokers", "nonsense") is None


async def test_fields_that_the_api_server_sets_are_no_difference(api: Kubernetes) -> None:
    """It does so of a Service whose address it has just given out or back, at moments of its own."""
    told = {
        "metadata": {"name": "orders-kafka.repaired", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Service", "namespace": "default", "name": "orders-kafka"},
        "reason": "ClusterIPNotAllocated",
        "source": {"component": "ipallocator-repair-controller"},
    }
    fleet = Fleet()
    api.request("POST", path_of(EVENT, "default", None), told)
    await fleet.converge()
    assert "orders-kafka.repaired" not in fleet.kubernetes.names(EVENT)
    assert fleet.kubernetes.names(EVENT)
    assert ("Event", "default", "orders-kafka.repaired") not in fleet.kubernetes.objects
    api.delete(EVENT, "orders-kafka.repaired", grace_s=0)

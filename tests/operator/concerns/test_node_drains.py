"""A cordoned node: which broker waits, and for what."""

from __future__ import annotations

import copy

from tests.operator.fleet import CLUSTER, Fleet
from tests.operator.kubernetes import node


async def _running(*, local_volumes: bool) -> Fleet:
    fleet = Fleet(copy.deepcopy(CLUSTER))
    fleet.kubernetes.local_volumes = local_volumes
    fleet.kafka.partitions = [("t", 0, (0, 1, 2))]
    await fleet.converge()
    fleet.kubernetes.writes.clear()
    return fleet


def _cordon(fleet: Fleet) -> None:
    fleet.kubernetes.put({**node("n2", "zone-b"), "spec": {"unschedulable": True}})


async def test_a_broker_on_a_cordoned_node_may_be_evicted_while_all_replicas_are_in_sync() -> None:
    fleet = await _running(local_volumes=False)
    _cordon(fleet)
    await fleet.converge()
    assert fleet.condition("NodesSchedulable") == (
        "False",
        "Cordoned",
        "broker 1 on cordoned node n2 may be evicted",
    )
    assert fleet.condition("Ready")[0] == "True"
    fleet.kubernetes.put(node("n2", "zone-b"))
    await fleet.converge()
    assert fleet.condition("NodesSchedulable")[0] == "True"


async def test_what_a_drain_waits_for_is_named() -> None:
    fleet = await _running(local_volumes=False)
    fleet.kafka.behind = {2}
    _cordon(fleet)
    await fleet.converge()
    status, reason, message = fleet.condition("NodesSchedulable")
    assert (status, reason) == ("False", "EvictionBlocked")
    assert message == "broker 1 on cordoned node n2 is not evicted now: t-0: replica 2 is not in sync"


async def test_a_broker_whose_volumes_are_on_the_node_waits_for_it() -> None:
    fleet = await _running(local_volumes=True)
    _cordon(fleet)
    await fleet.converge()
    status, reason, message = fleet.condition("NodesSchedulable")
    assert (status, reason) == ("False", "VolumesOnNode")
    assert "broker 1 on cordoned node n2 has volumes there (orders-broker-1-d0-1, orders-broker-1-d1-1)" in message
    fleet.kubernetes.writes.clear()
    await fleet.step()
    assert fleet.kubernetes.writes == []

"""A ZooKeeper server whose node is gone is replaced while all others serve, and not before."""

from __future__ import annotations

import copy

import pytest

from ottla_operator.api.objects import CLAIM, NODE, POD, dig, uid_of
from tests.operator.ensemble import EnsembleFleet
from tests.operator.fleet import CLUSTER
from tests.operator.killed_operator import every_third_or_every_write, killed_after_every_write
from tests.operator.kubernetes import node


async def _running(policy: str = "Replace", servers: int = 3) -> EnsembleFleet:
    document = copy.deepcopy(CLUSTER)
    document["spec"]["zookeeper"]["disk"]["onFailure"] = policy
    document["spec"]["zookeeper"]["replicas"] = servers
    fleet = EnsembleFleet(document)
    fleet.kubernetes.local_volumes = True
    for index, name in enumerate(("n1", "n2", "n3", "n4", "n5")):
        fleet.kubernetes.put(node(name, "zone-" + "abc"[index % 3]))
    spread = {f"orders-zookeeper-{server}-0": f"n{server}" for server in range(1, servers + 1)}
    elsewhere = fleet.kubernetes._node_for
    fleet.kubernetes._node_for = lambda pod: (  # type: ignore[method-assign]
        spread.get(pod["metadata"]["name"], "") or elsewhere(pod)
    )
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "True"
    fleet.ensemble.write()
    spread.clear()
    fleet.kubernetes.writes.clear()
    return fleet


def _lose_node(fleet: EnsembleFleet, name: str) -> None:
    fleet.kubernetes.remove(NODE, name)
    for pod in fleet.kubernetes.names(POD):
        if dig(fleet.kubernetes.there(POD, pod), "spec", "nodeName") == name:
            fleet.kubernetes.remove(POD, pod)


async def _until_replaced(fleet: EnsembleFleet) -> None:
    await fleet.converge()
    fleet.environment.passed_s += 61
    await fleet.converge()


def _uids(fleet: EnsembleFleet, server: int) -> list[str]:
    return [uid_of(fleet.kubernetes.there(CLAIM, f"orders-zookeeper-{server}-{role}-1")) for role in ("data", "log")]


def _deleted(fleet: EnsembleFleet) -> list[str]:
    return [name for verb, kind, name in fleet.kubernetes.writes if (verb, kind) == ("delete", "PersistentVolumeClaim")]


async def test_a_server_whose_node_is_gone_gets_new_volumes_and_copies_the_data_of_the_others() -> None:
    fleet = await _running()
    before = _uids(fleet, 3)
    _lose_node(fleet, "n3")
    await fleet.converge()
    status, reason, message = fleet.condition("ZooKeeperReady")
    assert (status, reason) == ("False", "NodeGone") and "which does not exist" in message
    assert _deleted(fleet) == []
    await _until_replaced(fleet)
    assert _deleted(fleet) == ["orders-zookeeper-3-data-1", "orders-zookeeper-3-log-1"]
    assert not set(before) & set(_uids(fleet, 3)) and fleet.is_serving(3)
    assert fleet.condition("ZooKeeperReady")[0] == "True" and not fleet.ensemble.overwritten
    fleet.kubernetes.writes.clear()
    fleet.restart_operator()
    await fleet.converge()
    assert fleet.kubernetes.writes == []


async def test_the_volumes_are_kept_without_the_policy() -> None:
    fleet = await _running("Keep")
    _lose_node(fleet, "n3")
    await _until_replaced(fleet)
    assert _deleted(fleet) == []
    assert fleet.condition("ZooKeeperReady")[1] == "NodeGone" and "is Keep" in fleet.condition("ZooKeeperReady")[2]


async def test_no_claim_is_deleted_while_another_server_does_not_serve() -> None:
    fleet = await _running(servers=5)
    fleet.ensemble.down = {1}
    _lose_node(fleet, "n5")
    await _until_replaced(fleet)
    assert _deleted(fleet) == [] and "server 1 does not serve" in fleet.condition("ZooKeeperReady")[2]
    fleet.ensemble.down = set()
    await _until_replaced(fleet)
    assert len(_deleted(fleet)) == 2 and fleet.condition("ZooKeeperReady")[0] == "True"


@pytest.mark.parametrize(
    ("policy", "servers", "down"), [("Replace", 5, {1}), ("Replace", 1, set()), ("Keep", 3, set())]
)
async def test_a_new_process_says_the_same_of_a_server_that_is_not_replaced(
    policy: str, servers: int, down: set[int]
) -> None:
    """How long it has seen that the node is gone decides when it acts, and not what status says."""
    fleet = await _running(policy, servers)
    fleet.ensemble.down = down
    _lose_node(fleet, f"n{servers}")
    await _until_replaced(fleet)
    before = fleet.condition("ZooKeeperReady")
    assert before[1] == "NodeGone"
    fleet.kubernetes.writes.clear()
    fleet.restart_operator()
    await fleet.step()
    assert fleet.condition("ZooKeeperReady") == before and fleet.kubernetes.writes == []


async def test_two_lost_nodes_of_three_lose_no_claim() -> None:
    fleet = await _running()
    _lose_node(fleet, "n2")
    _lose_node(fleet, "n3")
    await _until_replaced(fleet)
    fleet.environment.passed_s += 600
    await fleet.converge()
    assert _deleted(fleet) == []


@pytest.mark.extended
@every_third_or_every_write
async def test_the_replacement_goes_on_when_the_operator_is_killed_after_any_write(every: int) -> None:
    async def lost() -> EnsembleFleet:
        fleet = await _running()
        _lose_node(fleet, "n3")
        await fleet.converge()
        fleet.environment.passed_s += 61
        return fleet

    async for writes, fleet in killed_after_every_write(lost, _until_replaced, at_least=8, every=every):
        assert len(_deleted(fleet)) == 2 and fleet.is_serving(3) and not fleet.ensemble.overwritten, writes

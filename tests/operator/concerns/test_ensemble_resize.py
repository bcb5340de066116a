"""The size of the ensemble: servers join and leave one at a time, and no quorum is lost by it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ottla_operator.api import names
from ottla_operator.api.objects import CLAIM, CONFIG_MAP, DISRUPTION_BUDGET, KAFKA_CLUSTER, POD, STATEFUL_SET, label
from tests.operator.ensemble import EnsembleFleet
from tests.operator.fleet import CLUSTER
from tests.operator.killed_operator import killed_after_every_write

REPLICAS = "spec.zookeeper.replicas"


def _document(servers: int) -> dict[str, Any]:
    document = copy.deepcopy(CLUSTER)
    document["spec"]["zookeeper"] = {"replicas": servers, "disk": {"size": "5Gi", "storageClassName": "local"}}
    document["spec"]["brokers"] = {"replicas": 1, "disks": [{"name": "d0", "size": "1Gi", "storageClassName": "local"}]}
    return document


async def _running(servers: int) -> EnsembleFleet:
    fleet = EnsembleFleet(_document(servers))
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "True"
    fleet.ensemble.write()
    return fleet


def _members(fleet: EnsembleFleet) -> list[int]:
    return sorted(fleet.environment.ensemble_members.servers)


def _changes(fleet: EnsembleFleet) -> list[str]:
    return fleet.environment.ensemble_members.changes


def _servers(fleet: EnsembleFleet) -> list[str]:
    return [name for name in fleet.kubernetes.names(STATEFUL_SET) if "zookeeper" in name]


async def _steps_safely(fleet: EnsembleFleet) -> None:
    """Reconciles to rest; after every pass the ensemble serves, and no server that has a vote lacks its pod."""

    def check() -> None:
        fleet.ensemble.write()
        assert set(_members(fleet)) <= set(fleet.ensemble.serving()), "a member was stopped"

    fleet.check = check  # type: ignore[method-assign]
    await fleet.converge()
    assert not fleet.environment.ensemble_members.unsafe
    assert not fleet.ensemble.overwritten


async def test_an_even_size_that_was_stored_before_api_servers_refused_it_changes_nothing() -> None:
    fleet = await _running(3)
    fleet.kubernetes.writes.clear()
    fleet.edit(REPLICAS, 2)
    await _steps_safely(fleet)
    status, reason, message = fleet.condition("ZooKeeperReady")
    assert (status, reason) == ("False", "InvalidSpec") and "spec.zookeeper.replicas: must be odd, not 2" in message
    fleet.edit(REPLICAS, 3)
    await _steps_safely(fleet)
    assert fleet.condition("Ready")[0] == "True" and _changes(fleet) == []
    assert {verb for verb, kind, _ in fleet.kubernetes.writes if kind != "Event"} == {"status"}


async def test_the_ensemble_grows_and_shrinks_one_server_at_a_time_and_serves_throughout() -> None:
    fleet = await _running(1)
    properties, pods = fleet.properties(0), fleet.kubernetes.there(POD, "orders-broker-0-0")["metadata"]["uid"]
    expected: list[str] = []
    for size, changes in (
        (3, ["+2", "+3"]),
        (5, ["+4", "+5"]),
        (3, ["-5", "-4"]),
        (1, ["-3", "-2"]),
        (3, ["+2", "+3"]),
    ):
        fleet.edit(REPLICAS, size)
        await _steps_safely(fleet)
        expected += changes
        assert _changes(fleet) == expected
        assert _members(fleet) == list(range(1, size + 1))
        assert _servers(fleet) == [f"orders-zookeeper-{server}" for server in range(1, size + 1)]
        assert fleet.condition("Ready")[0] == "True", fleet.condition("Ready")
        budget = fleet.kubernetes.there(DISRUPTION_BUDGET, "orders-zookeeper")["spec"]["minAvailable"]
        assert budget == size - 1
    assert fleet.properties(0) == properties
    assert fleet.kubernetes.there(POD, "orders-broker-0-0")["metadata"]["uid"] == pods, "no broker was restarted"


async def test_a_resized_ensemble_causes_no_write_and_no_question_at_rest() -> None:
    fleet = await _running(1)
    fleet.edit(REPLICAS, 3)
    await _steps_safely(fleet)
    writes = len(fleet.kubernetes.writes)
    fleet.restart_operator()
    for _ in range(3):
        await fleet.step()
    assert len(fleet.kubernetes.writes) == writes
    snapshot = await fleet.task.snapshot(fleet.kubernetes.there(KAFKA_CLUSTER, "orders"))
    observed = (await fleet.task.observations(snapshot)).ensemble
    assert observed.servers == {} and observed.membership is None


async def test_the_claims_of_a_server_that_left_stay_and_what_they_hold_is_not_used_when_it_joins_again() -> None:
    fleet = await _running(3)
    fleet.edit(REPLICAS, 1)
    await _steps_safely(fleet)
    left = fleet.kubernetes.there(CLAIM, "orders-zookeeper-3-data-1")
    assert label(left, names.REMOVED) == "true"
    before = fleet.ensemble.volumes[left["metadata"]["uid"]]
    for _ in range(5):
        fleet.ensemble.write()
    fleet.edit(REPLICAS, 3)
    await _steps_safely(fleet)
    claim = fleet.kubernetes.there(CLAIM, "orders-zookeeper-3-data-1")
    assert claim["metadata"]["uid"] == left["metadata"]["uid"] and label(claim, names.REMOVED) == "false"
    marker, zxid = fleet.ensemble.volumes[left["metadata"]["uid"]]
    assert marker != before[0] and zxid == fleet.ensemble.acknowledged


def _ensemble_claims(fleet: EnsembleFleet) -> list[str]:
    return [name for name in fleet.kubernetes.names(CLAIM) if "zookeeper" in name]


async def test_the_claims_of_servers_that_left_are_deleted_when_spec_says_so_and_it_can_grow_again() -> None:
    fleet = await _running(3)
    fleet.edit("spec.zookeeper.claimDeletionPolicy", "Delete")
    await _steps_safely(fleet)
    assert len(_ensemble_claims(fleet)) == 3, "no server has left"
    for _ in range(2):
        before = {name: fleet.kubernetes.there(CLAIM, name)["metadata"]["uid"] for name in _ensemble_claims(fleet)}
        fleet.edit(REPLICAS, 1)
        await _steps_safely(fleet)
        assert _ensemble_claims(fleet) == ["orders-zookeeper-1-data-1"]
        assert fleet.condition("Ready")[0] == "True"
        for _ in range(5):
            fleet.ensemble.write()
        fleet.edit(REPLICAS, 3)
        await _steps_safely(fleet)
        after = {name: fleet.kubernetes.there(CLAIM, name)["metadata"]["uid"] for name in _ensemble_claims(fleet)}
        assert _members(fleet) == [1, 2, 3] and len(set(before.values()) & set(after.values())) == 1
        assert fleet.ensemble.volumes[after["orders-zookeeper-3-data-1"]][1] == fleet.ensemble.acknowledged


async def test_claims_of_servers_that_left_go_once_the_policy_says_so_and_no_other_claim_does() -> None:
    fleet = await _running(3)
    fleet.edit(REPLICAS, 1)
    await _steps_safely(fleet)
    assert len(_ensemble_claims(fleet)) == 3
    fleet.kubernetes.writes.clear()
    fleet.edit("spec.zookeeper.claimDeletionPolicy", "Delete")
    await _steps_safely(fleet)
    gone = sorted(name for verb, kind, name in fleet.kubernetes.writes if (verb, kind) == ("delete", CLAIM.kind))
    assert gone == ["orders-zookeeper-2-data-1", "orders-zookeeper-3-data-1"]
    fleet.kubernetes.writes.clear()
    await _steps_safely(fleet)
    assert fleet.kubernetes.writes == []


async def test_no_claim_of_a_server_that_left_is_deleted_while_a_member_does_not_serve() -> None:
    fleet = await _running(5)
    fleet.edit(REPLICAS, 3)
    await _steps_safely(fleet)
    fleet.ensemble.down = {2}
    for _ in range(3):
        await fleet.step()
    assert fleet.condition("ZooKeeperReady")[0] == "False"
    fleet.edit("spec.zookeeper.claimDeletionPolicy", "Delete")
    for _ in range(10):
        await fleet.step()
    assert len(_ensemble_claims(fleet)) == 5
    fleet.ensemble.down = set()
    await _steps_safely(fleet)
    assert len(_ensemble_claims(fleet)) == 3


async def test_the_leader_leaves_last() -> None:
    fleet = await _running(5)
    fleet.ensemble.leader = 5
    fleet.edit(REPLICAS, 1)
    await _steps_safely(fleet)
    assert _changes(fleet) == ["-4", "-3", "-2", "-5"]


async def test_a_server_that_does_not_serve_leaves_first() -> None:
    fleet = await _running(3)
    fleet.ensemble.down = {2}
    fleet.edit(REPLICAS, 1)
    await fleet.converge()
    assert _changes(fleet) == ["-2", "-3"] and fleet.condition("Ready")[0] == "True"


@pytest.mark.parametrize(("down", "size"), [({1}, 1), ({1, 2}, 1), ({2}, 5), ({2, 3}, 5)])
async def test_nothing_joins_or_leaves_while_a_server_that_stays_does_not_serve(down: set[int], size: int) -> None:
    fleet = await _running(3)
    fleet.ensemble.down = down
    fleet.kubernetes.settle()
    fleet.edit(REPLICAS, size)
    await fleet.converge()
    assert _changes(fleet) == [] and len(_servers(fleet)) == 3
    assert fleet.condition("ZooKeeperReady")[1] in ("WaitingForServers", "NoQuorum")
    fleet.ensemble.down = set()
    await _steps_safely(fleet)
    assert _members(fleet) == list(range(1, size + 1))


async def test_a_server_that_cannot_start_does_not_join_and_can_be_called_off() -> None:
    fleet = await _running(1)
    fleet.ensemble.down = {2}
    fleet.edit(REPLICAS, 3)
    await fleet.converge()
    status, reason, message = fleet.condition("ZooKeeperReady")
    assert (status, reason) == ("False", "Resizing")
    assert "server 2 starts and copies the data" in message
    assert _changes(fleet) == [] and _servers(fleet) == ["orders-zookeeper-1", "orders-zookeeper-2"]
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    await fleet.converge()
    assert "log.retention.hours=7" in fleet.properties(0), "brokers are rolled meanwhile"
    fleet.edit(REPLICAS, 1)
    await _steps_safely(fleet)
    assert _servers(fleet) == ["orders-zookeeper-1"] and fleet.condition("Ready")[0] == "True"


async def test_zookeepers_refusal_is_reported_and_tried_again() -> None:
    fleet = await _running(1)
    fleet.environment.ensemble_members.refusal = "NoAuth"
    fleet.edit(REPLICAS, 3)
    said = []
    for _ in range(40):
        await fleet.step()
        said.append(fleet.condition("ZooKeeperReady")[2])
    assert any("ZooKeeper has refused it: NoAuth" in message for message in said)
    await _steps_safely(fleet)
    assert fleet.condition("Ready")[0] == "True"


async def test_a_reconfiguration_whose_answer_is_lost_is_not_done_twice() -> None:
    fleet = await _running(1)
    fleet.environment.ensemble_members.loses_answer = True
    fleet.edit(REPLICAS, 3)
    await _steps_safely(fleet)
    assert _changes(fleet) == ["+2", "+3"]


async def test_servers_of_others_in_the_configuration_are_reported_and_nothing_is_changed() -> None:
    fleet = await _running(3)
    fleet.environment.ensemble_members.servers[3] = "elsewhere:2888:3888:participant;0.0.0.0:2181"
    fleet.edit(REPLICAS, 1)
    await fleet.converge()
    assert "server.3=elsewhere" in fleet.condition("ZooKeeperReady")[2]
    assert _changes(fleet) == [] and len(_servers(fleet)) == 3


async def test_a_paused_cluster_is_not_resized() -> None:
    fleet = await _running(1)
    fleet.edit("spec.paused", True)
    fleet.edit(REPLICAS, 3)
    await fleet.converge()
    assert _changes(fleet) == [] and _servers(fleet) == ["orders-zookeeper-1"]


@pytest.mark.parametrize(("before", "after", "policy"), [(1, 3, "Retain"), (3, 1, "Retain"), (3, 1, "Delete")])
@pytest.mark.long
async def test_an_operator_killed_between_any_two_writes_of_a_resize_ends_in_the_same_state(
    before: int, after: int, policy: str
) -> None:
    async def resized() -> EnsembleFleet:
        fleet = await _running(before)
        fleet.edit("spec.zookeeper.claimDeletionPolicy", policy)
        fleet.edit(REPLICAS, after)
        return fleet

    undisturbed = await resized()
    await _steps_safely(undisturbed)
    async for writes, fleet in killed_after_every_write(resized, _steps_safely, at_least=6):
        assert fleet.picture() == undisturbed.picture(), f"killed after {writes} writes"
        assert _members(fleet) == list(range(1, after + 1))


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1)])
async def test_a_resize_can_be_undone_at_any_time(before: int, after: int) -> None:
    for passes in range(1, 26, 3):
        fleet = await _running(before)
        fleet.edit(REPLICAS, after)
        for _ in range(passes):
            await fleet.step()
        fleet.edit(REPLICAS, before)
        await _steps_safely(fleet)
        assert _members(fleet) == list(range(1, before + 1))
        assert len(_servers(fleet)) == before
        assert fleet.condition("Ready")[0] == "True", fleet.condition("Ready")


async def test_a_new_ensemble_does_not_begin_with_volumes_of_a_server_that_had_left_another_one() -> None:
    fleet = await _running(3)
    fleet.edit(REPLICAS, 1)
    await _steps_safely(fleet)
    fleet.kubernetes.remove(KAFKA_CLUSTER, "orders")
    for _ in range(3):
        fleet.kubernetes.settle()
    for name in fleet.claims():
        if "zookeeper-3" not in name:
            fleet.kubernetes.remove(CLAIM, name)
    fleet.ensemble.acknowledged = -1  # another ensemble
    fleet.kubernetes.put(_document(3))
    fleet.restart_operator()
    await fleet.step()
    assert len(fleet.kubernetes.there(CONFIG_MAP, "orders-zookeeper")["data"]["members"].splitlines()) == 2
    await _steps_safely(fleet)
    assert _members(fleet) == [1, 2, 3]
    assert fleet.condition("ZooKeeperReady")[0] == "True", fleet.condition("ZooKeeperReady")


async def test_a_roll_restarts_the_leader_last() -> None:
    fleet = await _running(3)
    fleet.ensemble.leader = 1
    fleet.edit("spec.zookeeper.resources", {"requests": {"cpu": "1"}})
    await fleet.converge()
    deleted = [name for verb, kind, name in fleet.kubernetes.writes if (verb, kind) == ("delete", "Pod")]
    assert deleted == ["orders-zookeeper-2-0", "orders-zookeeper-3-0", "orders-zookeeper-1-0"]

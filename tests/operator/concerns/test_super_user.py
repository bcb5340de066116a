"""The Secret of ZooKeeper's super user: made again when somebody deletes it, and then loaded by every server."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ottla_operator.api import names
from ottla_operator.api.objects import KAFKA_CLUSTER, POD, SECRET, STATEFUL_SET, annotation, uid_of
from tests.operator.ensemble import SUPER_SECRET, EnsembleFleet
from tests.operator.fleet import CLUSTER
from tests.operator.killed_operator import killed_after_every_write


def _document() -> dict[str, Any]:
    document = copy.deepcopy(CLUSTER)
    document["spec"]["brokers"] = {"replicas": 1, "disks": [{"name": "d0", "size": "1Gi", "storageClassName": "local"}]}
    return document


async def _running() -> EnsembleFleet:
    fleet = EnsembleFleet(_document())
    fleet.kubernetes.clock = fleet.environment.now
    await fleet.converge()
    fleet.ensemble.write()
    return fleet


async def _lose_the_secret(fleet: EnsembleFleet, password: str = "another") -> None:
    """Somebody deletes it a minute later; the operator reads it every ten minutes."""
    fleet.environment.passed_s += 60
    fleet.kubernetes.remove(SECRET, SUPER_SECRET)
    fleet.environment.next_password = password
    fleet.time += 601
    fleet.environment.passed_s += 601


def _servers_deleted(fleet: EnsembleFleet) -> list[str]:
    return [name for verb, kind, name in fleet.kubernetes.writes if (verb, kind) == ("delete", POD.kind)]


def _pods(fleet: EnsembleFleet) -> dict[str, str]:
    return {name: uid_of(fleet.kubernetes.there(POD, name)) for name in fleet.kubernetes.names(POD)}


async def test_servers_restart_one_at_a_time_the_leader_last_once_the_secret_was_made_again() -> None:
    fleet = await _running()
    leader = fleet.ensemble.leader
    assert fleet.ensemble.passwords() == {1: "secret", 2: "secret", 3: "secret"}
    brokers = {name: uid for name, uid in _pods(fleet).items() if "broker" in name}
    await _lose_the_secret(fleet)
    fleet.kubernetes.writes.clear()
    reasons = set()

    def check() -> None:
        assert len(fleet.ensemble.serving()) >= 2
        fleet.ensemble.write()
        reasons.update(r for one in fleet.status("roll", "plan") or [] for r in one["reasons"])

    fleet.check = check  # type: ignore[method-assign]
    await fleet.converge()
    assert fleet.ensemble.passwords() == {1: "another", 2: "another", 3: "another"}
    order = _servers_deleted(fleet)
    assert len(order) == 3 and order[-1] == f"orders-zookeeper-{leader}-0"
    assert "SuperUserChanged" in reasons and fleet.condition("Ready")[0] == "True"
    assert {name: uid for name, uid in _pods(fleet).items() if "broker" in name} == brokers
    assert not fleet.ensemble.overwritten
    fleet.kubernetes.writes.clear()
    fleet.restart_operator()
    await fleet.converge()
    assert fleet.kubernetes.writes == []


async def test_a_resize_that_zookeeper_refuses_for_the_new_password_goes_on_after_the_restarts() -> None:
    fleet = await _running()
    await _lose_the_secret(fleet)
    fleet.edit("spec.zookeeper.replicas", 5)
    await fleet.converge(300)
    members = fleet.environment.ensemble_members
    assert members.changes == ["+4", "+5"] and not members.unsafe
    assert set(fleet.ensemble.passwords().values()) == {"another"} and fleet.condition("Ready")[0] == "True"


@pytest.mark.long
async def test_an_operator_killed_after_any_write_restarts_every_server_once() -> None:
    async def lost() -> EnsembleFleet:
        fleet = await _running()
        await _lose_the_secret(fleet)
        fleet.kubernetes.writes.clear()
        return fleet

    async for writes, fleet in killed_after_every_write(lost, at_least=7):
        assert set(fleet.ensemble.passwords().values()) == {"another"}, f"killed after {writes} writes"
        assert len(_servers_deleted(fleet)) == 3


async def test_a_server_that_waited_for_the_missing_secret_is_not_restarted_once_more() -> None:
    fleet = await _running()
    fleet.environment.passed_s += 60
    fleet.kubernetes.remove(SECRET, SUPER_SECRET)
    fleet.kubernetes.remove(POD, "orders-zookeeper-1-0")
    fleet.kubernetes.settle()
    fleet.kubernetes.settle()
    assert fleet.ensemble.refused[1] == f'secret "{SUPER_SECRET}" not found'
    fleet.environment.next_password = "another"
    fleet.environment.passed_s += 601
    fleet.time += 601
    fleet.kubernetes.writes.clear()
    waited = _pods(fleet)["orders-zookeeper-1-0"]
    await fleet.converge()
    assert fleet.ensemble.passwords() == {1: "another", 2: "another", 3: "another"}
    assert sorted(_servers_deleted(fleet)) == ["orders-zookeeper-2-0", "orders-zookeeper-3-0"]
    assert _pods(fleet)["orders-zookeeper-1-0"] == waited and fleet.condition("Ready")[0] == "True"


async def test_a_server_whose_container_has_started_again_since_is_not_restarted() -> None:
    fleet = await _running()
    fleet.edit("spec.rolling", {"approval": "Manual"})
    await _lose_the_secret(fleet)
    await fleet.converge()
    fleet.ensemble.restart_container(2)
    await fleet.converge()
    assert fleet.ensemble.passwords() == {1: "secret", 2: "another", 3: "secret"}
    fleet.kubernetes.writes.clear()
    fleet.edit("spec.rolling", {"approval": "Automatic"})
    await fleet.converge()
    assert sorted(_servers_deleted(fleet)) == ["orders-zookeeper-1-0", "orders-zookeeper-3-0"]
    assert set(fleet.ensemble.passwords().values()) == {"another"}


async def test_a_server_that_does_not_answer_which_password_it_has_is_not_restarted_for_it() -> None:
    fleet = await _running()
    fleet.environment.silent = {2}
    await _lose_the_secret(fleet)
    fleet.kubernetes.writes.clear()
    await fleet.converge()
    assert sorted(_servers_deleted(fleet)) == ["orders-zookeeper-1-0", "orders-zookeeper-3-0"]
    fleet.environment.silent = set()
    await fleet.converge()
    assert set(fleet.ensemble.passwords().values()) == {"another"}


async def test_servers_are_asked_for_their_password_once_and_never_when_they_are_newer_than_the_secret() -> None:
    fleet = await _running()
    assert fleet.environment.asked == []
    fleet.edit("spec.rolling", {"approval": "Manual"})
    await _lose_the_secret(fleet)
    await fleet.converge()
    await fleet.converge()
    assert sorted(fleet.environment.asked) == [1, 2, 3]


async def test_a_secret_made_again_twice_restarts_the_servers_twice() -> None:
    fleet = await _running()
    for password in ("another", "third"):
        await _lose_the_secret(fleet, password)
        fleet.kubernetes.writes.clear()
        await fleet.converge()
        assert set(fleet.ensemble.passwords().values()) == {password} and len(_servers_deleted(fleet)) == 3


async def test_no_server_restarts_while_the_secret_is_the_one_that_it_started_with() -> None:
    """Nor do those that have started with the Secret before there was an annotation, or after it was made again."""
    fleet = await _running()
    await _lose_the_secret(fleet)
    await fleet.converge()
    fleet.environment.passed_s += 60
    fleet.edit("spec.zookeeper.replicas", 5)
    await fleet.converge(300)
    marked = {
        name: annotation(fleet.kubernetes.there(STATEFUL_SET, name)["spec"]["template"], names.SUPER_USER)
        for name in fleet.kubernetes.names(STATEFUL_SET)
        if "zookeeper" in name
    }
    secret = uid_of(fleet.kubernetes.there(SECRET, SUPER_SECRET))
    assert [marked[f"orders-zookeeper-{server}"] for server in range(1, 6)] == [secret, secret, secret, None, None]
    before = _pods(fleet)
    for _ in range(3):
        fleet.time += 601
        await fleet.step()
    assert _pods(fleet) == before


async def test_a_restart_for_the_secret_waits_for_an_approval_of_its_own() -> None:
    fleet = await _running()
    fleet.edit("spec.rolling", {"approval": "Manual"})
    await _lose_the_secret(fleet)
    fleet.kubernetes.writes.clear()
    await fleet.converge()
    assert fleet.condition("Rolled")[1] == "AwaitingApproval" and _servers_deleted(fleet) == []
    document = fleet.kubernetes.there(KAFKA_CLUSTER, "orders")
    approval = fleet.status("roll", "awaitingApproval")
    document["metadata"].setdefault("annotations", {})[names.APPROVE_ROLL] = approval
    fleet.kubernetes.put(document)
    await fleet.converge()
    assert set(fleet.ensemble.passwords().values()) == {"another"} and fleet.condition("Rolled")[0] == "True"

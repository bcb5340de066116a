"""Log directories are emptied before their volumes go: drained, removed, replaced by another generation or class."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ottla_operator.api import names
from ottla_operator.api.objects import CLAIM, POD, STORAGE_CLASS, annotation, dig, label, new
from tests.operator.fleet import CLUSTER, Fleet
from tests.operator.killed_operator import is_killed_after

D0, D1 = "/var/lib/ottla/d0/log", "/var/lib/ottla/d1/log"
LARGE = 2 << 20
"""Bytes of a replica that counts among the four that move at the same time."""
PARTITIONS = [("t", index, (0, 1, 2)) for index in range(10)]


async def _running(deletion: str | None = None, disks: int = 2) -> Fleet:
    document = copy.deepcopy(CLUSTER)
    document["spec"]["brokers"]["disks"] = document["spec"]["brokers"]["disks"][:disks]
    if deletion is not None:
        document["spec"]["brokers"]["claimDeletionPolicy"] = deletion
    fleet = Fleet(document)
    fleet.kafka.partitions = list(PARTITIONS)
    await fleet.converge()
    for broker in range(3):
        for topic, index, _ in PARTITIONS:
            fleet.kafka.places[broker, topic, index] = D1 if index % 2 and disks > 1 else D0
    fleet.kubernetes.writes.clear()
    return fleet


async def _pass(fleet: Fleet, passes: int = 12) -> None:
    """Requests to brokers are no writes: until the places of replicas do not change either."""
    for _ in range(passes):
        await fleet.step()
    await fleet.converge()


def _disks(fleet: Fleet, **changes: Any) -> list[dict[str, Any]]:
    return [{**disk, **(changes if disk["name"] == "d1" else {})} for disk in CLUSTER["spec"]["brokers"]["disks"]]


def _on(fleet: Fleet, broker: int, path: str) -> int:
    return sum(1 for (number, _, _), place in fleet.kafka.places.items() if number == broker and place == path)


def _cordoned(fleet: Fleet, broker: int) -> str | None:
    return fleet.kafka.dynamic.get(broker, {}).get("cordoned.log.dirs")


def _pod_claims(fleet: Fleet, broker_id: int) -> list[str]:
    pod = fleet.kubernetes.there(POD, f"orders-broker-{broker_id}-0")
    return [v["persistentVolumeClaim"]["claimName"] for v in pod["spec"]["volumes"] if "persistentVolumeClaim" in v]


def _drain_of(fleet: Fleet, broker: int) -> list[str | None]:
    return [disk.get("drain") for disk in fleet.status("brokers", broker, "disks")]


async def test_a_drained_disk_of_one_broker_loses_its_replicas_to_the_other_disk_and_gets_no_new_one() -> None:
    fleet = await _running()
    fleet.kafka.sizes = {"t": LARGE}
    fleet.edit("spec.brokers.overrides", [{"id": 1, "disks": [{"name": "d1", "state": "Drain"}]}])
    await _pass(fleet)
    assert (_on(fleet, 1, D1), _on(fleet, 1, D0)) == (0, 10) and _on(fleet, 0, D1) == 5
    assert _cordoned(fleet, 1) == D1 and _cordoned(fleet, 0) is None
    assert _drain_of(fleet, 1) == [None, "Drained"] and fleet.condition("DisksReady")[0] == "True"
    assert fleet.kafka.most_moves <= 4
    assert [write for write in fleet.kubernetes.writes if write[0] == "delete"] == [], "nothing is restarted"
    fleet.kubernetes.writes.clear()
    fleet.restart_operator()
    await _pass(fleet, 5)
    assert fleet.kubernetes.writes == []


async def test_a_disk_is_drained_on_every_broker_and_active_again() -> None:
    fleet = await _running()
    fleet.edit("spec.brokers.disks", _disks(fleet, state="Drain"))
    await _pass(fleet)
    assert [_on(fleet, broker, D1) for broker in range(3)] == [0, 0, 0]
    fleet.edit("spec.brokers.disks", _disks(fleet))
    await _pass(fleet)
    assert [_cordoned(fleet, broker) for broker in range(3)] == [None] * 3
    assert annotation(fleet.kubernetes.there(CLAIM, "orders-broker-0-d1-1"), names.CORDONED) != "true"


async def test_what_somebody_else_has_cordoned_stays_cordoned() -> None:
    fleet = await _running()
    fleet.edit("spec.brokers.disks", [*_disks(fleet), {"name": "d2", "size": "1Gi"}])
    await _pass(fleet)
    theirs = "/var/lib/ottla/d2/log"
    fleet.kafka.dynamic[0] = {"cordoned.log.dirs": theirs}
    fleet.edit("spec.brokers.overrides", [{"id": 0, "disks": [{"name": "d1", "state": "Drain"}]}])
    await _pass(fleet)
    assert _cordoned(fleet, 0) == f"{D1},{theirs}"
    fleet.edit("spec.brokers.overrides", None)
    await _pass(fleet)
    assert _cordoned(fleet, 0) == theirs


async def test_replicas_that_are_on_their_way_are_waited_for() -> None:
    fleet = await _running()
    fleet.kafka.moves_are_slow = True
    fleet.kafka.sizes = {"t": LARGE}
    fleet.edit("spec.brokers.overrides", [{"id": 1, "disks": [{"name": "d1", "state": "Drain"}]}])
    await _pass(fleet, 10)
    assert len(fleet.kafka.moving_log_dirs) == 4
    status, reason, message = fleet.condition("DisksReady")
    assert (status, reason) == ("False", "Draining") and "has 5 replicas left, 4 move" in message
    assert _drain_of(fleet, 1) == [None, "Draining"]


@pytest.mark.parametrize("change", ["state", "class"])
async def test_the_only_log_directory_of_a_broker_is_not_cordoned(change: str) -> None:
    """No new partition could be placed on the broker."""
    fleet = await _running(disks=1)
    disk = dict(CLUSTER["spec"]["brokers"]["disks"][0])
    changes = {"state": "Drain"} if change == "state" else {"storageClassName": "other"}
    fleet.edit("spec.brokers.disks", [{**disk, **changes}])
    await _pass(fleet, 10)
    assert [_cordoned(fleet, broker) for broker in range(3)] == [None] * 3
    message = fleet.condition("DisksReady")[2]
    if change == "state":
        assert "no broker would have a log directory left" in message
    else:
        assert "broker 0" in message and "10 replicas left, which move to other brokers; the rebalance: " in message
    fleet.edit("spec.brokers.disks", [disk])
    await _pass(fleet, 5)
    assert fleet.condition("DisksReady")[0] == "True"


async def _with_single_disks(**rebalance: str) -> Fleet:
    document = copy.deepcopy(CLUSTER)
    document["spec"]["brokers"]["disks"] = document["spec"]["brokers"]["disks"][:1]
    document["spec"]["rebalance"] = rebalance
    fleet = Fleet(document)
    fleet.kafka.partitions = [("t", index, (index % 3, (index + 1) % 3)) for index in range(9)]
    await fleet.converge(300)
    fleet.kubernetes.writes.clear()
    return fleet


def _has(fleet: Fleet, broker: int) -> int:
    return sum(broker in replicas for _, _, replicas in fleet.kafka.partitions)


async def test_the_replicas_of_a_broker_with_a_single_disk_move_to_other_brokers() -> None:
    fleet = await _with_single_disks()
    fleet.edit("spec.brokers.overrides", [{"id": 1, "disks": [{"name": "d0", "state": "Drain"}]}])
    texts = []
    for _ in range(20):
        await fleet.step()
        texts.append(fleet.condition("DisksReady")[2])
        if _has(fleet, 1):
            assert _cordoned(fleet, 1) is None, "a partition that needs the broker can be placed"
    await fleet.converge(300)
    assert any(
        "broker 1 (spec.brokers.overrides: state Drain) has 6 replicas left, which move to" in text for text in texts
    )
    assert _has(fleet, 1) == 0 and _cordoned(fleet, 1) == D0 and _drain_of(fleet, 1) == ["Drained"]
    assert all(len(replicas) == 2 for _, _, replicas in fleet.kafka.partitions)
    assert fleet.condition("DisksReady")[0] == "True"
    fleet.kubernetes.writes.clear()
    await fleet.converge()
    assert fleet.kubernetes.writes == []
    fleet.edit("spec.brokers.overrides", None)
    await _pass(fleet, 30)
    await fleet.converge(300)
    assert _has(fleet, 1) > 0 and not _cordoned(fleet, 1)


async def test_a_generation_replaces_the_volume_of_a_broker_with_a_single_disk_after_its_replicas_have_left() -> None:
    fleet = await _with_single_disks()
    fleet.edit("spec.brokers.overrides", [{"id": 1, "disks": [{"name": "d0", "generation": 2}]}])
    for _ in range(60):
        await fleet.step()
        if _has(fleet, 1):
            assert "orders-broker-1-d0-2" not in fleet.claims() or "orders-broker-1-d0-2" in _pod_claims(fleet, 1)
    await fleet.converge(300)
    assert _pod_claims(fleet, 1) == ["orders-broker-1-d0-2"] and not _cordoned(fleet, 1)
    assert _has(fleet, 1) > 0, "the rebalance gives it its share again"
    assert fleet.condition("DisksReady")[0] == "True"


async def test_a_single_disk_waits_for_a_person_where_the_operator_moves_nothing() -> None:
    fleet = await _with_single_disks(mode="Off")
    fleet.edit("spec.brokers.overrides", [{"id": 1, "disks": [{"name": "d0", "state": "Drain"}]}])
    await _pass(fleet)
    message = fleet.condition("DisksReady")[2]
    assert "once somebody moves them (kafka-reassign-partitions): spec.rebalance.mode is Off" in message
    assert _has(fleet, 1) == 6 and fleet.condition("DisksReady")[1] == "Draining"


async def test_a_single_disk_whose_replicas_fit_nowhere_else_says_so() -> None:
    fleet = await _running(disks=1)
    fleet.edit("spec.brokers.overrides", [{"id": 1, "disks": [{"name": "d0", "state": "Drain"}]}])
    await _pass(fleet)
    message = fleet.condition("DisksReady")[2]
    assert "10 replicas left, which move to other brokers; the rebalance: " in message and "3 replicas" in message
    assert _cordoned(fleet, 1) is None and all(len(replicas) == 3 for _, _, replicas in fleet.kafka.partitions)


async def test_a_disk_with_replicas_that_is_no_longer_named_is_kept_and_nothing_is_moved() -> None:
    fleet = await _running()
    fleet.edit("spec.brokers.disks", _disks(fleet)[:1])
    await _pass(fleet)
    status, reason, message = fleet.condition("DisksReady")
    assert (status, reason) == ("False", "DiskRemoved")
    assert "log directory d1 of broker 0" in message and "holds 5 replicas" in message
    assert _pod_claims(fleet, 0) == ["orders-broker-0-d0-1", "orders-broker-0-d1-1"] and _on(fleet, 0, D1) == 5
    fleet.edit("spec.brokers.disks", _disks(fleet))
    await _pass(fleet)
    assert fleet.condition("Ready")[0] == "True" and _cordoned(fleet, 0) is None


@pytest.mark.parametrize("deletion", [None, "Delete"])
async def test_a_drained_disk_is_removed_from_every_broker_in_a_roll(deletion: str | None) -> None:
    fleet = await _running(deletion)
    fleet.edit("spec.brokers.disks", _disks(fleet, state="Drain"))
    await _pass(fleet)
    fleet.edit("spec.brokers.disks", _disks(fleet)[:1])
    await _pass(fleet, 60)
    assert [_pod_claims(fleet, broker) for broker in range(3)] == [[f"orders-broker-{n}-d0-1"] for n in range(3)]
    assert "d1" not in fleet.properties(0) and fleet.condition("Ready")[0] == "True"
    assert fleet.condition("Rolled")[0] == "True"
    assert [_cordoned(fleet, broker) for broker in range(3)] == [None] * 3
    left = [name for name in fleet.claims() if "-d1-" in name]
    if deletion == "Delete":
        assert left == []
    else:
        assert {label(fleet.kubernetes.there(CLAIM, name), names.RETIRED) for name in left} == {"removed"}
    fleet.kubernetes.writes.clear()
    fleet.restart_operator()
    await _pass(fleet, 5)
    assert fleet.kubernetes.writes == []


@pytest.mark.parametrize("deletion", [None, "Delete"])
async def test_a_disk_that_was_removed_can_be_added_again_with_an_empty_volume(deletion: str | None) -> None:
    fleet = await _running(deletion)
    fleet.edit("spec.brokers.disks", _disks(fleet, state="Drain"))
    await _pass(fleet)
    fleet.edit("spec.brokers.disks", _disks(fleet)[:1])
    await _pass(fleet, 60)
    fleet.edit("spec.brokers.disks", _disks(fleet))
    await _pass(fleet, 30)
    generation = 1 if deletion == "Delete" else 2
    assert _pod_claims(fleet, 2) == ["orders-broker-2-d0-1", f"orders-broker-2-d1-{generation}"]
    assert fleet.condition("Ready")[0] == "True"


async def test_another_generation_drains_the_disk_and_gives_the_broker_an_empty_volume() -> None:
    fleet = await _running()
    fleet.edit("spec.brokers.overrides", [{"id": 1, "disks": [{"name": "d1", "generation": 2}]}])
    on_restart = []
    for _ in range(80):
        before = _pod_claims(fleet, 1) if "orders-broker-1-0" in fleet.kubernetes.names(POD) else []
        await fleet.step()
        if before and "orders-broker-1-0" in fleet.kubernetes.names(POD) and _pod_claims(fleet, 1) != before:
            on_restart.append((_on(fleet, 1, D1), _cordoned(fleet, 1)))
    await fleet.converge()
    assert on_restart == [(0, D1)], "one restart, with the directory empty and cordoned"
    assert _pod_claims(fleet, 1) == ["orders-broker-1-d0-1", "orders-broker-1-d1-2"]
    assert _cordoned(fleet, 1) is None and fleet.condition("Ready")[0] == "True"


@pytest.mark.extended
async def test_another_storage_class_replaces_the_volumes_one_after_the_other() -> None:
    fleet = await _running()
    fleet.kubernetes.put({**new(STORAGE_CLASS, "", "fast", {}), "provisioner": "csi.example"})
    disks = [{**disk, "storageClassName": "fast"} for disk in CLUSTER["spec"]["brokers"]["disks"]]
    fleet.edit("spec.brokers.disks", disks)
    most = 0
    for _ in range(250):
        await fleet.step()
        most = max(
            most,
            sum(len((_cordoned(fleet, broker) or "").split(",")) for broker in range(3) if _cordoned(fleet, broker)),
        )
    await fleet.converge()
    for broker in range(3):
        for claim in _pod_claims(fleet, broker):
            assert dig(fleet.kubernetes.there(CLAIM, claim), "spec", "storageClassName") == "fast"
    assert most == 1 and fleet.condition("Ready")[0] == "True"


@pytest.mark.parametrize("writes", (0, 1, 2, 4, 7))
async def test_a_removal_ends_in_the_same_state_when_the_operator_is_killed_after_any_write(writes: int) -> None:
    fleet = await _running("Delete")
    fleet.edit("spec.brokers.disks", _disks(fleet, state="Drain"))
    await _pass(fleet)
    fleet.edit("spec.brokers.disks", _disks(fleet)[:1])
    assert await is_killed_after(writes, fleet, lambda fleet: _pass(fleet, 60))
    assert [name for name in fleet.claims() if "-d1-" in name] == []
    assert fleet.condition("Ready")[0] == "True"

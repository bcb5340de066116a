"""Pools of brokers: their own disks, ids, configuration and pods; and clusters that get, change and lose them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ottla_operator.api.names import BROKER_ID, POOL, REMOVED
from ottla_operator.api.objects import CLAIM, KAFKA_CLUSTER, POD, STATEFUL_SET, dig, label, uid_of
from tests.operator.fleet import CLUSTER, Fleet
from tests.operator.killed_operator import killed_after_every_write
from tests.operator.kubernetes import node

D = [{"name": f"d{index}", "size": "100Gi", "storageClassName": "local"} for index in range(4)]
AB = [{"name": "a", "replicas": 2}, {"name": "b", "replicas": 2}]


def _document(pools: list[dict[str, Any]] | None = None, **brokers: Any) -> dict[str, Any]:
    document = copy.deepcopy(CLUSTER)
    document["spec"]["zookeeper"] = {"connect": "zk:2181"}
    document["spec"]["brokers"] |= brokers
    if pools is not None:
        document["spec"]["brokers"].pop("replicas")
        document["spec"]["brokers"]["pools"] = pools
    return document


async def _fleet(pools: list[dict[str, Any]] | None = None, **brokers: Any) -> Fleet:
    fleet = Fleet(_document(pools, **brokers))
    for number in range(4, 7):
        fleet.kubernetes.put(node(f"n{number}", f"zone-{'abc'[number - 4]}"))
    await fleet.converge()
    return fleet


def _gives_pools(fleet: Fleet, pools: list[dict[str, Any]]) -> None:
    document = _document(pools)
    fleet.edit("spec.brokers", document["spec"]["brokers"])


def _pools(fleet: Fleet) -> dict[int, str]:
    return {item["id"]: item["pool"] for item in fleet.status("brokers")}


def _labels(fleet: Fleet) -> dict[int, set[str | None]]:
    """What the claims of brokers that were not removed record."""
    found: dict[int, set[str | None]] = {}
    for name in fleet.claims():
        claim = fleet.kubernetes.there(CLAIM, name)
        if label(claim, REMOVED) != "true" and (number := label(claim, BROKER_ID)) is not None:
            found.setdefault(int(number), set()).add(label(claim, POOL))
    return found


def _pods_deleted(fleet: Fleet) -> list[str]:
    return [name for verb, kind, name in fleet.kubernetes.writes if (verb, kind) == ("delete", "Pod")]


async def _is_at_rest(fleet: Fleet) -> None:
    fleet.kubernetes.writes.clear()
    await fleet.step()
    assert fleet.kubernetes.writes == []


async def test_each_pool_has_its_own_disks_ids_resources_config_racks_and_pods() -> None:
    fleet = await _fleet(
        [
            {"name": "slow", "replicas": 3},
            {
                "name": "fast", "replicas": 2, "idRange": {"first": 10, "last": 19}, "racks": ["zone-b", "zone-c"],
                "disks": D[:1], "resources": {"requests": {"cpu": "2"}}, "config": {"num.io.threads": 3},
                "template": {"pod": {"metadata": {"labels": {"kind": "nvme"}}}},
            },
        ]
    )  # fmt: skip
    assert fleet.condition("Ready")[0] == "True", fleet.status("conditions")
    assert _pools(fleet) == {0: "slow", 1: "slow", 2: "slow", 10: "fast", 11: "fast"}
    assert _labels(fleet) == {number: {pool} for number, pool in _pools(fleet).items()}
    assert [fleet.racks()[f"orders-broker-{number}"] for number in (10, 11)] == ["zone-b", "zone-c"]
    slow, fast = (fleet.kubernetes.there(POD, f"orders-broker-{number}-0") for number in (1, 10))
    assert [name for name in fleet.claims() if "broker-10" in name] == ["orders-broker-10-d0-1"]
    assert "log.dirs=/var/lib/ottla/d0/log\n" in fleet.properties(10)
    assert "log.dirs=/var/lib/ottla/d0/log,/var/lib/ottla/d1/log\n" in fleet.properties(1)
    assert "num.io.threads=3\n" in fleet.properties(10) and "num.io.threads" not in fleet.properties(1)
    assert "min.insync.replicas=2\n" in fleet.properties(10), "a pool has what the brokers have"
    assert fast["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2"}
    assert (label(fast, "kind"), label(slow, "kind")) == ("nvme", None)
    assert (label(fast, POOL), label(slow, POOL)) == ("fast", "slow")
    await _is_at_rest(fleet)


async def test_a_cluster_that_gets_pools_keeps_its_brokers_and_restarts_none() -> None:
    fleet = await _fleet(replicas=3)
    claims = {name: uid_of(fleet.kubernetes.there(CLAIM, name)) for name in fleet.claims()}
    pods = {number: uid_of(fleet.kubernetes.there(POD, f"orders-broker-{number}-0")) for number in range(3)}
    fleet.kubernetes.writes.clear()
    _gives_pools(fleet, [{"name": "a", "replicas": 2}, {"name": "b", "replicas": 1}])
    await fleet.converge()
    assert _labels(fleet) == {0: {"a"}, 1: {"a"}, 2: {"b"}} and _pools(fleet) == {0: "a", 1: "a", 2: "b"}
    assert {name: uid_of(fleet.kubernetes.there(CLAIM, name)) for name in fleet.claims()} == claims
    assert {n: uid_of(fleet.kubernetes.there(POD, f"orders-broker-{n}-0")) for n in range(3)} == pods
    assert _pods_deleted(fleet) == [] and fleet.condition("Ready")[0] == "True"
    assert fleet.condition("Rolled")[0] == "True"
    await _is_at_rest(fleet)


async def test_a_cluster_that_loses_its_pools_keeps_its_brokers() -> None:
    fleet = await _fleet(AB)
    claims = fleet.claims()
    fleet.kubernetes.writes.clear()
    fleet.edit("spec.brokers", _document(replicas=4)["spec"]["brokers"])
    await fleet.converge()
    assert _labels(fleet) == {number: {"main"} for number in range(4)} and fleet.claims() == claims
    assert _pods_deleted(fleet) == [] and fleet.condition("Ready")[0] == "True"


@pytest.mark.parametrize("pools", [AB, [{"name": "a", "replicas": 1}, {"name": "b", "replicas": 5}]])
async def test_pools_taken_out_without_replicas_in_their_place_change_nothing(pools: list[dict[str, Any]]) -> None:
    fleet = await _fleet(pools)
    count = sum(pool["replicas"] for pool in pools)
    before = (fleet.racks(), fleet.claims(), _labels(fleet))
    fleet.kubernetes.writes.clear()
    fleet.edit("spec.brokers.pools", None)
    await fleet.converge()
    status, reason, message = fleet.condition("BrokersReady")
    assert (status, reason) == ("False", "InvalidSpec") and fleet.condition("Stalled")[0] == "True"
    assert "spec.brokers.replicas: is required while brokers are of pools" in message and f"{count} keeps" in message
    assert (fleet.racks(), fleet.claims(), _labels(fleet)) == before and _pods_deleted(fleet) == []
    await _is_at_rest(fleet)
    fleet.edit("spec.brokers.replicas", count)
    await fleet.converge(300)
    assert fleet.condition("Ready")[0] == "True" and (fleet.racks(), fleet.claims()) == before[:2]
    assert _labels(fleet) == {number: {"main"} for number in range(count)}


async def test_a_cluster_created_again_without_its_pools_removes_no_broker() -> None:
    fleet = await _fleet(AB)
    claims = fleet.claims()
    fleet.kubernetes.remove(KAFKA_CLUSTER, "orders")
    fleet.kubernetes.settle()
    assert fleet.kubernetes.names(STATEFUL_SET) == [] and fleet.claims() == claims
    document = _document()
    document["spec"]["brokers"].pop("replicas")
    fleet.kubernetes.put(document)
    await fleet.converge()
    assert "spec.brokers.replicas: is required" in fleet.condition("BrokersReady")[2]
    assert fleet.claims() == claims


async def test_replicas_that_are_taken_out_remove_no_broker() -> None:
    fleet = await _fleet(replicas=5)
    fleet.edit("spec.brokers.replicas", None)
    fleet.kubernetes.writes.clear()
    await fleet.converge()
    assert len(fleet.racks()) == 5 and _pods_deleted(fleet) == []
    said = "spec.brokers.replicas: is required while there are more brokers than the default of 3; 5 keeps all of them"
    assert said in fleet.condition("BrokersReady")[2]
    fleet.edit("spec.brokers.replicas", 3)
    await fleet.converge(300)
    assert len(fleet.racks()) == 3 and fleet.condition("Ready")[0] == "True"


async def test_a_new_cluster_has_three_brokers_without_replicas() -> None:
    document = _document()
    document["spec"]["brokers"].pop("replicas")
    fleet = Fleet(document)
    await fleet.converge()
    assert len(fleet.racks()) == 3 and fleet.condition("Ready")[0] == "True"


async def test_a_cluster_gets_pools_and_more_brokers_at_once() -> None:
    fleet = await _fleet(replicas=3)
    _gives_pools(fleet, [{"name": "a", "replicas": 2}, {"name": "b", "replicas": 3, "disks": D[:1]}])
    await fleet.converge(200)
    assert _pools(fleet) == {0: "a", 1: "a", 2: "b", 3: "b", 4: "b"}
    assert [name for name in fleet.claims() if "broker-3" in name] == ["orders-broker-3-d0-1"]


@pytest.mark.extended
@pytest.mark.long
async def test_an_operator_killed_between_any_two_writes_gives_every_broker_the_same_pool() -> None:
    async def with_pools() -> Fleet:
        fleet = await _fleet(replicas=3)
        _gives_pools(fleet, AB)
        return fleet

    async for writes, fleet in killed_after_every_write(with_pools, at_least=7):
        assert _labels(fleet) == {0: {"a"}, 1: {"a"}, 2: {"b"}, 3: {"b"}}, f"killed after {writes} writes"


async def test_pools_grow_and_shrink_apart_and_no_id_with_data_is_given_to_another_pool() -> None:
    fleet = await _fleet(AB)
    fleet.edit("spec.brokers.pools", [{"name": "a", "replicas": 1}, {"name": "b", "replicas": 3}])
    await fleet.converge(200)
    assert _pools(fleet) == {0: "a", 2: "b", 3: "b", 4: "b"}
    fleet.edit("spec.brokers.pools", [{"name": "a", "replicas": 2}, {"name": "b", "replicas": 3}])
    await fleet.converge(200)
    assert _pools(fleet) == {0: "a", 1: "a", 2: "b", 3: "b", 4: "b"}
    assert [name for name in fleet.claims() if "broker-1-" in name] == ["orders-broker-1-d0-1", "orders-broker-1-d1-1"]
    assert fleet.condition("Ready")[0] == "True"


async def test_a_pool_that_is_removed_is_emptied_and_then_removed_as_it_was() -> None:
    fast = {"name": "fast", "replicas": 2, "disks": D[:1], "config": {"num.io.threads": 3}}
    fleet = await _fleet([{"name": "slow", "replicas": 3}, fast])
    fleet.kafka.partitions = [("t", index, (index % 3, 3, 4)) for index in range(6)]
    await fleet.converge(300)
    templates = {n: fleet.kubernetes.there(STATEFUL_SET, f"orders-broker-{n}")["spec"]["template"] for n in (3, 4)}
    fleet.edit("spec.brokers.pools", [{"name": "slow", "replicas": 3}])
    fleet.kubernetes.writes.clear()
    seen = []
    for _ in range(200):
        await fleet.step()
        seen.append(fleet.condition("BrokersReady")[2])
        for number, template in templates.items():
            name = f"orders-broker-{number}"
            if name in fleet.kubernetes.names(STATEFUL_SET):
                assert fleet.kubernetes.there(STATEFUL_SET, name)["spec"]["template"] == template
        if len(fleet.racks()) == 3:
            break
    assert any("spec.brokers.pools does not name fast; broker 3 holds" in text for text in seen), seen
    await fleet.converge(300)
    assert _pools(fleet) == {0: "slow", 1: "slow", 2: "slow"}
    assert all(set(replicas) == {0, 1, 2} for _, _, replicas in fleet.kafka.partitions)
    assert not any(fleet.kafka.dynamic.values()) and not fleet.kafka.throttled_topics
    marked = [name for name in fleet.claims() if label(fleet.kubernetes.there(CLAIM, name), REMOVED) == "true"]
    assert marked == ["orders-broker-3-d0-1", "orders-broker-4-d0-1"]
    assert fleet.condition("Ready")[0] == "True"
    await _is_at_rest(fleet)


async def test_brokers_that_leave_with_a_disk_that_nothing_declares_are_removed_without_a_restart() -> None:
    fleet = await _fleet(
        [{"name": "wide", "replicas": 3, "disks": D[:2]}, {"name": "more", "replicas": 2, "disks": D[:3]}]
    )
    fleet.kafka.partitions = [("t", index, (index % 3, 3, 4)) for index in range(6)]
    await fleet.converge(300)
    fleet.kubernetes.writes.clear()
    fleet.edit("spec.brokers", _document(replicas=3, disks=D[:2])["spec"]["brokers"])
    await fleet.converge(400)
    assert _pools(fleet) == {0: "main", 1: "main", 2: "main"} and fleet.condition("Ready")[0] == "True"
    assert _pods_deleted(fleet) == []


async def _with_old_and_new(others: int) -> Fleet:
    """A pool that is not declared any more, whose brokers 0 and 1 hold replicas, and one with new configuration."""
    pools = [{"name": "old", "replicas": 2}, {"name": "new", "replicas": others}]
    fleet = Fleet(_document(pools))
    fleet.edit("spec.rebalance", {"mode": "Off"})
    await fleet.converge()
    fleet.kafka.partitions = [("t", 0, (0, 1)), ("single", 0, (2,))]
    await fleet.converge()
    fleet.kubernetes.writes.clear()
    fleet.edit("spec.brokers.pools", pools[1:])
    await fleet.converge()
    return fleet


async def test_the_only_broker_that_is_declared_is_no_fleet_of_one_while_others_are_emptied() -> None:
    fleet = await _with_old_and_new(1)
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    await fleet.converge()
    assert "single-0 has one replica (spec.rolling.allowUnavailability)" in fleet.condition("Rolled")[2]
    assert _pods_deleted(fleet) == []
    fleet.kafka.partitions = [("single", 0, (2,))]
    await fleet.converge(200)
    assert list(fleet.racks()) == ["orders-broker-2"] and "log.retention.hours=7\n" in fleet.properties(2)


async def test_a_roll_waits_for_a_broker_that_is_not_ready_and_whose_pool_is_not_declared_any_more() -> None:
    fleet = await _with_old_and_new(2)
    fleet.kafka.partitions = [("t", 0, (0, 1)), ("u", 0, (2, 3))]
    waiting = {"name": "broker", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    fleet.kubernetes.container_status = lambda pod: waiting if label(pod, BROKER_ID) == "1" else None
    fleet.kubernetes.settle()
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7, "min.insync.replicas": 1})
    await fleet.converge()
    assert "waits for: broker 1 " in fleet.condition("Rolled")[2] and _pods_deleted(fleet) == []
    fleet.kubernetes.container_status = None
    fleet.kubernetes.settle()
    await fleet.converge(200)
    assert all("log.retention.hours=7\n" in fleet.properties(number) for number in (2, 3))


async def test_a_removed_pool_that_is_declared_again_keeps_its_brokers() -> None:
    fleet = await _fleet(AB)
    fleet.kafka.partitions = [("t", 0, (2, 3))]
    fleet.edit("spec.rebalance", {"mode": "Off"})
    fleet.edit("spec.brokers.pools", AB[:1])
    await fleet.converge()
    assert _pools(fleet) == {0: "a", 1: "a", 2: "b", 3: "b"}
    assert fleet.condition("BrokersReady")[:2] == ("False", "HoldReplicas")
    fleet.edit("spec.brokers.pools", AB)
    await fleet.converge()
    assert _pools(fleet) == {0: "a", 1: "a", 2: "b", 3: "b"} and fleet.condition("Ready")[0] == "True"


async def test_another_name_is_another_pool_with_new_brokers() -> None:
    fleet = await _fleet(AB)
    fleet.kafka.partitions = [("t", index, (2, 3)) for index in range(4)]
    fleet.edit("spec.brokers.pools", [AB[0], {"name": "c", "replicas": 2}])
    await fleet.converge(400)
    assert _pools(fleet) == {0: "a", 1: "a", 4: "c", 5: "c"}
    assert not any({2, 3} & set(replicas) for _, _, replicas in fleet.kafka.partitions)


async def test_brokers_get_replicas_by_the_size_of_their_disks() -> None:
    big = {"name": "big", "replicas": 2, "disks": D[:3]}
    fleet = await _fleet([big, {"name": "small", "replicas": 2, "disks": D[:1]}])
    fleet.edit("spec.brokers.config", {"min.insync.replicas": 1})
    fleet.kafka.partitions = [("t", index, (index % 4,)) for index in range(32)]
    await fleet.converge(400)
    held = [sum(number in replicas for _, _, replicas in fleet.kafka.partitions) for number in range(4)]
    assert held[0] + held[1] == pytest.approx(24, abs=3) and held[2] + held[3] == pytest.approx(8, abs=3), held


@pytest.mark.parametrize(
    ("pools", "named"),
    [
        ([{"name": "a", "replicas": 2}, {"name": "a", "replicas": 2}], "spec.brokers.pools[1].name"),
        ([{"name": "a", "replicas": "2"}, AB[1]], "spec.brokers.pools[0].replicas"),
        ([{"name": "a"}, AB[1]], "spec.brokers.pools[0].replicas"),
        ([{**AB[0], "disk": D[:1]}, AB[1]], "spec.brokers.pools[0].disk"),
        ([{"name": "A", "replicas": 2}, AB[1]], "spec.brokers.pools[0].name"),
        ([], "spec.brokers.pools: must have at least one item"),
        ("a", "spec.brokers.pools: must be a list"),
        ([{**AB[0], "idRange": {"first": 0, "last": 5}}, {**AB[1], "idRange": {"first": 5, "last": 9}}], "overlaps"),
    ],
)
async def test_pools_that_are_wrong_add_move_and_remove_no_broker(pools: Any, named: str) -> None:
    fleet = await _fleet(AB)
    before = (fleet.racks(), fleet.claims(), _labels(fleet))
    fleet.edit("spec.brokers.pools", pools)
    fleet.kubernetes.writes.clear()
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "False"
    assert fleet.condition("BrokersReady")[1] == "InvalidSpec" and named in fleet.condition("BrokersReady")[2]
    assert (fleet.racks(), fleet.claims(), _labels(fleet)) == before and _pods_deleted(fleet) == []
    fleet.edit("spec.brokers.pools", AB)
    await fleet.converge()
    assert (fleet.racks(), fleet.claims(), _labels(fleet)) == before and _pods_deleted(fleet) == []
    assert fleet.condition("Ready")[0] == "True"


async def test_replicas_and_pools_together_change_nothing() -> None:
    fleet = await _fleet(AB)
    fleet.edit("spec.brokers.replicas", 1)
    await fleet.converge()
    assert "spec.brokers.replicas: does not go with pools" in fleet.condition("BrokersReady")[2]
    assert _pools(fleet) == {0: "a", 1: "a", 2: "b", 3: "b"}


@pytest.mark.parametrize(
    ("field", "value", "kind", "named"),
    [
        ("disks", [{"name": "d0", "size": "much"}], "DisksReady", "spec.brokers.pools[1].disks[0].size"),
        ("disks", [{"name": "d0"}], "DisksReady", "spec.brokers.pools[1].disks[0].size: is required on Kubernetes"),
        ("config", {"no.such": 1}, "ConfigValid", "spec.brokers.pools[1].config.no.such"),
        ("config", {"num.io.threads": 0}, "ConfigValid", "spec.brokers.pools[1].config"),
        ("racks", ["zone-x"], "RacksReady", "spec.brokers.pools[1].racks[0]: no node has"),
        ("resources", {"requests": {"cpu": "x"}}, "BrokersReady", "spec.brokers.pools[1].resources.requests.cpu"),
        ("template", {"pod": {"spec": {"hostNetwrk": True}}}, "BrokersReady", "spec.brokers.pools[1].template.pod"),
    ],
)
async def test_a_wrong_field_of_a_pool_is_named_by_its_condition(field: str, value: Any, kind: str, named: str) -> None:
    fleet = await _fleet(AB)
    fleet.edit("spec.brokers.pools", [AB[0], {**AB[1], field: value}])
    fleet.kubernetes.writes.clear()
    await fleet.converge()
    status, _, message = fleet.condition(kind)
    assert status == "False" and named in message, fleet.status("conditions")
    assert len(fleet.racks()) == 4 and _pods_deleted(fleet) == []


async def test_an_id_range_without_a_free_id_is_reported() -> None:
    pool = {"name": "a", "replicas": 1, "idRange": {"first": 5, "last": 6}}
    fleet = await _fleet([pool])
    fleet.kafka.partitions = [("t", 0, (5, 6))]  # a broker that is not the operator's
    fleet.edit("spec.brokers.pools", [{**pool, "replicas": 2}])
    await fleet.converge()
    assert fleet.condition("BrokersReady")[:2] == ("False", "NoFreeId")
    assert "spec.brokers.pools[0].idRange" in fleet.condition("BrokersReady")[2] and list(_pools(fleet)) == [5]


async def test_the_pod_template_of_a_pool_may_use_the_names_of_disks_of_another() -> None:
    extra = {"volumes": [{"name": "d2", "emptyDir": {}}]}
    fleet = await _fleet([{**AB[0], "template": {"pod": {"spec": extra}}}, {**AB[1], "disks": D[:3]}])
    assert fleet.condition("Ready")[0] == "True", fleet.status("conditions")
    assert any(one["name"] == "d2" and "emptyDir" in one for one in _volumes(fleet, 0))
    assert any(one["name"] == "d2" and "persistentVolumeClaim" in one for one in _volumes(fleet, 2))


def _volumes(fleet: Fleet, broker: int) -> list[dict[str, Any]]:
    return list(dig(fleet.kubernetes.there(POD, f"orders-broker-{broker}-0"), "spec", "volumes"))

"""Fewer brokers: an empty one goes with all that is its, one that holds replicas stays and is named."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from ottla_operator.api.names import BROKER_ID, REMOVED
from ottla_operator.api.objects import CLAIM, CONFIG_MAP, DISRUPTION_BUDGET, POD, SERVICE, STATEFUL_SET, dig, label
from tests.operator.fleet import CLUSTER, Fleet
from tests.operator.killed_operator import killed_after_every_write

TOPIC = ("t", 0, (0, 1, 2))


async def _five() -> Fleet:
    """Five brokers, and a person who moves replicas; tests/operator/concerns/test_rebalance.py has the other modes."""
    document = copy.deepcopy(CLUSTER)
    document["spec"]["brokers"]["replicas"] = 5
    document["spec"]["rebalance"] = {"mode": "Off"}
    fleet = Fleet(document)
    fleet.kafka.partitions = [TOPIC]
    await fleet.converge()
    assert len(fleet.racks()) == 5
    return fleet


def _of_broker(fleet: Fleet, number: int) -> list[str]:
    """What belongs to a broker, its claims apart."""
    return [
        f"{kind.kind} {name}"
        for kind in (STATEFUL_SET, POD, SERVICE, CONFIG_MAP)
        for name in fleet.kubernetes.names(kind)
        if label(fleet.kubernetes.there(kind, name), BROKER_ID) == str(number)
    ]


async def _assert_three(fleet: Fleet) -> None:
    assert list(fleet.racks()) == ["orders-broker-0", "orders-broker-1", "orders-broker-2"]
    assert _of_broker(fleet, 3) == [] and _of_broker(fleet, 4) == []
    assert fleet.condition("Ready")[0] == "True" and fleet.condition("Rolled")[0] == "True"
    assert [item["id"] for item in fleet.status("brokers")] == [0, 1, 2]
    assert fleet.kubernetes.there(DISRUPTION_BUDGET, "orders-brokers")["spec"]["minAvailable"] == 2
    marked = [name for name in fleet.claims() if label(fleet.kubernetes.there(CLAIM, name), REMOVED) == "true"]
    assert marked == [f"orders-broker-{n}-{disk}-1" for n in (3, 4) for disk in ("d0", "d1")]


async def test_empty_surplus_brokers_are_removed_with_their_services_and_configmaps() -> None:
    fleet = await _five()
    fleet.kubernetes.writes.clear()
    fleet.edit("spec.brokers.replicas", 3)
    await fleet.converge()
    await _assert_three(fleet)
    stopped = [name for verb, kind, name in fleet.kubernetes.writes if (verb, kind) == ("delete", "Pod")]
    assert stopped == [], "pods go with SIGTERM, by their StatefulSet"
    fleet.kubernetes.writes.clear()
    await fleet.step()
    assert fleet.kubernetes.writes == []


async def test_a_surplus_broker_with_replicas_stays_and_the_condition_names_them() -> None:
    fleet = await _five()
    fleet.kafka.partitions = [TOPIC, ("__consumer_offsets", 7, (4, 0, 1))]
    fleet.edit("spec.brokers.replicas", 3)
    await fleet.converge()
    assert "orders-broker-4" in fleet.racks() and "orders-broker-3" not in fleet.racks()
    status, reason, message = fleet.condition("BrokersReady")
    assert (status, reason) == ("False", "HoldReplicas")
    assert "broker 4 holds 1 replicas (__consumer_offsets-7)" in message
    fleet.kafka.partitions = [TOPIC]
    await fleet.converge()
    await _assert_three(fleet)


async def test_a_surplus_broker_stays_when_a_replica_is_only_in_its_log_directories() -> None:
    """A topic whose deletion has not reached the broker, or a copy that moves between its directories."""
    fleet = await _five()
    fleet.kafka.on_disk = {4: ("deleted-0",)}
    fleet.edit("spec.brokers.replicas", 4)
    await fleet.converge()
    assert "deleted-0" in fleet.condition("BrokersReady")[2]
    assert fleet.kubernetes.there(STATEFUL_SET, "orders-broker-4")["spec"]["replicas"] == 1


async def test_no_broker_is_removed_while_no_broker_answers() -> None:
    fleet = await _five()
    fleet.kafka.answers = False
    fleet.edit("spec.brokers.replicas", 3)
    await fleet.converge()
    assert len(fleet.racks()) == 5 and fleet.condition("BrokersReady")[1] == "WaitingForKafka"
    fleet.kafka.answers = True
    await fleet.converge()
    await _assert_three(fleet)


async def _until_stopped(fleet: Fleet, number: int) -> None:
    for _ in range(20):
        await fleet.step()
        if ("Pod", "default", f"orders-broker-{number}-0") not in fleet.kubernetes.objects:
            return
    raise AssertionError("it does not stop")


async def test_a_broker_is_started_again_when_a_topic_is_created_on_it_while_it_stops() -> None:
    fleet = await _five()
    fleet.edit("spec.brokers.replicas", 4)
    await _until_stopped(fleet, 4)
    fleet.kafka.partitions = [TOPIC, ("late", 0, (4, 0, 1))]
    await fleet.converge()
    assert fleet.kafka.ready_brokers() == [0, 1, 2, 3, 4]
    assert fleet.condition("BrokersReady")[1] == "HoldReplicas" and "late-0" in fleet.condition("BrokersReady")[2]
    assert not [name for name in fleet.claims() if label(fleet.kubernetes.there(CLAIM, name), REMOVED) == "true"]


async def test_the_metadata_is_read_once_more_before_a_broker_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = await _five()
    fleet.edit("spec.brokers.replicas", 4)
    await _until_stopped(fleet, 4)
    view, looks = fleet.kafka.view, []

    async def look() -> object:
        looks.append(1)
        if len(looks) % 2 == 0:  # the second read of a reconciliation, just before the deletion
            fleet.kafka.partitions = [TOPIC, ("late", 0, (4, 0, 1))]
        return await view()

    with monkeypatch.context() as late:
        late.setattr(fleet.kafka, "view", look)
        while len(looks) < 2:
            await fleet.step()
    assert "orders-broker-4" in fleet.racks()
    await fleet.converge()
    assert 4 in fleet.kafka.ready_brokers() and fleet.condition("BrokersReady")[1] == "HoldReplicas"


async def test_a_broker_is_not_removed_by_the_metadata_of_one_whose_session_expired_before_it_joined() -> None:
    document = copy.deepcopy(CLUSTER)
    document["spec"]["rebalance"] = {"mode": "Off"}
    fleet = Fleet(document)
    fleet.kafka.partitions = [TOPIC]
    await fleet.converge()
    fleet.kafka.freeze(2)
    fleet.edit("spec.brokers.replicas", 4)
    await fleet.converge()
    fleet.kafka.partitions = [TOPIC, ("u", 0, (3,))]
    fleet.edit("spec.brokers.replicas", 3)
    await fleet.converge()
    assert fleet.kubernetes.there(STATEFUL_SET, "orders-broker-3")["spec"]["replicas"] == 1
    assert not [name for name in fleet.claims() if label(fleet.kubernetes.there(CLAIM, name), REMOVED) == "true"]
    fleet.kafka.partitions = [TOPIC]
    await fleet.converge()
    assert "orders-broker-3" not in fleet.racks()


async def test_no_broker_is_removed_while_no_broker_has_a_session() -> None:
    """Whoever answers may have lost its session long before the others."""
    fleet = await _five()
    fleet.kafka.partitions = [TOPIC, ("u", 0, (4,))]
    for broker in range(5):
        fleet.kafka.freeze(broker)
    old = fleet.kafka.frozen
    fleet.kafka.frozen = {
        uid: replace(one, brokers=(0, 1, 2, 3), partitions=one.partitions[:1]) for uid, one in old.items()
    }
    fleet.edit("spec.brokers.replicas", 4)
    await fleet.converge()
    assert fleet.kubernetes.there(STATEFUL_SET, "orders-broker-4")["spec"]["replicas"] == 1
    fleet.kafka.frozen = {}
    await fleet.converge()
    assert fleet.condition("BrokersReady")[1] == "HoldReplicas" and "u-0" in fleet.condition("BrokersReady")[2]


async def test_a_broker_with_a_session_stays_while_the_metadata_does_not_list_it() -> None:
    fleet = await _five()
    fleet.kafka.unregistered = {4}
    fleet.edit("spec.brokers.replicas", 4)
    await fleet.converge()
    assert fleet.condition("BrokersReady")[1] == "WaitingForKafka"
    assert fleet.kubernetes.there(STATEFUL_SET, "orders-broker-4")["spec"]["replicas"] == 1
    fleet.kafka.unregistered = set()
    await fleet.converge()
    assert "orders-broker-4" not in fleet.racks()


async def test_a_broker_is_back_when_the_scale_down_is_undone_at_any_time() -> None:
    for steps in range(10):
        fleet = await _five()
        fleet.edit("spec.brokers.replicas", 4)
        for _ in range(steps):
            await fleet.step()
        fleet.edit("spec.brokers.replicas", 5)
        await fleet.converge()
        assert fleet.kafka.ready_brokers() == [0, 1, 2, 3, 4], f"after {steps} passes"
        assert fleet.racks()["orders-broker-4"] == "zone-b"
        assert fleet.condition("Ready")[0] == "True"


async def test_new_brokers_get_the_claims_and_racks_of_removed_ones() -> None:
    fleet = await _five()
    racks, claims = fleet.racks(), fleet.claims()
    fleet.edit("spec.brokers.replicas", 3)
    await fleet.converge()
    fleet.edit("spec.brokers.replicas", 5)
    await fleet.converge()
    assert fleet.racks() == racks and fleet.claims() == claims
    assert {label(fleet.kubernetes.there(CLAIM, name), REMOVED) for name in claims} <= {None, "false"}
    leave = fleet.kubernetes.there(CONFIG_MAP, "orders-broker-4-format")["data"]["dirs"]
    assert leave == "" and fleet.condition("Ready")[0] == "True"


@pytest.mark.extended
@pytest.mark.long
async def test_an_operator_killed_between_any_two_writes_of_a_removal_ends_in_the_same_state() -> None:
    document = copy.deepcopy(CLUSTER)
    document["spec"]["brokers"]["replicas"] = 2
    document["spec"]["zookeeper"] = {"connect": "zk:2181"}

    async def smaller() -> Fleet:
        fleet = Fleet(document)
        await fleet.converge()
        fleet.edit("spec.brokers.replicas", 1)
        return fleet

    async for writes, fleet in killed_after_every_write(smaller, at_least=9):
        assert list(fleet.racks()) == ["orders-broker-0"] and _of_broker(fleet, 1) == [], writes
        claims = [fleet.kubernetes.there(CLAIM, f"orders-broker-1-{disk}-1") for disk in ("d0", "d1")]
        assert [label(claim, REMOVED) for claim in claims] == ["true", "true"]


async def test_services_and_configmaps_are_deleted_when_a_broker_was_removed_by_hand() -> None:
    fleet = await _five()
    fleet.edit("spec.brokers.replicas", 4)
    fleet.kubernetes.remove(STATEFUL_SET, "orders-broker-4")
    for name in [name for name in fleet.claims() if "broker-4" in name]:
        fleet.kubernetes.remove(CLAIM, name)
        fleet.kubernetes.settle()
    await fleet.converge()
    assert _of_broker(fleet, 4) == [] and fleet.condition("Ready")[0] == "True"


async def test_a_surplus_broker_that_never_started_is_removed() -> None:
    """The node it was meant for has no room."""
    fleet = await _five()
    waiting = {"name": "broker", "state": {"waiting": {"reason": "CreateContainerError"}}}
    fleet.kubernetes.container_status = lambda pod: waiting if label(pod, BROKER_ID) == "4" else None
    fleet.kubernetes.settle()
    fleet.edit("spec.brokers.replicas", 4)
    await fleet.converge()
    assert _of_broker(fleet, 4) == []
    assert dig(fleet.kubernetes.there(STATEFUL_SET, "orders-broker-3"), "spec", "replicas") == 1


async def _without_claims(fleet: Fleet) -> None:
    fleet.edit("spec.brokers.claimDeletionPolicy", "Delete")
    await fleet.converge(200)


async def test_the_claims_of_removed_brokers_are_deleted_when_the_policy_says_so() -> None:
    fleet = await _five()
    fleet.edit("spec.brokers.replicas", 3)
    await fleet.converge()
    kept = [name for name in fleet.claims() if "broker-3" in name or "broker-4" in name]
    assert len(kept) == 4
    await _without_claims(fleet)
    assert [name for name in fleet.claims() if name in kept] == [] and len(fleet.claims()) == 3 * 2 + 3 * 2
    fleet.kubernetes.writes.clear()
    await fleet.step()
    assert fleet.kubernetes.writes == [] and fleet.condition("Ready")[0] == "True"
    fleet.edit("spec.brokers.replicas", 4)
    await fleet.converge(200)
    assert "orders-broker-3" in fleet.racks() and fleet.condition("Ready")[0] == "True"


async def test_claims_of_a_removed_broker_stay_while_a_partition_names_it_or_no_broker_answers() -> None:
    fleet = await _five()
    fleet.edit("spec.brokers.replicas", 4)
    await fleet.converge()
    fleet.kafka.partitions = [TOPIC, ("late", 0, (4, 0, 1))]
    await _without_claims(fleet)
    fleet.kafka.partitions, fleet.kafka.answers = [TOPIC], False
    await fleet.converge()
    assert "orders-broker-4-d0-1" in fleet.claims()
    fleet.kafka.answers = True
    await fleet.converge()
    assert "orders-broker-4-d0-1" not in fleet.claims()


async def test_a_removed_broker_that_has_lost_a_claim_is_not_taken_again() -> None:
    fleet = await _five()
    fleet.edit("spec.brokers.replicas", 4)
    await fleet.converge()
    fleet.kubernetes.remove(CLAIM, "orders-broker-4-d0-1")
    fleet.edit("spec.brokers.replicas", 5)
    await fleet.converge(200)
    assert "orders-broker-5" in fleet.racks() and "orders-broker-4" not in fleet.racks()
    assert fleet.condition("Ready")[0] == "True"


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
async def test_a_broker_with_strays_is_removed_and_the_claim_that_has_them_stays(policy: str) -> None:
    """Nothing reads them, and DescribeLogDirs does not have them; but they may be the only copy of records."""
    fleet = await _five()
    fleet.environment.strays["orders-broker-4-d1-1"] = 2
    await fleet.converge()
    fleet.edit("spec.brokers.claimDeletionPolicy", policy)
    fleet.edit("spec.brokers.replicas", 3)
    await fleet.converge(200)
    assert _of_broker(fleet, 4) == [] and fleet.condition("Ready")[0] == "True"
    left = [name for name in fleet.claims() if "broker-3" in name or "broker-4" in name]
    status, reason, message = fleet.condition("DisksReady")
    if policy == "Retain":
        assert len(left) == 4 and (status, reason) == ("True", "AsDeclared")
        return
    assert left == ["orders-broker-4-d1-1"] and (status, reason) == ("True", "StraysKept")
    assert "not deleted: claim orders-broker-4-d1-1" in message and "-stray" in message
    fleet.restart_operator()
    fleet.kubernetes.writes.clear()
    await fleet.converge()
    assert fleet.kubernetes.writes == [] and fleet.claims().count("orders-broker-4-d1-1") == 1
    fleet.kubernetes.remove(CLAIM, "orders-broker-4-d1-1")
    await fleet.converge()
    assert fleet.condition("DisksReady")[:2] == ("True", "AsDeclared")


async def test_strays_that_a_person_has_deleted_keep_no_claim() -> None:
    fleet = await _five()
    fleet.environment.strays["orders-broker-4-d1-1"] = 2
    await fleet.converge()
    del fleet.environment.strays["orders-broker-4-d1-1"]
    await fleet.converge()
    fleet.edit("spec.brokers.replicas", 3)
    await fleet.converge()
    await _without_claims(fleet)
    assert not [name for name in fleet.claims() if "broker-4" in name]

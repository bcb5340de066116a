"""Claims of brokers that are deleted, or whose volume is gone: replaced once that loss is accepted, and not before."""

from __future__ import annotations

import copy
from typing import Any

from ottla_operator.api import names
from ottla_operator.api.objects import CLAIM, POD, dig, label
from tests.operator.fleet import CLUSTER, Fleet
from tests.operator.kubernetes import Killed

LOST, NEXT = "orders-broker-1-d0-1", "orders-broker-1-d0-2"


async def _running() -> Fleet:
    document = copy.deepcopy(CLUSTER)
    document["spec"]["zookeeper"] = {"connect": "zk:2181"}
    fleet = Fleet(document)
    fleet.kafka.partitions = [("t", index, tuple((index + step) % 3 for step in range(3))) for index in range(3)]
    await fleet.converge()
    return fleet


async def _lose(fleet: Fleet, *claims: str) -> None:
    for name in claims:
        fleet.kubernetes.remove(CLAIM, name)
    for broker in {name.split("-")[2] for name in claims}:
        fleet.kubernetes.remove(POD, f"orders-broker-{broker}-0")
    await fleet.converge()


def _accept(fleet: Fleet, *brokers: int, generation: int = 2, disks: tuple[str, ...] = ("d0",)) -> None:
    entries = [{"name": disk, "generation": generation, "acceptDataLoss": True} for disk in disks]
    fleet.edit("spec.brokers.overrides", [{"id": number, "disks": entries} for number in brokers])


async def _later(fleet: Fleet) -> None:
    """A roll counts a broker that has been unready for a minute as one that it repairs."""
    for _ in range(3):
        fleet.environment.passed_s += 61
        await fleet.converge()


def _pod_claims(fleet: Fleet, broker: int) -> list[str]:
    pod = fleet.kubernetes.there(POD, f"orders-broker-{broker}-0")
    return [v["persistentVolumeClaim"]["claimName"] for v in pod["spec"]["volumes"] if "persistentVolumeClaim" in v]


async def test_a_deleted_claim_is_replaced_once_its_loss_is_accepted() -> None:
    fleet = await _running()
    await _lose(fleet, LOST)
    message = fleet.condition("DisksReady")[2]
    assert fleet.condition("DisksReady")[1] == "ClaimLost" and f"claim {LOST} of broker 1 is gone" in message
    assert "[{id: 1, disks: [{name: d0, generation: 2, acceptDataLoss: true}]}]" in message
    _accept(fleet, 1)
    await _later(fleet)
    assert _pod_claims(fleet, 1) == [NEXT, "orders-broker-1-d1-1"] and LOST not in fleet.claims()
    assert fleet.condition("DisksReady")[0] == "True" and fleet.condition("Ready")[0] == "True"
    fleet.kubernetes.writes.clear()
    fleet.restart_operator()
    await fleet.converge()
    assert fleet.kubernetes.writes == []


async def test_all_claims_of_a_broker_are_replaced_when_each_is_accepted() -> None:
    fleet = await _running()
    await _lose(fleet, LOST, "orders-broker-1-d1-1")
    _accept(fleet, 1)
    await _later(fleet)
    assert NEXT not in fleet.claims() and "generation: 2, acceptDataLoss" in fleet.condition("DisksReady")[2]
    _accept(fleet, 1, disks=("d0", "d1"))
    await _later(fleet)
    assert _pod_claims(fleet, 1) == [NEXT, "orders-broker-1-d1-2"] and fleet.condition("Ready")[0] == "True"


async def test_a_claim_whose_volume_is_gone_is_replaced_and_retires() -> None:
    fleet = await _running()
    fleet.kubernetes.edit(CLAIM, LOST, status={"phase": "Lost"})
    fleet.kubernetes.remove(POD, "orders-broker-1-0")
    await fleet.task.reconcile_once()
    assert fleet.condition("DisksReady")[1] == "ClaimLost"
    _accept(fleet, 1)
    await fleet.task.reconcile_once()
    await _later(fleet)
    assert _pod_claims(fleet, 1)[0] == NEXT and fleet.condition("Ready")[0] == "True"
    assert label(fleet.kubernetes.there(CLAIM, LOST), names.RETIRED) == "replaced"


async def test_what_only_the_lost_claim_had_is_named_and_given_up() -> None:
    fleet = await _running()
    fleet.kafka.partitions.append(("alone", 0, (1,)))
    await _lose(fleet, LOST)
    said: list[dict[str, Any]] = fleet.status("lastCopies")
    assert said == [{"broker": 1, "count": 1, "partitions": ["alone-0"], "accepted": False}]
    _accept(fleet, 1)
    await _later(fleet)
    assert _pod_claims(fleet, 1)[0] == NEXT and fleet.status("lastCopies") is None


async def test_an_acceptance_counts_for_no_later_loss() -> None:
    fleet = await _running()
    _accept(fleet, 1)
    await _lose(fleet, LOST)
    await _later(fleet)
    await _lose(fleet, NEXT)
    await _later(fleet)
    assert fleet.condition("DisksReady")[1] == "ClaimLost" and "generation: 3" in fleet.condition("DisksReady")[2]
    assert "orders-broker-1-d0-3" not in fleet.claims()


async def test_a_partition_with_a_copy_that_lags_is_not_given_up() -> None:
    fleet = await _running()
    fleet.kafka.behind = {2}
    fleet.kafka.partitions = [("t", 3, (1, 2))]
    _accept(fleet, 1)
    await _lose(fleet, LOST)
    await _later(fleet)
    assert "an unclean election saves that" in fleet.condition("DisksReady")[2] and NEXT not in fleet.claims()


async def test_lost_claims_of_two_brokers_do_not_wait_for_each_other() -> None:
    fleet = await _running()
    await _lose(fleet, LOST, "orders-broker-2-d0-1")
    _accept(fleet, 1, 2)
    await _later(fleet)
    await _later(fleet)
    assert (_pod_claims(fleet, 1)[0], _pod_claims(fleet, 2)[0]) == (NEXT, "orders-broker-2-d0-2")
    assert fleet.condition("Ready")[0] == "True"


async def test_nothing_is_replaced_while_no_broker_answers_what_would_be_lost() -> None:
    fleet = await _running()
    await _lose(fleet, LOST)
    fleet.kafka.answers = False
    _accept(fleet, 1)
    await _later(fleet)
    assert NEXT not in fleet.claims()
    assert "no broker answers which replicas are in sync" in fleet.condition("DisksReady")[2]


async def test_an_operator_killed_after_any_write_ends_in_the_same_state() -> None:
    survived = 0
    while True:
        fleet = await _running()
        await _lose(fleet, LOST)
        _accept(fleet, 1)
        fleet.kubernetes.kill_after = survived
        try:
            await _later(fleet)
            break
        except Killed:
            fleet.kubernetes.kill_after = None
            fleet.restart_operator()
            fleet.kubernetes.settle()
            await _later(fleet)
        assert _pod_claims(fleet, 1)[0] == NEXT and fleet.condition("Ready")[0] == "True", survived
        assert dig(fleet.kubernetes.there(CLAIM, NEXT), "metadata", "labels", names.GENERATION) == "2"
        survived += 1
    assert survived > 3

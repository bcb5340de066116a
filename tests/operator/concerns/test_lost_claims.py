"""Claims of brokers that are deleted, or whose volume is gone: replaced once that loss is accepted, and not before."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ottla_operator.api import names
from ottla_operator.api.objects import CLAIM, EVENT, POD, dig, label
from tests.operator.fleet import CLUSTER, Fleet
from tests.operator.killed_operator import every_third_or_every_write, killed_after_every_write

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


@every_third_or_every_write
async def test_an_operator_killed_after_any_write_ends_in_the_same_state(every: int) -> None:
    async def accepted() -> Fleet:
        fleet = await _running()
        await _lose(fleet, LOST)
        _accept(fleet, 1)
        return fleet

    async for writes, fleet in killed_after_every_write(accepted, _later, at_least=4, every=every):
        assert _pod_claims(fleet, 1)[0] == NEXT and fleet.condition("Ready")[0] == "True", writes
        assert dig(fleet.kubernetes.there(CLAIM, NEXT), "metadata", "labels", names.GENERATION) == "2"


async def _of(brokers: int) -> Fleet:
    """Brokers of two disks each, with a partition on every pair of them."""
    document = copy.deepcopy(CLUSTER)
    document["spec"]["zookeeper"] = {"connect": "zk:2181"}
    document["spec"]["brokers"] |= {"replicas": brokers, "config": {"min.insync.replicas": 1}}
    fleet = Fleet(document)
    fleet.kafka.partitions = [("t", index, (index, (index + 1) % brokers)[:brokers]) for index in range(brokers)]
    await fleet.converge()
    return fleet


def _message(fleet: Fleet) -> str:
    status, reason, message = fleet.condition("DisksReady")
    assert (status, reason) == ("False", "ClaimLost")
    return message


def _event_messages(fleet: Fleet) -> list[str]:
    return [str(fleet.kubernetes.there(EVENT, name)["message"]) for name in fleet.kubernetes.names(EVENT)]


async def test_the_only_broker_gets_an_empty_volume_once_that_is_accepted_though_no_broker_answers() -> None:
    fleet = await _of(1)
    await _lose(fleet, "orders-broker-0-d0-1")
    entry = "[{id: 0, disks: [{name: d0, generation: 2, acceptDataLoss: true}]}]"
    assert entry in _message(fleet) and "no broker answers, so it is not known" in _message(fleet)
    await _later(fleet)
    assert any(entry in text for text in _event_messages(fleet))
    assert "orders-broker-0-d0-2" not in fleet.claims()
    _accept(fleet, 0)
    await _later(fleet)
    assert _pod_claims(fleet, 0) == ["orders-broker-0-d0-2", "orders-broker-0-d1-1"]
    assert fleet.condition("Ready")[0] == "True"
    fleet.kubernetes.writes.clear()
    fleet.restart_operator()
    await fleet.converge()
    assert fleet.kubernetes.writes == []


async def test_brokers_that_have_all_lost_all_claims_wait_until_the_loss_of_each_is_accepted() -> None:
    fleet = await _of(2)
    lost = [f"orders-broker-{number}-{disk}-1" for number in (0, 1) for disk in ("d0", "d1")]
    await _lose(fleet, *lost)
    assert "{id: 0, disks:" in _message(fleet) and "{id: 1, disks:" in _message(fleet)
    _accept(fleet, 0, disks=("d0", "d1"))
    await _later(fleet)
    assert not any(name.endswith("-2") for name in fleet.claims()), "the volumes of broker 1 may come back"
    assert "acceptDataLoss of the lost claims of broker 1 is needed" in _message(fleet)
    _accept(fleet, 0, 1, disks=("d0", "d1"))
    await fleet.task.reconcile_once()
    assert [name for name in fleet.claims() if name.endswith("-2")] == ["orders-broker-0-d0-2", "orders-broker-0-d1-2"]
    await _later(fleet)
    await _later(fleet)
    for number in (0, 1):
        assert _pod_claims(fleet, number) == [f"orders-broker-{number}-d0-2", f"orders-broker-{number}-d1-2"]
    assert fleet.condition("Ready")[0] == "True"


def _accept_all_but_the_second_disk_of_broker_1(fleet: Fleet) -> None:
    both = [{"name": disk, "generation": 2, "acceptDataLoss": True} for disk in ("d0", "d1")]
    fleet.edit("spec.brokers.overrides", [{"id": 0, "disks": both}, {"id": 1, "disks": both[:1]}])


async def _both_come_back(fleet: Fleet) -> None:
    await _later(fleet)
    await _later(fleet)
    assert _pod_claims(fleet, 1) == ["orders-broker-1-d0-2", "orders-broker-1-d1-1"]
    assert _pod_claims(fleet, 0) == ["orders-broker-0-d0-2", "orders-broker-0-d1-2"]


async def test_the_broker_with_a_volume_that_is_left_comes_first() -> None:
    """Else one that comes back empty could lead what the other has a copy of, and that copy would be cut."""
    fleet = await _of(2)
    await _lose(fleet, "orders-broker-0-d0-1", "orders-broker-0-d1-1", "orders-broker-1-d0-1")
    _accept_all_but_the_second_disk_of_broker_1(fleet)
    await fleet.task.reconcile_once()
    assert "broker 1 comes first: volumes of it are left" in _message(fleet)
    assert [name for name in fleet.claims() if name.endswith("-2")] == ["orders-broker-1-d0-2"]
    await _both_come_back(fleet)


async def test_brokers_that_could_each_make_the_other_cut_a_copy_get_nothing() -> None:
    fleet = await _of(2)
    await _lose(fleet, "orders-broker-0-d0-1", "orders-broker-1-d0-1")
    _accept(fleet, 0, 1)
    await _later(fleet)
    assert not any(name.endswith("-2") for name in fleet.claims())
    assert "volumes of brokers 0, 1 are left" in _message(fleet) and "bring a lost claim back" in _message(fleet)
    fleet.kubernetes.remove(CLAIM, "orders-broker-0-d1-1")  # the person gives its copies up
    _accept_all_but_the_second_disk_of_broker_1(fleet)
    await _both_come_back(fleet)


async def test_nothing_is_replaced_while_a_broker_with_its_volumes_may_still_answer() -> None:
    fleet = await _of(2)
    await _lose(fleet, "orders-broker-0-d0-1", "orders-broker-0-d1-1")
    fleet.kafka.answers = False
    _accept(fleet, 0, disks=("d0", "d1"))
    await _later(fleet)
    assert not any(name.endswith("-2") for name in fleet.claims())
    assert "broker 1 has its volumes: get it to run, and it says what would be lost" in _message(fleet)


async def test_a_broker_whose_process_still_runs_keeps_its_volumes() -> None:
    fleet = await _of(1)
    fleet.kubernetes.edit(CLAIM, "orders-broker-0-d0-1", status={"phase": "Lost"})
    pod = fleet.kubernetes.there(POD, "orders-broker-0-0")
    waits = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False"}]
    fleet.kubernetes.edit(POD, "orders-broker-0-0", status={**pod["status"], "conditions": waits})
    fleet.environment.says["orders-broker-0-0"] = ("recovering", ())
    _accept(fleet, 0)
    await fleet.task.reconcile_once()
    assert "broker 0 still runs" in _message(fleet) and "orders-broker-0-d0-2" not in fleet.claims()


@pytest.mark.long
async def test_an_operator_killed_after_any_write_brings_all_brokers_back_once() -> None:
    async def accepted() -> Fleet:
        fleet = await _of(2)
        await _lose(fleet, *(f"orders-broker-{number}-{disk}-1" for number in (0, 1) for disk in ("d0", "d1")))
        _accept(fleet, 0, 1, disks=("d0", "d1"))
        return fleet

    async def much_later(fleet: Fleet) -> None:
        await _later(fleet)
        await _later(fleet)

    async for writes, fleet in killed_after_every_write(accepted, much_later, at_least=7):
        assert [name for name in fleet.claims() if name.endswith("-2")] == [
            f"orders-broker-{number}-{disk}-2" for number in (0, 1) for disk in ("d0", "d1")
        ]
        assert fleet.condition("Ready")[0] == "True", writes

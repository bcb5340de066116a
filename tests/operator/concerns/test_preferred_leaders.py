"""Leaders are where the assignment prefers them: after each member of a roll, after drains and after crashes."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ottla_operator.api.objects import POD
from ottla_operator.concerns.roll.leader_elections import ELECTIONS_PER_BROKER
from ottla_operator.concerns.roll.machine import LEADERSHIP_TIMEOUT_S
from ottla_operator.objects.pods import REACHABLE_AFTER_S
from tests.operator.fleet import CLUSTER, Fleet

BALANCED = {0: 4, 1: 4, 2: 4}


async def _running(partitions: int = 12, **config: Any) -> Fleet:
    document = copy.deepcopy(CLUSTER)
    document["spec"]["brokers"]["config"] |= {key.replace("_", "."): value for key, value in config.items()}
    fleet = Fleet(document)
    orders = ((0, 1, 2), (1, 2, 0), (2, 0, 1))
    fleet.kafka.partitions = [("t", index, orders[index % 3]) for index in range(partitions)]
    await fleet.converge()
    return fleet


async def test_no_election_is_asked_for_when_every_preferred_leader_leads() -> None:
    fleet = await _running()
    assert fleet.kafka.leads() == BALANCED
    for _ in range(3):
        await fleet.step()
    assert fleet.kafka.elections == []


async def test_each_broker_of_a_roll_leads_again_before_the_next_one_is_restarted() -> None:
    fleet = await _running()
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    seen = []
    for _ in range(60):
        step = fleet.status("roll", "step")
        if step == "PickNext":
            seen.append((fleet.status("roll", "done"), fleet.kafka.leads()))
        await fleet.step()
    assert seen == [([], BALANCED), ([1], BALANCED), ([1, 2], BALANCED), ([1, 2, 0], BALANCED)]
    assert fleet.status("roll") is None
    assert len(fleet.kafka.elections) == 2 * 3, "leaderships leave before each restart, and return"


async def test_no_leadership_moves_to_a_broker_that_the_roll_restarts_next() -> None:
    fleet = await _running()
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    while fleet.status("roll", "step") != "WaitReady":
        await fleet.step()
    fleet.kafka.leaders["t", 2] = 0  # prefers broker 2, which is restarted next
    while fleet.status("roll", "done") != [1]:
        await fleet.step()
    assert all(("t", 2) not in asked for asked in fleet.kafka.elections)
    await fleet.converge()
    assert fleet.kafka.leads() == BALANCED


@pytest.mark.parametrize("how", ["drain", "crash"])
async def test_a_broker_leads_again_once_it_is_in_sync_after(how: str) -> None:
    fleet = await _running()
    fleet.kafka.behind = {1}
    if how == "drain":
        fleet.kubernetes.evict("orders-broker-1-0")
    else:
        fleet.kubernetes.remove(POD, "orders-broker-1-0")
    for _ in range(5):
        await fleet.step()
    assert 1 not in fleet.kafka.leads() and fleet.kafka.elections == []
    fleet.kafka.behind = set()
    await fleet.converge()
    assert fleet.kafka.leads() == BALANCED


async def test_no_election_is_asked_for_while_another_broker_is_down() -> None:
    fleet = await _running()
    fleet.kubernetes.remove(POD, "orders-broker-1-0")
    fleet.kafka.unregistered = {2}
    await fleet.converge()
    assert fleet.kafka.elections == []
    fleet.kafka.unregistered = set()
    await fleet.converge()
    assert fleet.kafka.leads() == BALANCED


async def test_many_elections_are_asked_for_in_bounded_steps() -> None:
    fleet = await _running(partitions=3 * 450)
    fleet.kubernetes.remove(POD, "orders-broker-1-0")
    for _ in range(8):
        await fleet.step()
    assert [len(asked) for asked in fleet.kafka.elections] == [ELECTIONS_PER_BROKER, ELECTIONS_PER_BROKER, 50]
    assert fleet.kafka.leads() == {0: 450, 1: 450, 2: 450}


async def test_no_election_is_asked_for_when_auto_leader_rebalance_is_off() -> None:
    fleet = await _running(auto_leader_rebalance_enable="false")
    fleet.edit("spec.brokers.config", {"auto.leader.rebalance.enable": False, "log.retention.hours": 7})
    await fleet.converge()
    assert fleet.kafka.elections == [] and fleet.kafka.leads() != BALANCED


async def test_refused_elections_do_not_delay_a_roll_and_are_tried_again_later() -> None:
    fleet = await _running()
    fleet.kafka.elects = False
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    await fleet.converge()
    assert fleet.status("roll") is None
    asked = len(fleet.kafka.elections)
    await fleet.step()
    assert len(fleet.kafka.elections) == asked, "what was refused is not asked for at once"
    fleet.kafka.elects = True
    fleet.time += 61
    await fleet.converge()
    assert fleet.kafka.leads() == BALANCED


async def test_a_restarted_broker_leads_again_only_once_services_send_clients_to_it() -> None:
    fleet = await _running()
    fleet.kubernetes.dates_readiness, fleet.kubernetes.clock = True, fleet.environment.now
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    while fleet.status("roll", "step") != "RestoreLeaders":
        await fleet.step()
    asked = len(fleet.kafka.elections)
    for _ in range(3):
        await fleet.step()
    assert len(fleet.kafka.elections) == asked and 1 not in fleet.kafka.leads()
    assert fleet.status("roll", "blockedBy") == ["broker 1 is ready since a moment ago: clients may not reach it yet"]
    fleet.environment.passed_s += int(REACHABLE_AFTER_S)
    while fleet.status("roll", "done") != [1]:
        await fleet.step()
    assert fleet.kafka.leads() == BALANCED


async def test_a_broker_that_leads_whatever_prefers_it_delays_no_roll() -> None:
    fleet = await _running(partitions=1)  # broker 0 is preferred, and restarted last
    fleet.kubernetes.dates_readiness, fleet.kubernetes.clock = True, fleet.environment.now
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    while fleet.status("roll", "done") != [1, 2]:
        await fleet.step()


async def test_a_broker_that_was_drained_leads_again_only_once_services_send_clients_to_it() -> None:
    fleet = await _running()
    fleet.kubernetes.dates_readiness, fleet.kubernetes.clock = True, fleet.environment.now
    fleet.kubernetes.evict("orders-broker-1-0")
    for _ in range(3):
        await fleet.step()
    assert fleet.kafka.elections == [] and 1 not in fleet.kafka.leads()
    assert (await fleet.task.reconcile_once() or 0) <= 1, "it is asked for soon, not at the next look at the fleet"
    fleet.environment.passed_s += int(REACHABLE_AFTER_S)
    await fleet.converge()
    assert fleet.kafka.leads() == BALANCED


async def test_elections_without_effect_delay_a_roll_no_longer_than_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = await _running()

    async def nothing(_: object) -> dict[tuple[str, int], str]:
        return {}

    monkeypatch.setattr(fleet.kafka, "elect_leaders", nothing)
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    while fleet.status("roll", "step") != "RestoreLeaders":
        fleet.environment.passed_s += 1  # until the brokers are restarted although they lead
        await fleet.step()
    for _ in range(3):
        await fleet.step()
    assert fleet.status("roll", "blockedBy") == ["4 partitions that prefer broker 1 are led by others"]
    fleet.environment.passed_s += int(LEADERSHIP_TIMEOUT_S) + 1
    await fleet.step()
    assert fleet.status("roll", "done") == [1]

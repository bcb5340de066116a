"""Drains and rebalances go on when the last moves are done: in virtual time, by when each pass wants the next one."""

from __future__ import annotations

import copy

import pytest

from ottla_operator.concerns.rebalance.machine import AUTO, RebalanceFacts, decide
from ottla_operator.concerns.rebalance.rebalance_status import Rebalance
from ottla_operator.facts.fleet_values import PartitionId, Plan, Reassignment
from tests.operator.fleet import CLUSTER, Fleet

D0, D1 = "/var/lib/ottla/d0/log", "/var/lib/ottla/d1/log"
COUNT = 1000
LARGE = 2 << 20


async def _running(count: int) -> Fleet:
    document = copy.deepcopy(CLUSTER)
    fleet = Fleet(document)
    fleet.kafka.partitions = [("t", index, (0, 1, 2)) for index in range(count)]
    await fleet.converge()
    fleet.kafka.places = {(broker, "t", index): D1 for broker in range(3) for index in range(count)}
    return fleet


async def _seconds(fleet: Fleet, most_s: float = 3600.0) -> float:
    """Until nothing has to be looked at again soon, when the operator is woken by its own time alone."""
    begun = fleet.time
    while fleet.time - begun < most_s:
        pause = await fleet.task.reconcile_once()
        fleet.kubernetes.settle()
        if fleet.kafka.moving_log_dirs:
            fleet.kafka.places |= fleet.kafka.moving_log_dirs
            fleet.kafka.moving_log_dirs.clear()
        assert pause is not None
        if pause >= 30.0:
            return fleet.time - begun
        fleet.time += pause
    raise AssertionError(f"not done in {most_s} s")


async def test_a_disk_with_many_small_replicas_is_drained_at_forty_a_look() -> None:
    """A thousand in 25 looks. Four a look of 30 s were two hours."""
    fleet = await _running(400)
    fleet.kafka.moves_are_slow = True
    fleet.edit("spec.brokers.overrides", [{"id": 1, "disks": [{"name": "d1", "state": "Drain"}]}])
    took_s = await _seconds(fleet)
    assert {place for (broker, _, _), place in fleet.kafka.places.items() if broker == 1} == {D0}
    assert took_s <= 15.0 and fleet.kafka.most_moves <= 40


async def test_no_more_than_four_large_replicas_of_a_broker_move_at_the_same_time() -> None:
    fleet = await _running(30)
    fleet.kafka.sizes = {"t": LARGE}
    fleet.edit("spec.brokers.overrides", [{"id": 1, "disks": [{"name": "d1", "state": "Drain"}]}])
    await _seconds(fleet)
    assert {place for (broker, _, _), place in fleet.kafka.places.items() if broker == 1} == {D0}
    assert fleet.kafka.most_moves == 4


async def test_a_move_that_a_broker_refuses_is_not_asked_for_at_each_look_and_others_go_on() -> None:
    fleet = await _running(60)
    fleet.kafka.refused_dir_moves = {(1, "t", 3): "KafkaStorage"}
    fleet.edit("spec.brokers.overrides", [{"id": 1, "disks": [{"name": "d1", "state": "Drain"}]}])
    await _seconds(fleet)
    assert [key for key, place in fleet.kafka.places.items() if key[0] == 1 and place == D1] == [(1, "t", 3)]
    assert "the broker refuses t-3: KafkaStorage" in fleet.condition("DisksReady")[2]
    asked = fleet.kafka.asked_dir_moves
    for _ in range(5):
        await fleet.step()
    assert fleet.kafka.asked_dir_moves == asked
    fleet.kafka.refused_dir_moves = {}
    fleet.time += 61.0
    await _seconds(fleet)
    assert D1 not in {place for (broker, _, _), place in fleet.kafka.places.items() if broker == 1}


@pytest.mark.parametrize(("size_bytes", "most_s", "at_once"), [(1000, 60.0, 200), (LARGE, 600.0, 20)])
def test_a_thousand_partitions_are_reassigned_batch_after_batch(size_bytes: int, most_s: float, at_once: int) -> None:
    """As fast as the looks allow: every reassignment is done by the next one."""
    to_go = [Reassignment("t", index, (0, 1), (1, 2), size_bytes) for index in range(COUNT)]
    under_way: dict[PartitionId, tuple[int, ...]] = {}
    recorded: Rebalance | None = None
    passed_s, largest = 0.0, 0
    while to_go or recorded is not None:
        facts = RebalanceFacts(
            mode=AUTO,
            bytes_per_second=50 << 20,
            most_per_batch=20,
            plan=lambda is_running, left=tuple(to_go): Plan(left),  # type: ignore[misc]
            under_way=dict(under_way),
            replicas={one.id: one.before for one in to_go},
            leaving=(),
            brokers=(0, 1, 2),
            blocker="",
            now="2026-01-01T00:00:00Z",
            members=(0, 1, 2),
            stored_bytes={(0, *one.id): size_bytes for one in to_go},
        )
        under_way.clear()
        decided = decide(recorded, facts)
        recorded = decided.rebalance
        if decided.requests is not None:
            recorded = decided.after
            under_way |= dict.fromkeys(decided.requests.reassign, (2,))
            to_go = [one for one in to_go if one.id not in under_way]
            largest = max(largest, len(under_way))
        passed_s += decided.requeue_after_s or 0.0
    assert (passed_s <= most_s, largest) == (True, at_once), passed_s

"""A cluster that grows and shrinks by itself: replicas move, throttled, and nothing is left behind."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest

from ottla_operator.api.names import REMOVED
from ottla_operator.api.objects import CLAIM, DISRUPTION_BUDGET, KAFKA_CLUSTER, POD, STATEFUL_SET, label
from ottla_operator.concerns.fleet.identity import decide_identities
from ottla_operator.concerns.rebalance.rebalance import decide_rebalance
from ottla_operator.facts.fleet_values import FleetPlacement, Plan, Policy
from ottla_operator.rebalancer.planner import plan
from tests.operator.fleet import CLUSTER, Fleet
from tests.operator.killed_operator import is_killed_after
from tests.operator.kubernetes import node

PARTITIONS = [("t", index, tuple((index + n) % 4 for n in range(3))) for index in range(12)]


LARGE = 2 << 20
"""Bytes of a replica that maxPartitionsPerBatch counts one by one."""


async def _fleet(brokers: int, partitions: list[tuple[str, int, tuple[int, ...]]], **rebalance: Any) -> Fleet:
    document = copy.deepcopy(CLUSTER)
    document["spec"]["brokers"]["replicas"] = brokers
    if rebalance:
        document["spec"]["rebalance"] = rebalance
    fleet = Fleet(document)
    fleet.kafka.sizes = {"t": LARGE}
    for number in range(4, 7):
        fleet.kubernetes.put(node(f"n{number}", f"zone-{'abc'[number - 4]}"))
    await fleet.converge()
    fleet.kafka.partitions = list(partitions)
    await fleet.converge(300)
    return fleet


def _replicas(fleet: Fleet) -> Counter[int]:
    return Counter(number for _, _, replicas in fleet.kafka.partitions for number in replicas)


def _assert_no_throttle(fleet: Fleet) -> None:
    assert not any(fleet.kafka.dynamic.values()) and not fleet.kafka.throttled_topics


async def test_a_new_broker_gets_its_share_and_leads_it() -> None:
    three = [("t", index, tuple((index + n) % 3 for n in range(3))) for index in range(12)]
    fleet = await _fleet(3, three)
    assert fleet.kafka.moves == [] and fleet.status("rebalance") is None
    fleet.edit("spec.brokers.replicas", 4)
    await fleet.converge(300)
    found = _replicas(fleet)
    assert found == {0: 6, 1: 12, 2: 12, 3: 6}, "both are in zone-a, which has one replica of each partition"
    leads = Counter(replicas[0] for _, _, replicas in fleet.kafka.partitions)
    assert leads[3] >= 2, leads
    assert fleet.status("rebalance") is None and fleet.condition("Ready")[0] == "True"
    _assert_no_throttle(fleet)


async def test_a_broker_is_emptied_and_then_removed_with_all_that_is_its() -> None:
    fleet = await _fleet(4, PARTITIONS)
    fleet.edit("spec.brokers.replicas", 3)
    await fleet.converge(300)
    assert list(fleet.racks()) == ["orders-broker-0", "orders-broker-1", "orders-broker-2"]
    assert all(sorted(replicas) == [0, 1, 2] for _, _, replicas in fleet.kafka.partitions)
    assert fleet.condition("Ready")[0] == "True" and fleet.status("rebalance") is None
    assert fleet.kubernetes.there(DISRUPTION_BUDGET, "orders-brokers")["spec"]["minAvailable"] == 2
    marked = [name for name in fleet.claims() if label(fleet.kubernetes.there(CLAIM, name), REMOVED) == "true"]
    assert marked == ["orders-broker-3-d0-1", "orders-broker-3-d1-1"]
    _assert_no_throttle(fleet)


async def test_a_broker_stays_with_the_reason_when_there_are_too_few_others() -> None:
    fleet = await _fleet(4, [("t", 0, (0, 1, 2, 3))])
    fleet.edit("spec.brokers.replicas", 3)
    await fleet.converge(300)
    assert fleet.condition("BrokersReady")[1] == "HoldReplicas"
    assert "only 3 brokers stay" in fleet.condition("BrokersReady")[2]
    assert "only 3 brokers stay" in fleet.status("rebalance", "reason")
    fleet.kubernetes.writes.clear()
    await fleet.step()
    assert fleet.kubernetes.writes == []


async def test_a_batch_has_as_many_partitions_as_declared_and_its_throttle() -> None:
    fleet = await _fleet(4, PARTITIONS, throttle="1M", maxPartitionsPerBatch=2)
    fleet.edit("spec.brokers.replicas", 3)
    await fleet.converge(300)
    sizes = [len(requests.reassign) for requests in fleet.kafka.moves if any(requests.reassign.values())]
    copied = [requests.throttle for requests in fleet.kafka.moves if requests.throttle is not None]
    assert max(sizes[:-1]) <= 2 and {change.bytes_per_second for change in copied} == {1_000_000, 0}
    assert set(copied[0].followers) == {"t"} and set(copied[0].brokers) == {0, 1, 2, 3}
    _assert_no_throttle(fleet)


async def test_without_a_throttle_no_rate_is_set() -> None:
    fleet = await _fleet(4, PARTITIONS, throttle="0")
    fleet.edit("spec.brokers.replicas", 3)
    await fleet.converge(300)
    assert all(requests.throttle is None for requests in fleet.kafka.moves)


async def test_a_dry_run_shows_the_plan_and_moves_nothing() -> None:
    fleet = await _fleet(4, PARTITIONS, mode="DryRun")
    fleet.edit("spec.brokers.replicas", 3)
    await fleet.converge()
    assert fleet.kafka.moves == [] and len(fleet.racks()) == 4
    assert fleet.status("rebalance", "step") == "DryRun" and fleet.status("rebalance", "partitionsToGo") >= 9
    assert "t-1: [1, 2, 3] -> " in " ".join(fleet.status("rebalance", "plan"))
    fleet.edit("spec.rebalance.mode", "Auto")
    await fleet.converge(300)
    assert len(fleet.racks()) == 3 and fleet.status("rebalance") is None


async def test_mode_off_moves_nothing() -> None:
    fleet = await _fleet(4, PARTITIONS, mode="Off")
    fleet.edit("spec.brokers.replicas", 3)
    await fleet.converge()
    assert fleet.kafka.moves == [] and fleet.condition("BrokersReady")[1] == "HoldReplicas"


async def _until_moving(fleet: Fleet) -> None:
    for _ in range(50):
        await fleet.step()
        if fleet.kafka.moving:
            return
    raise AssertionError("nothing moves")


async def test_turned_off_in_the_middle_it_ends_the_batch_and_removes_the_throttles() -> None:
    fleet = await _fleet(4, PARTITIONS, maxPartitionsPerBatch=2)
    fleet.edit("spec.brokers.replicas", 3)
    fleet.kafka.finishes_moves = False
    await _until_moving(fleet)
    assert fleet.kafka.throttled_topics == {"t"}
    fleet.edit("spec.rebalance.mode", "Off")
    await fleet.step()
    assert len(fleet.kafka.moving) == 2, "what is under way goes on"
    fleet.kafka.finishes_moves = True
    await fleet.converge()
    assert fleet.status("rebalance") is None and _replicas(fleet)[3] > 0
    _assert_no_throttle(fleet)


async def test_what_goes_to_a_broker_that_now_leaves_is_cancelled() -> None:
    three = [("t", index, tuple((index + n) % 3 for n in range(3))) for index in range(12)]
    fleet = await _fleet(3, three, maxPartitionsPerBatch=2)
    fleet.kafka.finishes_moves = False
    fleet.edit("spec.brokers.replicas", 4)
    await _until_moving(fleet)
    fleet.edit("spec.brokers.replicas", 3)
    for _ in range(3):
        await fleet.step()
    assert not fleet.kafka.moving
    await fleet.converge(300)
    assert len(fleet.racks()) == 3 and all(3 not in replicas for _, _, replicas in fleet.kafka.partitions)
    _assert_no_throttle(fleet)


@pytest.mark.extended
async def test_no_batch_begins_while_a_roll_runs() -> None:
    fleet = await _fleet(4, PARTITIONS)
    fleet.edit("spec.brokers.config", {"min.insync.replicas": 2, "num.partitions": 7})
    fleet.edit("spec.brokers.replicas", 3)
    seen = False
    for _ in range(300):
        if seen and len(fleet.racks()) == 3 and fleet.status("roll") is None:
            break
        rolled_before = fleet.status("roll") is not None
        moves = len(fleet.kafka.moves)
        await fleet.step()
        if rolled_before and fleet.status("roll") is not None:
            seen = True
            assert len(fleet.kafka.moves) == moves
    assert seen and len(fleet.racks()) == 3


async def test_reassignments_of_others_are_left_alone_and_waited_for() -> None:
    fleet = await _fleet(4, PARTITIONS)
    fleet.kafka.finishes_moves = False
    topic, index, before = next(one for one in fleet.kafka.partitions if 3 in one[2])
    fleet.kafka.moving = {(topic, index): (before, before[::-1])}
    fleet.kafka.moves.clear()
    fleet.edit("spec.brokers.replicas", 3)
    for _ in range(6):
        await fleet.step()
    assert fleet.kafka.moves == [] and f"t-{index}" in fleet.status("rebalance", "reason")
    fleet.kafka.finishes_moves = True
    await fleet.converge(300)
    assert len(fleet.racks()) == 3


async def test_a_refused_partition_is_shown_and_the_others_move() -> None:
    fleet = await _fleet(4, PARTITIONS)
    move = fleet.kafka.move
    bad = next((topic, index) for topic, index, replicas in fleet.kafka.partitions if 3 in replicas)

    async def refuse(requests: Any) -> Any:
        answer = dict(await move(requests))
        for partition in [one for one in requests.reassign if one == bad]:
            before, _ = fleet.kafka.moving.pop(partition)
            fleet.kafka._replace(*partition, before)
            answer[partition] = f"t-{bad[1]}: PolicyViolation"
        return answer

    fleet.kafka.move = refuse  # type: ignore[method-assign]
    fleet.edit("spec.brokers.replicas", 3)
    await fleet.converge(300)
    assert fleet.status("rebalance", "reason") == f"t-{bad[1]}: PolicyViolation"
    assert _replicas(fleet)[3] == 1
    fleet.kafka.move = move  # type: ignore[method-assign]
    fleet.time += 61
    await fleet.converge(300)
    assert len(fleet.racks()) == 3


@pytest.mark.parametrize("writes", range(0, 25, 3))
async def test_an_operator_killed_at_any_write_ends_the_same_way_and_leaves_no_throttle(writes: int) -> None:
    fleet = await _fleet(4, PARTITIONS, maxPartitionsPerBatch=3)
    fleet.edit("spec.brokers.replicas", 3)
    assert await is_killed_after(writes, fleet, lambda fleet: fleet.converge(300))
    assert len(fleet.racks()) == 3 and fleet.status("rebalance") is None
    _assert_no_throttle(fleet)


async def test_progress_counts_partitions_and_bytes_down() -> None:
    fleet = await _fleet(4, PARTITIONS, maxPartitionsPerBatch=1)
    fleet.kafka.sizes["t"] = 1000
    leaving = _replicas(fleet)[3]
    fleet.restart_operator()
    fleet.edit("spec.brokers.replicas", 3)
    seen: list[tuple[int, int]] = []
    for _ in range(100):
        fleet.environment.passed_s += 1
        await fleet.step()
        if (to_go := fleet.status("rebalance", "partitionsToGo")) and fleet.status("rebalance", "step") == "Wait":
            seen.append((to_go, fleet.status("rebalance", "bytesToGo")))
    assert seen[0][0] >= leaving and seen[0][1] == leaving * 1000 and seen[-1][1] <= 1000
    assert [to_go for _, to_go in seen] == sorted((to_go for _, to_go in seen), reverse=True)


async def test_replicas_of_brokers_on_one_node_stay_apart() -> None:
    fleet = await _fleet(4, PARTITIONS)
    pods = [fleet.kubernetes.there(POD, f"orders-broker-{number}-0") for number in range(4)]
    brokers = [pod["spec"].get("nodeName") for pod in pods]
    for _, _, replicas in fleet.kafka.partitions:
        on = [brokers[number] for number in replicas]
        assert len(set(on)) == len(on)
    assert len(fleet.kubernetes.names(STATEFUL_SET)) >= 4


@pytest.mark.parametrize(("before", "wanted"), [((0, 1), 3), ((0, 1, 2), 2)])
async def test_a_kafka_topic_gets_the_replicas_that_it_declares(before: tuple[int, ...], wanted: int) -> None:
    fleet = await _fleet(3, [("t", index, before) for index in range(4)])
    fleet.kubernetes.put(
        {
            "apiVersion": CLUSTER["apiVersion"],
            "kind": "KafkaTopic",
            "metadata": {"name": "t", "namespace": "default"},
            "spec": {"clusterRef": {"name": "orders"}, "replicas": wanted},
            "status": {"topicName": "t", "topicId": "id-1"},
        }
    )
    await fleet.converge(300)
    assert {len(replicas) for _, _, replicas in fleet.kafka.partitions} == {wanted}
    _assert_no_throttle(fleet)


async def test_while_volumes_are_replaced_one_by_one_the_log_directories_of_the_others_take_replicas() -> None:
    fleet = await _fleet(3, [("t", index, (0, 1, 2)) for index in range(6)])
    disks = [{**disk, "storageClassName": "fast"} for disk in CLUSTER["spec"]["brokers"]["disks"]]
    fleet.kubernetes.put({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}})
    fleet.kafka.moves_are_slow = True
    fleet.edit("spec.brokers.disks", disks)
    for _ in range(10):
        await fleet.step()
    placements: list[FleetPlacement] = []

    def seen(placement: FleetPlacement, policy: Policy) -> Plan:
        placements.append(placement)
        return plan(placement, policy)

    snapshot = await fleet.task.snapshot(fleet.kubernetes.there(KAFKA_CLUSTER, "orders"))
    observation = (await fleet.task.observations(snapshot)).rebalance
    decide_rebalance(snapshot, decide_identities(snapshot), (), observation, is_rolling=False, make_plan=seen)
    states = {
        (broker.id, one.path.split("/")[4]): one.state for broker in placements[0].brokers for one in broker.log_dirs
    }
    assert [where for where, state in states.items() if state != "active"] == [(0, "d0")]
    assert len(states) == 6

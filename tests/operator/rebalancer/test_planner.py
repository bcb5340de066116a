"""What a plan does to a fleet: examples that a Kafka user knows, and rules that hold for every fleet."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_operator.facts.fleet_values import FleetPlacement, LogDir, Plan, Policy, carried_out
from ottla_operator.rebalancer.assignment import band, outside
from ottla_operator.rebalancer.planner import plan
from tests.operator.rebalancer.fleets import GIB, broker, counts, fleets, leads, load, partition, spread_over

EXACT = Policy(slack_bytes=0)


def _after(fleet: FleetPlacement, policy: Policy = EXACT) -> FleetPlacement:
    return carried_out(fleet, plan(fleet, policy))


def test_a_balanced_fleet_gets_an_empty_plan() -> None:
    fleet = FleetPlacement(tuple(broker(n, "abc"[n]) for n in range(3)), tuple(spread_over([0, 1, 2], 12, 3)))
    assert plan(fleet, EXACT) == Plan()


def test_a_new_broker_gets_its_share_of_replicas_and_leaders() -> None:
    fleet = FleetPlacement(tuple(broker(n) for n in range(4)), tuple(spread_over([0, 1, 2], 40, 3)))
    found = plan(fleet, EXACT)
    after = carried_out(fleet, found)
    assert min(counts(after).values()) >= 27 and max(counts(after).values()) <= 33
    assert min(leads(after).values()) >= 9 and max(leads(after).values()) <= 11
    assert sum(len(one.added) for one in found.reassignments) <= 30


def test_a_draining_broker_loses_every_replica_internal_topics_too() -> None:
    brokers = (*(broker(n) for n in range(3)), broker(3, state="draining"))
    partitions = (
        *spread_over([0, 1, 2, 3], 8, 3),
        *spread_over([3, 0, 1], 4, 3, topic="__consumer_offsets"),
        *spread_over([2, 3], 2, 1, topic="single"),
    )
    after = _after(FleetPlacement(brokers, partitions))
    assert counts(after)[3] == 0
    assert [len(one.replicas) for one in after.partitions] == [len(one.replicas) for one in partitions]


def test_what_stays_is_not_moved_when_a_broker_leaves() -> None:
    brokers = (*(broker(n) for n in range(3)), broker(3, state="draining"))
    fleet = FleetPlacement(brokers, tuple(spread_over([0, 1, 2, 3], 12, 2)))
    found = plan(fleet, Policy(balance=False))
    assert sum(len(one.added) for one in found.reassignments) == counts(fleet)[3]
    assert all(one.removed == (3,) for one in found.reassignments)


def test_replicas_go_to_distinct_racks_where_there_are_enough() -> None:
    brokers = tuple(broker(n, "aabbcc"[n]) for n in range(6))
    after = _after(FleetPlacement(brokers, tuple(partition(index, (0, 1, 2)) for index in range(6))))
    racks = {one.id: one.rack for one in brokers}
    assert all(len({racks[number] for number in one.brokers}) == 3 for one in after.partitions)


def test_replicas_share_racks_when_there_are_too_few() -> None:
    brokers = (broker(0, "a"), broker(1, "a"), broker(2, "b"), broker(3, "c", "draining"))
    after = _after(FleetPlacement(brokers, tuple(partition(index, (0, 2, 3)) for index in range(4))))
    assert {one.brokers for one in after.partitions} <= {tuple(found) for found in _orders((0, 1, 2))}


def _orders(numbers: tuple[int, ...]) -> list[tuple[int, ...]]:
    return list(permutations(numbers))


def test_two_replicas_leave_one_node_whatever_the_racks_are() -> None:
    brokers = (broker(0, "a", node="n"), broker(1, "b", node="n"), broker(2, "a", node="m"))
    after = _after(FleetPlacement(brokers, (partition(0, (0, 1)),)))
    assert set(after.partitions[0].brokers) in ({0, 2}, {1, 2})


def test_too_few_brokers_are_a_refusal_that_says_so() -> None:
    fleet = FleetPlacement((broker(0), broker(1), broker(2, state="draining")), (partition(0, (0, 1, 2)),))
    found = plan(fleet, EXACT)
    assert found.is_empty
    assert [str(one) for one in found.refusals] == [
        "t-0: 3 replicas, those on broker 2 have to move: only 2 brokers stay"
    ]


def test_too_few_nodes_are_a_refusal_that_says_so() -> None:
    brokers = (broker(0, node="n"), broker(1, node="n"), broker(2, state="draining"))
    found = plan(FleetPlacement(brokers, (partition(0, (0, 2)),)), EXACT)
    assert found.is_empty
    assert "run on 1 nodes, and no node gets two" in found.refusals[0].reason


def test_a_full_disk_is_a_refusal_and_the_others_move() -> None:
    full = replace(broker(1), log_dirs=(LogDir("/d0", 100 * GIB, 12 * GIB),))
    fleet = FleetPlacement(
        (broker(0, state="draining"), full), (partition(0, (0,), size=50 * GIB), partition(1, (0,), size=GIB))
    )
    found = plan(fleet, EXACT)
    assert [one.id for one in found.reassignments] == [("t", 1)]
    assert "no room for 53687091200 bytes" in found.refusals[0].reason


def test_bytes_are_evened_out_by_few_large_moves() -> None:
    partitions = [partition(n, (0,), size=8 * GIB) for n in range(4)]
    partitions += [partition(n, (1,), size=GIB, topic="u") for n in range(4)]
    fleet = FleetPlacement((broker(0), broker(1)), tuple(partitions))
    found = plan(fleet, EXACT)
    after = carried_out(fleet, found)
    assert abs(load(after)[0] - load(after)[1]) <= 4 * GIB
    assert len(found.reassignments) <= 4


def test_small_differences_in_bytes_move_nothing() -> None:
    fleet = FleetPlacement((broker(0), broker(1)), (partition(0, (0,), size=900), partition(1, (1,), size=5)))
    assert plan(fleet, Policy()).is_empty


def test_a_broker_with_twice_the_disk_gets_twice_the_share() -> None:
    brokers = tuple(
        replace(broker(n), log_dirs=(LogDir("/d", size * GIB, size * GIB),)) for n, size in ((0, 100), (1, 200))
    )
    after = _after(FleetPlacement(brokers, tuple(partition(index, (0,), size=GIB) for index in range(60))))
    assert 17 <= counts(after)[0] <= 23


def test_leaders_are_evened_out_by_order_alone() -> None:
    fleet = FleetPlacement(tuple(broker(n) for n in range(3)), tuple(partition(index, (0, 1, 2)) for index in range(9)))
    found = plan(fleet, EXACT)
    assert found.bytes_to_copy == 0 and all(not one.added for one in found.reassignments)
    assert sorted(leads(carried_out(fleet, found)).values()) in ([2, 3, 4], [3, 3, 3])


def test_more_replicas_are_added_and_fewer_are_taken_away() -> None:
    brokers = tuple(broker(n, "abc"[n]) for n in range(3))
    fleet = FleetPlacement(brokers, (partition(0, (0,), factor=3), partition(1, (0, 1, 2), factor=1)))
    after = _after(fleet)
    assert set(after.partitions[0].brokers) == {0, 1, 2}
    assert len(after.partitions[1].brokers) == 1


def test_what_is_left_of_surplus_replicas_is_spread_in_the_same_plan() -> None:
    """Brokers 0 and 3 share a rack with the only broker of another node, so it is broker 2 that has to stay."""
    brokers = (broker(0, "a", node="n"), broker(2, "b", node="n"), broker(3, "a", node="n"), broker(8, "a", node="m"))
    fleet = FleetPlacement(brokers, (replace(partition(0, (0, 2, 3), factor=2), in_sync=(0,)),))
    after = _after(fleet, Policy(balance=False))
    assert set(after.partitions[0].brokers) == {2, 8}


def test_a_replica_out_of_sync_is_the_first_to_go() -> None:
    behind = replace(partition(0, (0, 1, 2), factor=2), in_sync=(1, 2))
    after = _after(FleetPlacement(tuple(broker(n) for n in range(3)), (behind,)), Policy(balance=False))
    assert after.partitions[0].brokers == (1, 2)


def test_a_cordoned_broker_keeps_its_replicas_and_gets_none() -> None:
    brokers = (broker(0), broker(1, state="cordoned"), broker(2, state="draining"))
    after = _after(FleetPlacement(brokers, (*spread_over([0, 1], 4, 1), *spread_over([2], 4, 1, topic="u"))))
    assert counts(after) == {0: 6, 1: 2, 2: 0}


def test_replicas_on_brokers_of_others_stay() -> None:
    fleet = FleetPlacement((broker(0), broker(1)), tuple(partition(index, (9, 0)) for index in range(4)))
    assert all(one.brokers[0] == 9 or 9 in one.brokers for one in _after(fleet).partitions)


def test_a_draining_directory_is_emptied_into_the_others_of_its_broker() -> None:
    dirs = (
        LogDir("/a", 100 * GIB, 50 * GIB, "draining"),
        LogDir("/b", 100 * GIB, 90 * GIB),
        LogDir("/c", 100 * GIB, 90 * GIB),
    )
    fleet = FleetPlacement(
        (replace(broker(0), log_dirs=dirs),),
        tuple(partition(index, (0,), size=GIB, dirs={0: "/a"}) for index in range(10)),
    )
    found = plan(fleet, Policy())
    assert not found.reassignments and len(found.log_dir_moves) == 10
    after = carried_out(fleet, found)
    where = [one.replicas[0].log_dir for one in after.partitions]
    assert where.count("/b") == where.count("/c") == 5
    assert plan(after, Policy()).is_empty


def test_a_draining_directory_without_room_beside_it_goes_to_other_brokers() -> None:
    dirs = (LogDir("/a", 100 * GIB, 0, "draining"), LogDir("/b", 100 * GIB, 11 * GIB))
    fleet = FleetPlacement(
        (replace(broker(0), log_dirs=dirs), broker(1)),
        tuple(partition(index, (0,), size=10 * GIB, dirs={0: "/a"}) for index in range(2)),
    )
    found = plan(fleet, Policy(balance=False))
    assert [one.after for one in found.reassignments] == [(1,), (1,)]


def test_bytes_are_evened_out_among_the_directories_of_a_broker() -> None:
    dirs = (LogDir("/a", 100 * GIB, 60 * GIB), LogDir("/b", 100 * GIB, 100 * GIB))
    fleet = FleetPlacement(
        (replace(broker(0), log_dirs=dirs),),
        tuple(partition(index, (0,), size=4 * GIB, dirs={0: "/a"}) for index in range(10)),
    )
    found = plan(fleet, Policy())
    assert 4 <= len(found.log_dir_moves) <= 5 and plan(carried_out(fleet, found), Policy()).is_empty


@pytest.mark.parametrize("size", [0, GIB])
def test_a_large_fleet_grows_by_about_the_share_of_the_new_broker(size: int) -> None:
    brokers = tuple(broker(n, "abc"[n % 3]) for n in range(10))
    fleet = FleetPlacement(brokers, tuple(spread_over(range(9), 900, 3, size=size)))
    found = plan(fleet, Policy())
    moved = sum(len(one.added) for one in found.reassignments)
    assert 210 <= moved <= 240, "its rack has 900 replicas on four brokers"
    assert counts(carried_out(fleet, found))[9] >= 210


@settings(max_examples=150, deadline=None)
@given(fleets(), st.booleans())
def test_rules_hold_in_every_fleet(fleet: FleetPlacement, balances: bool) -> None:
    policy = Policy(slack_bytes=GIB, balance=balances)
    found = plan(fleet, policy)
    after = carried_out(fleet, found)
    refused = {(one.topic, one.index) for one in found.refusals}
    known = {one.id: one for one in fleet.brokers}
    before = {one.id: one for one in fleet.partitions}
    for one in after.partitions:
        there = one.brokers
        assert len(set(there)) == len(there), "two replicas on one broker"
        new = set(there) - set(before[one.id].brokers)
        assert all(known[number].state == "active" for number in new)
        for number in new:
            beside = [other for other in there if other != number and known[other].node == known[number].node]
            assert not beside, "two replicas on one node"
        if one.id not in refused:
            assert all(known[number].state != "draining" for number in there)
            assert len({known[number].node for number in there}) == len(there)
            assert len(there) == (before[one.id].factor or len(before[one.id].replicas))
            for replica in one.replicas:
                states = {log_dir.path: log_dir.state for log_dir in known[replica.broker].log_dirs}
                assert states.get(replica.log_dir, "active") != "draining"
    assert plan(after, policy).is_empty, "the plan of the result has to be empty"


@settings(max_examples=60, deadline=None)
@given(fleets(with_room=False))
def test_full_disks_only_need_more_than_one_plan(fleet: FleetPlacement) -> None:
    for _ in range(50):
        found = plan(fleet, EXACT)
        if found.is_empty:
            return
        fleet = carried_out(fleet, found)
    raise AssertionError("fifty plans, and still something to move")


@settings(max_examples=150, deadline=None)
@given(fleets(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(fleet: FleetPlacement, order: random.Random) -> None:
    brokers, partitions = list(fleet.brokers), list(fleet.partitions)
    order.shuffle(brokers)
    order.shuffle(partitions)
    assert plan(fleet, EXACT) == plan(FleetPlacement(tuple(brokers), tuple(partitions)), EXACT)


@settings(max_examples=100, deadline=None)
@given(fleets(spread=True))
def test_no_more_replicas_move_than_brings_brokers_into_their_bands(fleet: FleetPlacement) -> None:
    policy = Policy(slack_bytes=1 << 60)
    fleet = replace(fleet, brokers=tuple(replace(one, log_dirs=()) for one in fleet.brokers))
    necessary = plan(fleet, replace(policy, balance=False))
    placed = carried_out(fleet, necessary)
    limits = band(sum(counts(placed).values()) / len(fleet.brokers), policy.tolerance)
    excess = sum(outside(value, limits) ** 2 for value in counts(placed).values())
    most = sum(len(one.added) for one in necessary.reassignments) + excess
    assert sum(len(one.added) for one in plan(fleet, policy).reassignments) <= most

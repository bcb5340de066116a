"""Replica assignment: the golden vectors of KIP-36 and what holds for every assignment."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.controller.decisions.assignment import (
    BrokerRack,
    IncompleteRacks,
    InvalidPartitionCount,
    InvalidReplicationFactor,
    RackMode,
    alternate_racks,
    assign_added_partitions,
    assign_new_topic,
    assign_replicas,
)

SIX = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}


def with_racks(racks: dict[int, str]) -> list[BrokerRack]:
    return [BrokerRack(broker, rack) for broker, rack in sorted(racks.items())]


def test_brokers_alternate_between_racks() -> None:
    assert alternate_racks(SIX) == [0, 3, 1, 5, 4, 2]
    assert alternate_racks({0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1", 6: "rack2"}) == [
        0, 3, 1, 5, 4, 2, 6,
    ]  # fmt: skip


def test_assignment_by_racks_spreads_leaders_and_followers() -> None:
    assigned = assign_replicas(with_racks(SIX), 7, 3, start_index=0, shift=0)
    assert assigned == {
        0: (0, 3, 1),
        1: (3, 1, 5),
        2: (1, 5, 4),
        3: (5, 4, 2),
        4: (4, 2, 0),
        5: (2, 0, 3),
        6: (0, 4, 2),
    }


def test_without_racks_followers_shift_by_one_a_round() -> None:
    brokers = [BrokerRack(broker) for broker in range(5)]
    assigned = assign_replicas(brokers, 10, 3, start_index=0, shift=0)
    assert assigned[5] == (0, 2, 3) and assigned[9] == (4, 1, 2)


def test_fewer_racks_than_replicas_fill_all_brokers_once() -> None:
    assigned = assign_replicas(with_racks({0: "a", 1: "a", 2: "b"}), 4, 3, start_index=0, shift=0)
    assert all(sorted(replicas) == [0, 1, 2] for replicas in assigned.values())


def test_added_partitions_go_on_from_the_first_replica_of_partition_0() -> None:
    brokers = with_racks(SIX)
    created = assign_replicas(brokers, 4, 3, start_index=2, shift=2)
    added = assign_added_partitions(brokers, created, 9)
    assert sorted(added) == [4, 5, 6, 7, 8]
    # Partition 0 starts on broker 1, which is the second by id: that place is start and shift of what follows.
    assert added == assign_replicas(brokers, 5, 3, start_index=1, shift=1, first_partition=4)


def test_added_partitions_of_a_topic_whose_first_broker_is_gone_start_at_the_next() -> None:
    brokers = [BrokerRack(1), BrokerRack(5)]
    assert assign_added_partitions(brokers, {0: (3, 1)}, 2) == {1: (1, 5)}


def test_what_cannot_be_assigned_is_refused() -> None:
    brokers = [BrokerRack(0), BrokerRack(1)]
    with pytest.raises(InvalidPartitionCount):
        assign_replicas(brokers, 0, 1, start_index=0, shift=0)
    with pytest.raises(InvalidReplicationFactor, match="larger than 0"):
        assign_replicas(brokers, 1, 0, start_index=0, shift=0)
    with pytest.raises(InvalidReplicationFactor, match="3 larger than available brokers: 2"):
        assign_replicas(brokers, 1, 3, start_index=0, shift=0)


def test_brokers_without_rack_are_refused_or_make_all_racks_forgotten() -> None:
    brokers = [BrokerRack(0, "a"), BrokerRack(1), BrokerRack(2, "b")]
    with pytest.raises(IncompleteRacks, match="broker 1"):
        assign_replicas(brokers, 1, 2, start_index=0, shift=0)
    assigned = assign_replicas(brokers, 3, 2, start_index=0, shift=0, mode=RackMode.SAFE)
    assert assigned == {0: (0, 1), 1: (1, 2), 2: (2, 0)}


@given(
    racks=st.dictionaries(st.integers(0, 30), st.sampled_from("abcde"), min_size=1, max_size=12),
    partitions=st.integers(1, 60),
    data=st.data(),
)
def test_every_assignment_is_valid_spread_over_racks_and_balanced(racks, partitions, data) -> None:
    replication_factor = data.draw(st.integers(1, len(racks)))
    source = random.Random(data.draw(st.integers(0, 1000)))
    assigned = assign_new_topic(with_racks(racks), partitions, replication_factor, source.randrange)
    assert sorted(assigned) == list(range(partitions))
    for replicas in assigned.values():
        assert len(replicas) == len(set(replicas)) == replication_factor
        assert set(replicas) <= set(racks)
        used = {racks[broker] for broker in replicas}
        assert len(used) == min(replication_factor, len(set(racks.values())))
    leaders = Counter(replicas[0] for replicas in assigned.values())
    assert max(leaders.values()) - min(leaders.get(broker, 0) for broker in racks) <= 1


@given(
    racks=st.integers(2, 4),
    per_rack=st.integers(1, 4),
    rounds=st.integers(1, 4),
    data=st.data(),
)
def test_racks_of_one_size_share_replicas_evenly(racks, per_rack, rounds, data) -> None:
    brokers = {index: f"rack{index % racks}" for index in range(racks * per_rack)}
    replication_factor = data.draw(st.integers(1, racks))
    start = data.draw(st.integers(0, len(brokers) - 1))
    assigned = assign_replicas(
        with_racks(brokers), len(brokers) * rounds, replication_factor, start_index=start, shift=start
    )
    load = Counter(broker for replicas in assigned.values() for broker in replicas)
    assert set(load.values()) == {replication_factor * rounds}

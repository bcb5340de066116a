"""The batches of a roll: safe for every partition, as large as can be, and the same for the same fleet."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_operator.api.fleet import PartitionReport
from ottla_operator.concerns.roll.batches import (
    largest_set,
    limits,
    needed_in_sync,
    next_batch,
    partition_blockers,
    planned_batches,
)

Fleet = tuple[dict[int, str], list[PartitionReport], int | None]


def _partition(index: int, replicas: str, in_sync: str | None = None, needs: int | None = 2) -> PartitionReport:
    """Brokers as digits."""
    all_of, now = (tuple(map(int, text)) for text in (replicas, replicas if in_sync is None else in_sync))
    return PartitionReport("t", index, now[0] if now else -1, all_of, now, needs)


@st.composite
def _fleets(draw: st.DrawFn, most_brokers: int = 9) -> Fleet:
    count = draw(st.integers(1, most_brokers))
    racks = {number: draw(st.sampled_from(("a", "b", "c", ""))) for number in range(count)}
    partitions = []
    for index in range(draw(st.integers(0, 12))):
        replicas = tuple(draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=4, unique=True)))
        missing = draw(st.sets(st.sampled_from(replicas), max_size=1 if draw(st.integers(0, 3)) else 4))
        in_sync = tuple(replica for replica in replicas if replica not in missing)
        needs = draw(st.sampled_from((None, 1, 2, 3)))
        partitions.append(PartitionReport("t", index, in_sync[0] if in_sync else -1, replicas, in_sync, needs))
    return racks, partitions, draw(st.sampled_from((None, *racks)))


def _keeps_what_it_needs(partition: PartitionReport, batch: tuple[int, ...]) -> bool:
    """The rule once more, in words of its own: what is promised to a producer with acks=all."""
    stopped = set(batch) & set(partition.in_sync)
    if not stopped or len(partition.replicas) == 1:
        return True
    left = len(set(partition.in_sync) - set(batch))
    if partition.min_in_sync is None or partition.min_in_sync >= len(partition.replicas):
        return left >= len(partition.replicas) - 1 and left >= 1
    return left >= partition.min_in_sync and left >= 1


@settings(max_examples=200, deadline=None)
@given(_fleets(), st.sampled_from((None, 1, 2, 3)), st.sampled_from((0, 5, 20_000)))
def test_no_batch_takes_a_partition_below_min_insync_replicas(fleet: Fleet, most: int | None, steps: int) -> None:
    racks, partitions, controller = fleet
    batch = next_batch(racks, partitions, controller, most=most, search_limit=steps)
    assert all(_keeps_what_it_needs(partition, batch.brokers) for partition in partitions)
    assert partition_blockers(partitions, batch.brokers) == ()
    assert len({racks[broker] for broker in batch.brokers}) <= 1, "one rack"
    assert len(batch.brokers) <= 1 or racks[batch.brokers[0]] != "", "without a rack: alone"
    assert most is None or len(batch.brokers) <= most
    assert set(batch.left_out) == set(racks) - set(batch.brokers) and all(batch.left_out.values())


@settings(max_examples=200, deadline=None)
@given(_fleets(), st.sampled_from((0, 3, 20_000)))
def test_the_set_is_the_largest_or_nothing_can_be_added_to_it(fleet: Fleet, steps: int) -> None:
    racks, partitions, _ = fleet
    bounds = limits(partitions, racks)
    found, is_largest = largest_set(racks, bounds, search_limit=steps)
    for broker in set(racks) - found:
        assert partition_blockers(partitions, (*found, broker)), "it is maximal, however short the search was"
    if is_largest:
        for larger in combinations(sorted(racks), len(found) + 1):
            assert partition_blockers(partitions, larger), f"{larger} would be larger than {found}"


@settings(max_examples=200, deadline=None)
@given(_fleets())
def test_no_other_rack_has_a_larger_batch_unless_the_controller_is_in_it(fleet: Fleet) -> None:
    racks, partitions, controller = fleet
    batch = next_batch(racks, partitions, controller)
    for rack in set(racks.values()) - {""}:
        brokers = [broker for broker in racks if racks[broker] == rack]
        if controller in brokers:
            continue
        for larger in combinations(brokers, len(batch.brokers) + 1):
            assert partition_blockers(partitions, larger)


@settings(max_examples=200, deadline=None)
@given(_fleets(), st.sampled_from((None, 1, 2)))
def test_every_broker_that_may_be_stopped_alone_is_planned_once_and_the_controller_in_the_last_batch(
    fleet: Fleet, most: int | None
) -> None:
    racks, partitions, controller = fleet
    planned_ones = planned_batches(racks, partitions, controller, most=most)
    batches = [batch.brokers for batch in planned_ones if batch.brokers]
    planned = [broker for batch in batches for broker in batch]
    assert sorted(planned) == [broker for broker in racks if not partition_blockers(partitions, (broker,))]
    if controller in planned:
        assert controller in batches[-1]


@settings(max_examples=200, deadline=None)
@given(_fleets(), st.randoms(use_true_random=False))
def test_the_same_fleet_has_the_same_batch_in_whatever_order_it_is_described(fleet: Fleet, random: object) -> None:
    racks, partitions, controller = fleet
    shuffled = list(racks)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    others = list(partitions)
    random.shuffle(others)  # type: ignore[attr-defined]
    again = next_batch({broker: racks[broker] for broker in shuffled}, others, controller)
    assert again.brokers == next_batch(racks, partitions, controller).brokers


def test_a_whole_rack_is_one_batch_where_replicas_follow_racks() -> None:
    racks = {broker: "abc"[broker % 3] for broker in range(9)}
    partitions = [_partition(n, f"{n % 9}{(n + 1) % 9}{(n + 2) % 9}") for n in range(60)]
    batches = [batch.brokers for batch in planned_batches(racks, partitions, 1)]
    assert batches == [(0, 3, 6), (2, 5, 8), (1, 4, 7)]


def test_two_replicas_in_one_rack_are_not_stopped_together_at_min_insync_replicas() -> None:
    racks = {0: "a", 1: "a", 2: "a", 3: "b"}
    batch = next_batch(racks, [_partition(0, "013")], 3)
    assert batch.brokers == (0, 2)
    assert batch.left_out[1] == "together with 0, 2: t-0: 1 of 2 needed replicas would stay in sync"
    assert batch.left_out[3] == "it is the active controller, which is restarted last"
    assert next_batch(racks, [_partition(0, "013", needs=1)], 3).brokers == (0, 1, 2)


def test_a_topic_whose_min_insync_replicas_is_not_known_keeps_all_replicas_but_one() -> None:
    racks = {0: "a", 1: "a", 2: "b"}
    assert next_batch(racks, [_partition(0, "012", needs=None)], None).brokers == (0,)
    assert next_batch(racks, [_partition(0, "012", "01", needs=None)], None).brokers == (2,)


def test_a_partition_with_no_more_replicas_than_min_insync_replicas_lets_one_go_and_a_single_replica_too() -> None:
    assert needed_in_sync(_partition(0, "01", needs=2)) == 1 and needed_in_sync(_partition(0, "0", needs=2)) == 0
    racks = {0: "a", 1: "a", 2: "a"}
    partitions = [_partition(0, "01", needs=2), _partition(1, "2", needs=2)]
    assert next_batch(racks, partitions, None).brokers == (0, 2)


def test_partition_blockers_are_sorted_by_how_many_replicas_they_lack() -> None:
    partitions = [_partition(0, "012", "02"), _partition(1, "0123", "0", needs=3), _partition(2, "34")]
    assert partition_blockers(partitions, (0,)) == (
        "t-1: replica 1, 2, 3 is not in sync",
        "t-0: replica 1 is not in sync",
    )
    assert partition_blockers(partitions, (0,), stopping=()) == ()


def test_a_large_rack_with_replicas_all_over_it_is_planned_within_the_search_limit() -> None:
    """60 brokers of one rack that share 2000 partitions in a fixed pattern; the batch is safe."""
    racks = dict.fromkeys(range(60), "a")
    assigned = [(n % 60, (n * 7 + 1) % 60, (n * 13 + 5) % 60) for n in range(2000)]
    partitions = [PartitionReport("t", n, of[0], of, of, 2) for n, of in enumerate(assigned) if len(set(of)) == 3]
    batch = next_batch(racks, partitions, None)
    assert batch.brokers and partition_blockers(partitions, batch.brokers) == ()
    assert all(partition_blockers(partitions, (*batch.brokers, other)) for other in batch.left_out)

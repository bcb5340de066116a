"""Which brokers a roll may restart together: the largest set of one rack that every partition can do without.

A batch is safe when each partition that has one of its brokers in the ISR keeps enough replicas in sync without all of
them: min.insync.replicas of the topic, and at least one. Where that can never hold (a partition with no more replicas
than min.insync.replicas), all replicas but one have to stay; a partition with one replica is unavailable whatever is
done. Whether a roll may stop the brokers of such partitions at all is the caller's decision (`exposed`). A topic whose
min.insync.replicas is not known keeps all replicas but one in sync: the strictest rule that still lets a roll go on.

    partition  replicas  ISR      min.insync.replicas  needs in sync  may stop together
    a          1,2,3     1,2,3    2                    2              any one of 1, 2, 3
    b          1,2,3     1,2      2                    2              3 only (it is not in sync)
    c          1,2,4     1,2,4    1                    1              any two of 1, 2, 4
    d          1,2       1,2      2                    1              any one of 1, 2
    e          5         5        1                    0              5

With brokers 1 and 4 in one rack, {1, 4} is safe for c and not for a fleet in which a partition like a has both.

Finding the largest set is a packing problem: each partition allows at most (in sync - needed) brokers of the set. What
counts is only which brokers share partitions, so partitions with the same brokers become one limit, the tightest; a
broker in no limit is always in. What is left is searched exactly (branch and bound) within `SEARCH_LIMIT` steps, and
beyond that greedily: always safe, always maximal, for fleets whose replicas follow racks the largest as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla_operator.api.fleet import PartitionReport

SEARCH_LIMIT = 20_000
"""Steps of the exact search: about 0.1 s."""
BLOCKERS_SHOWN = 5

Limits = Mapping[frozenset[int], int]
"""At most so many brokers of each set may be stopped together."""


@dataclass(frozen=True, slots=True)
class RollBatch:
    """The next batch, sorted. `left_out`: why each other candidate is not in it. `is_largest`: no larger is safe."""

    brokers: tuple[int, ...]
    left_out: Mapping[int, str]
    is_largest: bool = True


def needed_in_sync(partition: PartitionReport) -> int:
    """How many replicas have to stay in sync while brokers of this partition are stopped.

    >>> three, two, one = (1, 2, 3), (1, 2), (1,)
    >>> [needed_in_sync(PartitionReport("t", 0, 1, r, r, m)) for r, m in ((three, 2), (three, 1), (two, 2), (one, 1))]
    [2, 1, 1, 0]
    >>> needed_in_sync(PartitionReport("t", 0, 1, three, three, None))
    2
    """
    others = len(partition.replicas) - 1
    if partition.min_in_sync is None:
        return others
    return min(others, max(1, partition.min_in_sync))


def partition_blockers(
    partitions: Iterable[PartitionReport], batch: Collection[int], stopping: Collection[int] | None = None
) -> tuple[str, ...]:
    """The partitions for which the batch must not stop, those that lack most first; empty when it is safe.

    Args:
        stopping: the brokers of the batch that serve now, all by default; a partition that has none of them in its ISR
            loses nothing.
    """
    gone = set(batch)
    taken = gone if stopping is None else set(stopping)
    found: list[tuple[int, str]] = []
    for partition in partitions:
        if taken.isdisjoint(partition.in_sync):
            continue
        left = sum(1 for replica in partition.in_sync if replica not in gone)
        needed = needed_in_sync(partition)
        if left < needed:
            found.append((left - needed, _why(partition, gone, left, needed)))
    return tuple(text for _, text in sorted(found, key=lambda item: item[0])[:BLOCKERS_SHOWN])


def exposed(partitions: Iterable[PartitionReport], brokers: Collection[int]) -> dict[int, str]:
    """The brokers that cannot be stopped without a partition that clients lose meanwhile, with the first such.

    These are partitions with one replica, and with as many replicas as min.insync.replicas: producers with acks=all get
    NotEnoughReplicas. No order of restarts helps them.

    >>> single, tight = PartitionReport("t", 0, 1, (1,), (1,), 1), PartitionReport("u", 0, 2, (2, 3), (2, 3), 2)
    >>> found = exposed([single, tight, PartitionReport("v", 0, 4, (4, 5), (4, 5), 1)], (1, 2, 4))
    >>> found[1], sorted(found)
    ('t-0 has one replica (spec.rolling.allowUnavailability)', [1, 2])
    """
    found: dict[int, str] = {}
    for partition in partitions:
        count = len(partition.replicas)
        if count > 1 and (partition.min_in_sync is None or count > partition.min_in_sync):
            continue
        why = f"has {count} replicas, and min.insync.replicas is {partition.min_in_sync}"
        if count == 1:
            why = "has one replica"
        for broker in partition.in_sync:
            if broker in brokers:
                found.setdefault(broker, f"{partition} {why} (spec.rolling.allowUnavailability)")
    return found


def _why(partition: PartitionReport, gone: Collection[int], left: int, needed: int) -> str:
    behind = [str(r) for r in partition.replicas if r not in gone and r not in partition.in_sync]
    if behind:
        return f"{partition}: replica {', '.join(behind)} is not in sync"
    return f"{partition}: {left} of {needed} needed replicas would stay in sync"


def limits(partitions: Iterable[PartitionReport], candidates: Collection[int]) -> dict[frozenset[int], int]:
    """The limits that bind: sets of candidates that share a partition, and how many of each may stop together."""
    among = set(candidates)
    found: dict[frozenset[int], int] = {}
    for partition in partitions:
        sharing = among.intersection(partition.in_sync)
        if not sharing:
            continue
        allowed = max(0, len(partition.in_sync) - needed_in_sync(partition))
        if len(sharing) > allowed:
            key = frozenset(sharing)
            found[key] = min(allowed, found.get(key, allowed))
    return found


def largest_set(
    candidates: Iterable[int], bounds: Limits, *, search_limit: int = SEARCH_LIMIT
) -> tuple[set[int], bool]:
    """The largest set of candidates within the limits, and whether it is known to be the largest.

    >>> largest_set([1, 2, 3, 4], {frozenset({1, 2, 3}): 1, frozenset({4}): 0})
    ({1}, True)
    >>> largest_set([1, 2, 3, 4], {frozenset({1, 2}): 1, frozenset({1, 3}): 1})
    ({2, 3, 4}, True)
    """
    impossible = {broker for group, allowed in bounds.items() if allowed == 0 for broker in group}
    possible = sorted(set(candidates) - impossible)
    groups: dict[frozenset[int], int] = {}
    for group, allowed in bounds.items():
        left = group.intersection(possible)
        if len(left) > allowed:
            groups[left] = min(allowed, groups.get(left, allowed))
    of_broker: dict[int, list[frozenset[int]]] = {broker: [] for broker in possible}
    for group in groups:
        for broker in group:
            of_broker[broker].append(group)
    free = {broker for broker in possible if not of_broker[broker]}
    bound = [broker for broker in possible if broker not in free]
    search = _Search(bound, groups, of_broker, search_limit)
    best, is_largest = search.run()
    return free | best, is_largest


class _Search:
    """Branch and bound over the brokers that limits bind, in the order of their ids; greedy when it takes too long."""

    def __init__(
        self,
        brokers: Sequence[int],
        groups: Limits,
        of_broker: Mapping[int, Sequence[frozenset[int]]],
        search_limit: int,
    ) -> None:
        self._brokers = brokers
        self._of_broker = of_broker
        self._left = dict(groups)
        self._steps_left = search_limit
        self._best: set[int] = set()
        self._chosen: list[int] = []

    def run(self) -> tuple[set[int], bool]:
        self._best = self._greedy()
        stack: list[tuple[int, bool]] = [(0, False)]
        # Each item: the index of the broker to decide, and whether it is the return from the branch that takes it.
        while stack:
            index, returning = stack.pop()
            if returning:
                self._give_back(self._chosen.pop())
                continue
            if self._steps_left == 0:
                return self._completed(), False
            self._steps_left -= 1
            if len(self._chosen) + len(self._brokers) - index <= len(self._best):
                continue
            if index == len(self._brokers):
                self._best = set(self._chosen)
                continue
            broker = self._brokers[index]
            stack.append((index + 1, False))
            if self._fits(broker):
                self._take(broker)
                self._chosen.append(broker)
                stack += [(index, True), (index + 1, False)]
        return self._best, True

    def _fits(self, broker: int) -> bool:
        return all(self._left[group] > 0 for group in self._of_broker[broker])

    def _take(self, broker: int) -> None:
        for group in self._of_broker[broker]:
            self._left[group] -= 1

    def _give_back(self, broker: int) -> None:
        for group in self._of_broker[broker]:
            self._left[group] += 1

    def _greedy(self) -> set[int]:
        """Takes the brokers with the fewest limits first."""
        taken: list[int] = []
        for broker in sorted(self._brokers, key=lambda one: (len(self._of_broker[one]), one)):
            if self._fits(broker):
                self._take(broker)
                taken.append(broker)
        for broker in taken:
            self._give_back(broker)
        return set(taken)

    def _completed(self) -> set[int]:
        """The best set so far, with every broker added that still fits: nothing can be added to the result."""
        while self._chosen:
            self._give_back(self._chosen.pop())
        for broker in sorted(self._best):
            self._take(broker)
        for broker in self._brokers:
            if broker not in self._best and self._fits(broker):
                self._take(broker)
                self._best.add(broker)
        return self._best


def next_batch(
    racks: Mapping[int, str],
    partitions: Iterable[PartitionReport],
    controller: int | None,
    *,
    most: int | None = None,
    search_limit: int = SEARCH_LIMIT,
) -> RollBatch:
    """The batch to restart next; empty when no candidate may be stopped now.

    The largest safe set of one rack; of equal ones that of the first rack. The active controller comes last: its rack
    is chosen when no other can be, and it is in a batch only when nobody else of its rack is left.

    Args:
        racks: the candidates with their racks; a broker whose rack is "" is restarted alone.
        most: how many brokers a batch may have; None: no bound.
    """
    return _next(racks, _distinct(partitions), controller, most, search_limit)


def planned_batches(
    racks: Mapping[int, str],
    partitions: Iterable[PartitionReport],
    controller: int | None,
    *,
    most: int | None = None,
) -> tuple[RollBatch, ...]:
    """All batches, as they would follow each other if the ISRs stayed as they are. Who cannot be stopped is in none.

    The last one is empty when some cannot be stopped; its `left_out` says why.
    """
    distinct = _distinct(partitions)
    left = dict(racks)
    found: list[RollBatch] = []
    while left:
        batch = _next(left, distinct, controller, most, SEARCH_LIMIT)
        found.append(batch)
        if not batch.brokers:
            break
        for broker in batch.brokers:
            del left[broker]
    return tuple(found)


def _distinct(partitions: Iterable[PartitionReport]) -> tuple[PartitionReport, ...]:
    """One partition of those that limit a batch in the same way: a fleet has far fewer of these than partitions."""
    found: dict[tuple[object, ...], PartitionReport] = {}
    for partition in partitions:
        found.setdefault((partition.replicas, partition.in_sync, partition.min_in_sync), partition)
    return tuple(found.values())


def _next(
    racks: Mapping[int, str],
    partitions: Sequence[PartitionReport],
    controller: int | None,
    most: int | None,
    search_limit: int,
) -> RollBatch:
    together: dict[tuple[bool, str, int], list[int]] = {}
    controllers_rack = racks.get(controller, "") if controller is not None else ""
    for broker in sorted(racks):
        is_controllers = broker == controller or racks[broker] == controllers_rack != ""
        together.setdefault((is_controllers, racks[broker], -1 if racks[broker] else broker), []).append(broker)
    chosen: set[int] = set()
    is_largest, rack = True, ""
    for (is_controllers, name, _), brokers in sorted(together.items()):
        if is_controllers and chosen:
            continue
        found, exact = _of_rack(brokers, partitions, controller, most if name else 1, search_limit)
        if len(found) > len(chosen):
            chosen, is_largest, rack = found, exact, name
    left_out = _why_left_out(racks, chosen, rack, partitions, controller, most)
    return RollBatch(tuple(sorted(chosen)), left_out, is_largest)


def _of_rack(
    brokers: Sequence[int],
    partitions: Sequence[PartitionReport],
    controller: int | None,
    most: int | None,
    search_limit: int,
) -> tuple[set[int], bool]:
    """The largest safe set among the brokers of a rack, without the active controller while others can go."""
    bounds = limits(partitions, brokers)
    found, is_largest = largest_set(brokers, bounds, search_limit=search_limit)
    if controller in found and (len(found) < len(brokers) or (most is not None and len(found) > most)):
        others = [broker for broker in brokers if broker != controller]
        without, exact = largest_set(others, bounds, search_limit=search_limit)
        if without:
            found, is_largest = without, exact
    return (found if most is None else set(sorted(found)[:most])), is_largest


def _why_left_out(
    racks: Mapping[int, str],
    batch: Collection[int],
    rack: str,
    partitions: Sequence[PartitionReport],
    controller: int | None,
    most: int | None,
) -> dict[int, str]:
    """The reason of each candidate that is not in the batch, from one walk over the partitions."""
    alone: dict[int, str] = {}
    added: dict[int, str] = {}
    for partition in partitions:
        spare = len(partition.in_sync) - needed_in_sync(partition)
        with_batch = spare - sum(1 for replica in partition.in_sync if replica in batch)
        if with_batch > 0:
            continue
        for broker in partition.in_sync:
            if broker not in racks or broker in batch:
                continue
            if spare <= 0:
                alone.setdefault(broker, partition_blockers((partition,), (broker,))[0])
            elif racks[broker] == rack:
                added.setdefault(broker, partition_blockers((partition,), (*batch, broker))[0])
    found: dict[int, str] = {}
    for broker in sorted(racks.keys() - set(batch)):
        if broker in alone:
            found[broker] = alone[broker]
        elif broker == controller:
            found[broker] = "it is the active controller, which is restarted last"
        elif not racks[broker]:
            found[broker] = "it has no rack, and is restarted alone"
        elif racks[broker] != rack:
            found[broker] = f"rack {racks[broker]} comes later"
        elif broker in added:
            found[broker] = f"together with {', '.join(map(str, sorted(batch)))}: {added[broker]}"
        else:
            found[broker] = f"a batch has at most {most}" if most is not None else "it is left for the next batch"
    return found

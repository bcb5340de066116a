"""What has to move, whatever the balance: replicas that must not stay, missing and surplus ones.

A replica must not stay on a draining broker, beside another one of its partition on the same node, or in a rack that
has more of them than it must; nor on a draining directory whose broker has no room elsewhere. Its place is taken by
the least loaded broker that may have it. When no brokers can be found for a partition, it stays as it is, with the
reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from ottla_operator.facts.fleet_values import PlacementRefusal
from ottla_operator.rebalancer.assignment import Assignment, by_load, factor_of

MOST_TRIES = 4_000
"""How many placements are tried for one partition before it counts as impossible."""


class Tries:
    """How many are left."""

    def __init__(self, left: int) -> None:
        self._left = left

    def take(self) -> bool:
        self._left -= 1
        return self._left >= 0


def place(assignment: Assignment) -> list[PlacementRefusal]:
    """Moves, adds and removes what is necessary. Returns the partitions for which that is not possible."""
    refusals: list[PlacementRefusal] = []
    for p in range(len(assignment.partitions)):
        reason = _place_one(assignment, p)
        if reason:
            partition = assignment.partitions[p]
            assignment.frozen.add(p)
            refusals.append(PlacementRefusal(partition.topic, partition.index, reason))
    return refusals


def _place_one(assignment: Assignment, p: int) -> str:
    """Places one partition; the reason when that is not possible."""
    partition = assignment.partitions[p]
    factor = factor_of(partition)
    before = list(assignment.replicas[p])
    if not before:
        return ""
    misplaced = _misplaced(assignment, p, factor, _stay_first(assignment, p))
    if not misplaced and len(before) == factor:
        return ""
    if _keep_most(assignment, p, factor):
        return ""
    has_to = [broker for broker in misplaced if _has_to_leave(assignment, p, broker)]
    if not has_to and len(before) > factor:
        for broker in _least_needed(assignment, p, before, len(before) - factor):
            assignment.remove(p, broker)  # the rest cannot be spread better
    return _reason(assignment, p, misplaced, factor)


def _keep_most(assignment: Assignment, p: int, factor: int) -> bool:
    """Keeps as many replicas as may be together, and finds brokers for the others; changes nothing when it cannot.

    Of equally many those that should rather stay. All choices are tried: of two replicas that must not be together
    either one may be the one for which there is another place.
    """
    before = list(assignment.replicas[p])
    surplus = len(before) - factor
    ordered = _stay_first(assignment, p)
    if surplus > 0:
        ordered = _least_needed(assignment, p, before, len(before))[::-1]
    candidates = [broker for broker in by_load(assignment, p, assignment.active) if assignment.has_room(p, broker)]
    tries = Tries(MOST_TRIES)
    for size in range(min(len(before), factor), -1, -1):
        for kept in combinations(ordered, size):
            if _misplaced(assignment, p, factor, kept):
                continue
            leaving = [broker for broker in before if broker not in kept]
            free = [broker for broker in candidates if broker not in leaving]
            targets = _search(assignment, kept, free, factor - size, tries)
            if targets is None:
                continue
            for source, target in zip(leaving, targets, strict=False):
                assignment.move(p, source, target)
            for broker in leaving[len(targets) :]:
                assignment.remove(p, broker)
            for target in targets[len(leaving) :]:
                assignment.add(p, target)
            return True
    return False


def _stay_first(assignment: Assignment, p: int) -> list[int]:
    """The replicas, those that should rather stay first: in sync, then by their place."""
    in_sync = assignment.partitions[p].in_sync
    return sorted(assignment.replicas[p], key=lambda broker: bool(in_sync) and broker not in in_sync)


def _has_to_leave(assignment: Assignment, p: int, broker: int) -> bool:
    return assignment.brokers[broker].state == "draining" or (p, broker) in assignment.evicted


def _misplaced(assignment: Assignment, p: int, factor: int, order: Sequence[int]) -> list[int]:
    """The replicas that must not stay; of two that must not be together, the second in `order`."""
    limit = assignment.rack_limit(factor)
    kept: list[int] = []
    misplaced: list[int] = []
    for broker in order:
        described = assignment.brokers.get(broker)
        if described is None:
            continue
        others = [assignment.brokers[other] for other in kept]
        if (
            _has_to_leave(assignment, p, broker)
            or (described.node and any(other.node == described.node for other in others))
            or sum(other.rack == described.rack for other in others) >= limit
        ):
            misplaced.append(broker)
        else:
            kept.append(broker)
    return misplaced


def _search(
    assignment: Assignment, kept: Sequence[int], candidates: Sequence[int], slots: int, tries: Tries
) -> list[int] | None:
    """So many of `candidates` beside those that are kept; None when there are none, or `tries` have been used up.

    The first of them first. A broker that leaves no place for the next one is given back.
    """
    limit = assignment.rack_limit(len(kept) + slots)

    def fits(chosen: Sequence[int], target: int) -> bool:
        broker = assignment.brokers[target]
        in_rack = 1
        for other in (*kept, *chosen):
            other_broker = assignment.brokers.get(other)
            if other == target or (other_broker is not None and broker.node and other_broker.node == broker.node):
                return False
            in_rack += other_broker is not None and other_broker.rack == broker.rack
        return in_rack <= limit

    def extend(chosen: list[int], start: int) -> list[int] | None:
        if len(chosen) == slots:
            return chosen
        for place_ in range(start, len(candidates)):
            if not tries.take():
                return None
            target = candidates[place_]
            if fits(chosen, target):
                found = extend([*chosen, target], place_ + 1)
                if found is not None:
                    return found
        return None

    return extend([], 0)


def _least_needed(assignment: Assignment, p: int, kept: Sequence[int], count: int) -> list[int]:
    """The replicas to give up: those out of sync first, then those of the most loaded brokers."""
    in_sync = assignment.partitions[p].in_sync

    def key(broker: int) -> tuple[bool, bool, float, int]:
        load = assignment.counts.get(broker, 0) / (assignment.shares.get(broker, 1.0) or 1.0)
        return bool(in_sync) and broker not in in_sync, broker != kept[0], load, broker

    return sorted(kept, key=key, reverse=True)[:count]


def _reason(assignment: Assignment, p: int, moved: Sequence[int], factor: int) -> str:
    """Why no brokers are found, in terms of what a person can change. Ordered checks."""
    leaving = ", ".join(str(broker) for broker in sorted(moved))
    where = f"{factor} replicas" + (f", those on broker {leaving} have to move" if moved else "")
    staying = [broker for broker in assignment.brokers.values() if broker.state != "draining"]
    if len(staying) < factor:
        return f"{where}: only {len(staying)} brokers stay"
    nodes = {broker.node or f"broker {broker.id}" for broker in staying}
    if len(nodes) < factor:
        return f"{where}: the brokers that stay run on {len(nodes)} nodes, and no node gets two"
    if not all(assignment.has_room(p, broker) for broker in assignment.active):
        return f"{where}: the brokers that may have them have no room for {assignment.sizes[p]} bytes"
    if len(assignment.active) < len(staying):
        closed = ", ".join(str(broker.id) for broker in staying if broker.state == "cordoned")
        return f"{where}: broker {closed} takes no new replicas now"
    return f"{where}: no brokers of different nodes and racks are left"

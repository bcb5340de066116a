"""Evens out replicas and bytes among the active brokers, with as few moves as that takes.

Two goals in this order: every broker within the band of replicas, then within the band of bytes. A step for the first
brings brokers closer to their bands, by the sum of squares. One for the second brings two brokers closer in bytes and
takes nothing back of the first. So there is an end, and a fleet in which no step is left gives an empty plan.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice

from ottla_operator.rebalancer.assignment import Assignment, band, outside

EXCHANGES_TRIED = 256
"""How many replicas of a broker are tried in an exchange with another one."""
LOOKED_AT = 32
"""How many replicas of nearly the wanted size are compared by how many their topic has on both brokers."""


def balance(assignment: Assignment) -> None:
    """Moves replicas until no step brings a goal closer."""
    if len(assignment.active) < 2:
        return
    limits = count_limits(assignment)
    while _even_counts(assignment, limits) | _even_bytes(assignment, limits):
        pass


def count_limits(assignment: Assignment) -> dict[int, tuple[int, int]]:
    """The band of replicas of each active broker."""
    active = assignment.active
    average = sum(assignment.counts[broker] for broker in active) / len(active)
    return {broker: band(average * assignment.shares[broker], assignment.policy.tolerance) for broker in active}


def _even_counts(assignment: Assignment, limits: dict[int, tuple[int, int]]) -> bool:
    """Moves single replicas from brokers with more than their share to those with less."""
    stuck: set[tuple[int, int]] = set()
    moved = False
    while True:
        step = next(
            (
                (p, source, target)
                for source, target in _count_pairs(assignment, limits)
                if (source, target) not in stuck
                and (p := _choose(assignment, source, target, _wanted_bytes(assignment, source, target), stuck))
                is not None
            ),
            None,
        )
        if step is None:
            return moved
        p, source, target = step
        assignment.move(p, source, target)
        stuck = {pair for pair in stuck if pair[0] != target}
        moved = True


def _count_pairs(assignment: Assignment, limits: dict[int, tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """(source, target) whose move brings the counts closer to the bands, the most urgent first."""
    counts = assignment.counts
    excess = {broker: counts[broker] / (assignment.shares[broker] or 1.0) for broker in assignment.active}
    from_most = sorted(assignment.active, key=lambda broker: (-excess[broker], broker))
    from_least = sorted(assignment.active, key=lambda broker: (excess[broker], broker))
    for source in from_most:
        for target in from_least:
            if source != target and _change(counts, limits, source, target) < 0:
                yield source, target


def _change(counts: dict[int, int], limits: dict[int, tuple[int, int]], source: int, target: int) -> int:
    """The change that a move makes to how far two brokers are outside of their bands, as a sum of squares."""
    before = outside(counts[source], limits[source]) ** 2 + outside(counts[target], limits[target]) ** 2
    after = outside(counts[source] - 1, limits[source]) ** 2 + outside(counts[target] + 1, limits[target]) ** 2
    return after - before


def _wanted_bytes(assignment: Assignment, source: int, target: int) -> int:
    """The bytes whose move gives two brokers the same part of their shares; negative when the target has more."""
    shares = assignment.shares
    source_share, target_share = shares[source] or 1.0, shares[target] or 1.0
    gap = assignment.load_bytes[source] / source_share - assignment.load_bytes[target] / target_share
    return int(gap / (1 / source_share + 1 / target_share))


def _choose(
    assignment: Assignment, source: int, target: int, target_bytes: int, stuck: set[tuple[int, int]]
) -> int | None:
    """The replica of `source` to move to `target`: of about `target_bytes`, of a topic with many there and few here."""
    found: list[tuple[int, int, int]] = []
    for size, _, p in _nearest(assignment, source, target_bytes):
        if assignment.allows(p, target, (source,)):
            topic = assignment.partitions[p].topic
            spread = assignment.of_topic.get((target, topic), 0) - assignment.of_topic[source, topic]
            found.append((_far(size, target_bytes), spread, p))
            if len(found) == LOOKED_AT:
                break
    if not found:
        stuck.add((source, target))
        return None
    return min(found)[2]


def _far(size: int, target_bytes: int) -> int:
    """How far a size is from the wanted one, in powers of two, so that similar sizes count as one."""
    return abs(size - target_bytes).bit_length()


def _nearest(assignment: Assignment, broker: int, target_bytes: int) -> Iterator[tuple[int, int, int]]:
    """What a broker holds, from the wanted size outwards."""
    held = list(assignment.held(broker))
    above = bisect_left(held, (target_bytes, 0, 0))
    below = above - 1
    while above < len(held) or below >= 0:
        if below < 0 or (above < len(held) and held[above][0] - target_bytes <= target_bytes - held[below][0]):
            yield held[above]
            above += 1
        else:
            yield held[below]
            below -= 1


def _even_bytes(assignment: Assignment, limits: dict[int, tuple[int, int]]) -> bool:
    """Moves replicas, or exchanges a large for a small one, until the bytes are within their bands too."""
    moved = False
    while (step := _byte_step(assignment, limits)) is not None:
        for p, source, target in step:
            assignment.move(p, source, target)
        moved = True
    return moved


def _byte_step(assignment: Assignment, limits: dict[int, tuple[int, int]]) -> list[tuple[int, int, int]] | None:
    policy, shares, load = assignment.policy, assignment.shares, assignment.load_bytes
    active = assignment.active
    average = sum(load[broker] for broker in active) / len(active)
    slack = max(average * policy.tolerance, policy.slack_bytes)
    excess = {broker: load[broker] - average * shares[broker] for broker in active}
    from_most = sorted(active, key=lambda broker: (-excess[broker], broker))
    for source in from_most:
        for target in reversed(from_most):
            is_out = excess[source] > slack or excess[target] < -slack
            target_bytes = _wanted_bytes(assignment, source, target)
            if is_out and target_bytes > 0:
                found = _move_for_bytes(assignment, limits, source, target, target_bytes)
                found = found or _exchange(assignment, source, target, target_bytes)
                if found:
                    return found
    return None


def _move_for_bytes(
    assignment: Assignment, limits: dict[int, tuple[int, int]], source: int, target: int, target_bytes: int
) -> list[tuple[int, int, int]] | None:
    if _change(assignment.counts, limits, source, target) > 0:
        return None
    for size, _, p in _nearest(assignment, source, target_bytes):
        if 0 < size <= target_bytes + target_bytes // 2 and assignment.allows(p, target, (source,)):
            return [(p, source, target)]
    return None


def _exchange(assignment: Assignment, source: int, target: int, target_bytes: int) -> list[tuple[int, int, int]] | None:
    """A large replica of `source` for a small one of `target`; the counts stay as they are."""
    smallest = list(assignment.held(target)[:LOOKED_AT])
    if not smallest:
        return None
    least = smallest[0][0]
    for size, _, p in islice(_nearest(assignment, source, target_bytes + least), EXCHANGES_TRIED):
        if not assignment.allows(p, target, (source,)):
            continue
        for other_size, _, other in smallest:
            closes = size - other_size
            if (
                other != p
                and closes > 0
                and target_bytes // 8 <= closes <= target_bytes + target_bytes // 2
                and assignment.allows(other, source, (target,))
            ):
                return [(p, source, target), (other, target, source)]
    return None

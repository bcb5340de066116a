"""Evens out preferred leaders by the order of replicas; no data moves.

The first replica of a partition is its preferred leader. A broker with too many passes some to others that have a
replica, where needed by way of a third broker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from itertools import pairwise

from ottla_operator.rebalancer.assignment import Assignment, band


def balance_leaders(assignment: Assignment) -> None:
    """Reorders replicas until every active broker leads its share, as far as the replicas allow."""
    active = assignment.active
    if not active:
        return
    leads = dict.fromkeys(active, 0)
    can_pass: dict[tuple[int, int], set[int]] = {}
    for p, replicas in enumerate(assignment.replicas):
        if replicas and replicas[0] in leads:
            leads[replicas[0]] += 1
            for other in replicas[1:]:
                if other in leads:
                    can_pass.setdefault((replicas[0], other), set()).add(p)
    lowest, highest = band(sum(leads.values()) / len(active), assignment.policy.tolerance)

    def pass_on(path: list[int]) -> None:
        for source, target in pairwise(path):
            p = min(can_pass[source, target])
            replicas = assignment.replicas[p]
            for other in replicas[1:]:
                if other in leads:
                    can_pass[source, other].discard(p)
            replicas.remove(target)
            replicas.insert(0, target)
            for other in replicas[1:]:
                if other in leads:
                    can_pass.setdefault((target, other), set()).add(p)
        leads[path[0]] -= 1
        leads[path[-1]] += 1

    while (path := _most_urgent(leads, can_pass, lowest, highest)) is not None:
        pass_on(path)


def _most_urgent(
    leads: dict[int, int], can_pass: dict[tuple[int, int], set[int]], lowest: int, highest: int
) -> list[int] | None:
    """The way from a broker with too many leaders to one with few, or from one with many to one with too few."""
    for source in sorted(leads, key=lambda broker: (-leads[broker], broker)):
        if leads[source] > highest:
            path = _way(source, lambda broker: leads[broker] < highest, leads, can_pass)
            if path is not None:
                return path
    for target in sorted(leads, key=lambda broker: (leads[broker], broker)):
        if leads[target] < lowest:
            back = {(b, a): found for (a, b), found in can_pass.items()}
            path = _way(target, lambda broker: leads[broker] > lowest, leads, back)
            if path is not None:
                return path[::-1]
    return None


def _way(
    start: int, is_end: Callable[[int], bool], brokers: Collection[int], can_pass: dict[tuple[int, int], set[int]]
) -> list[int] | None:
    """The shortest way over brokers that can pass a leadership to the next one."""
    came_from: dict[int, int] = {start: start}
    queue = deque([start])
    while queue:
        here = queue.popleft()
        if here != start and is_end(here):
            path = [here]
            while path[-1] != start:
                path.append(came_from[path[-1]])
            return path[::-1]
        for there in sorted(brokers):
            if there not in came_from and can_pass.get((here, there)):
                came_from[there] = here
                queue.append(there)
    return None

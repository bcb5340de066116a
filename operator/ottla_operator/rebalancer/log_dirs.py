"""Which log directory of its broker a replica belongs into.

A replica on a draining directory moves to another one of its broker that has room. A new replica gets the directory
with the most room for its size. Then the bytes are evened out among the active directories of each broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla_operator.facts.fleet_values import UNKNOWN, FleetBroker, LogDirMove, PlacementRefusal, Policy
from ottla_operator.rebalancer.assignment import Assignment, open_dirs, room_of


@dataclass(frozen=True, slots=True)
class LogDirPlan:
    """`placed`: the directory of each new replica, by (place of the partition, broker)."""

    moves: tuple[LogDirMove, ...] = ()
    placed: Mapping[tuple[int, int], str] = field(default_factory=dict)
    refusals: tuple[PlacementRefusal, ...] = ()


class _Dirs:
    """The directories of one broker that may get replicas: bytes in them and bytes of room."""

    def __init__(self, broker: FleetBroker, policy: Policy) -> None:
        directories = open_dirs(broker)
        self.paths = sorted(log_dir.path for log_dir in directories)
        self.used = dict.fromkeys(self.paths, 0)
        self.room = {log_dir.path: room_of(log_dir, policy) for log_dir in directories}
        totals = {log_dir.path: log_dir.total_bytes for log_dir in directories}
        has_totals = all(total > 0 and total != UNKNOWN for total in totals.values())
        average = sum(totals.values()) / len(totals) if totals else 0
        self.share = {path: total / average if has_totals else 1.0 for path, total in totals.items()}

    def best(self, size: int, *, other_than: str = "") -> str | None:
        """The directory that is least full with `size` bytes more; None when none has room."""
        fitting = [
            path for path in self.paths if path != other_than and ((room := self.room[path]) is None or room >= size)
        ]
        return min(fitting, key=lambda path: ((self.used[path] + size) / self.share[path], path), default=None)

    def put(self, path: str, size: int) -> None:
        self.used[path] += size
        room = self.room[path]
        if room is not None:
            self.room[path] = room - size

    def take(self, path: str, size: int) -> None:
        """The room stays taken until the plan is carried out."""
        self.used[path] -= size


def without_room(assignment: Assignment) -> frozenset[tuple[int, int]]:
    """(partition, broker) of replicas on a draining directory for which their broker has no other one."""
    found: set[tuple[int, int]] = set()
    for number, broker in assignment.brokers.items():
        draining = {log_dir.path for log_dir in broker.log_dirs if log_dir.state == "draining"}
        if not draining or broker.state == "draining":
            continue
        dirs = _Dirs(broker, assignment.policy)
        where = assignment.log_dirs[number]
        for p, path in sorted(where.items(), key=lambda item: (-assignment.sizes[item[0]], item[0])):
            if path in draining:
                best = dirs.best(assignment.sizes[p])
                if best is None:
                    found.add((p, number))
                else:
                    dirs.put(best, assignment.sizes[p])
    return frozenset(found)


def plan_log_dirs(assignment: Assignment) -> LogDirPlan:
    """The directories of all replicas, once it is decided which broker has which."""
    moves: list[LogDirMove] = []
    placed: dict[tuple[int, int], str] = {}
    refusals: list[PlacementRefusal] = []
    for number, broker in assignment.brokers.items():
        if len(broker.log_dirs) < 2 or broker.state == "draining":
            continue
        dirs = _Dirs(broker, assignment.policy)
        before = {p: path for p, path in assignment.log_dirs[number].items() if number in assignment.replicas[p]}
        after: dict[int, str] = {}
        for p, path in before.items():
            if path in dirs.used:
                dirs.used[path] += assignment.sizes[p]
                after[p] = path
        leaving = {log_dir.path for log_dir in broker.log_dirs if log_dir.state == "draining"}
        rest = [entry for entry in assignment.held(number) if entry[2] not in after]
        for size, _, p in reversed(rest):
            partition = assignment.partitions[p]
            if p in before and before[p] not in leaving:
                continue  # on a cordoned directory
            if p not in before and number in partition.brokers:
                continue  # the broker has not reported where it is
            best = dirs.best(size)
            if best is not None:
                dirs.put(best, size)
                after[p] = best
                if p not in before:
                    placed[p, number] = best
            elif p in before:
                reason = f"no log directory of broker {number} has room for the {size} bytes on {before[p]}"
                refusals.append(PlacementRefusal(partition.topic, partition.index, reason))
        if assignment.policy.balance and broker.state == "active":
            _even_out(assignment, dirs, after, placed, number)
        for p, path in sorted(after.items()):
            if p in before and path != before[p]:
                partition = assignment.partitions[p]
                moves.append(LogDirMove(number, partition.topic, partition.index, before[p], path, assignment.sizes[p]))
    return LogDirPlan(tuple(moves), placed, tuple(refusals))


def _even_out(
    assignment: Assignment, dirs: _Dirs, after: dict[int, str], placed: dict[tuple[int, int], str], number: int
) -> None:
    """Moves replicas from the fullest directory to the emptiest while one of them is outside of its band."""
    if len(dirs.paths) < 2:
        return
    while True:
        average = sum(dirs.used.values()) / len(dirs.paths)
        slack = max(average * assignment.policy.tolerance, assignment.policy.slack_bytes)
        excess = {path: dirs.used[path] - average * dirs.share[path] for path in dirs.paths}
        fullest = min(dirs.paths, key=lambda path: (-excess[path], path))
        emptiest = min(dirs.paths, key=lambda path: (excess[path], path))
        if excess[fullest] <= slack and excess[emptiest] >= -slack:
            return
        target_bytes = int(
            (dirs.used[fullest] / dirs.share[fullest] - dirs.used[emptiest] / dirs.share[emptiest])
            / (1 / dirs.share[fullest] + 1 / dirs.share[emptiest])
        )
        room = dirs.room[emptiest]
        fitting = [
            p
            for p, path in after.items()
            if path == fullest
            and 0 < assignment.sizes[p] <= target_bytes + target_bytes // 2
            and (room is None or room >= assignment.sizes[p])
        ]
        if not fitting:
            return
        p = min(fitting, key=lambda p: (abs(assignment.sizes[p] - target_bytes), p))
        dirs.take(fullest, assignment.sizes[p])
        dirs.put(emptiest, assignment.sizes[p])
        after[p] = emptiest
        if (p, number) in placed:
            placed[p, number] = emptiest

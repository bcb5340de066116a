"""The assignment that a plan is worked out on: which broker has which partition, how much it has, and the rules.

The rules that no step breaks:

1. Two replicas of a partition are never on one broker and never on brokers of one node.
2. No rack has more replicas of a partition than it must, given how many racks and nodes there are (`rack_limit`).
3. A new replica goes to an active broker with room for it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Sequence
from math import ceil, floor

from ottla_operator.facts.fleet_values import UNKNOWN, FleetBroker, FleetPartition, FleetPlacement, LogDir, Policy

SIMILAR = 1.2
"""Brokers whose capacities differ by less than this factor get equal shares."""


class Assignment:
    """The replicas of every partition, and the load of every broker, kept together.

    `replicas[p]`: the brokers of partition `p`, the preferred leader first; `p` is the place in `partitions`, which is
    in the order of topics and indexes whatever the order of the fleet's. `load_bytes` counts a replica with the bytes
    of the partition's largest, so a replica that catches up does not look small. `frozen`: partitions that could not be
    placed as they should be, and stay as they are. `evicted`: (partition, broker) of replicas that their broker has no
    directory for. `log_dirs`: by broker, the directory of each partition as it is now, where it is known.
    """

    def __init__(self, fleet: FleetPlacement, policy: Policy) -> None:
        self.policy = policy
        self.brokers = {broker.id: broker for broker in sorted(fleet.brokers, key=lambda broker: broker.id)}
        self.partitions = sorted(fleet.partitions, key=lambda partition: partition.id)
        self.replicas: list[list[int]] = [list(partition.brokers) for partition in self.partitions]
        self.sizes = [partition.size_bytes for partition in self.partitions]
        self.counts: dict[int, int] = dict.fromkeys(self.brokers, 0)
        self.load_bytes: dict[int, int] = dict.fromkeys(self.brokers, 0)
        self.of_topic: dict[tuple[int, str], int] = {}
        self._held: dict[int, list[tuple[int, int, int]]] = {broker: [] for broker in self.brokers}
        self.active = [broker.id for broker in self.brokers.values() if _is_open(broker)]
        self.shares = _shares([self.brokers[number] for number in self.active])
        self._room = {number: _room(self.brokers[number], policy) for number in self.active}
        self._taken: dict[tuple[int, int], str] = {}
        self._original = [frozenset(replicas) for replicas in self.replicas]
        self._limits: dict[int, int] = {}
        self.frozen: set[int] = set()
        self.evicted: frozenset[tuple[int, int]] = frozenset()
        self.log_dirs: dict[int, dict[int, str]] = {broker: {} for broker in self.brokers}
        for p, partition in enumerate(self.partitions):
            for replica in partition.replicas:
                if replica.log_dir and replica.broker in self.log_dirs:
                    self.log_dirs[replica.broker][p] = replica.log_dir
        for p, replicas in enumerate(self.replicas):
            for broker in replicas:
                self._add_load(p, broker)

    def held(self, broker: int) -> Sequence[tuple[int, int, int]]:
        """What a broker has: (bytes, partition index, place in `partitions`), the smallest first."""
        return self._held[broker]

    def move(self, p: int, source: int, target: int) -> None:
        """Puts `target` in the place of `source`."""
        self.replicas[p][self.replicas[p].index(source)] = target
        self._take_load(p, source)
        self._add_load(p, target)
        self._use_room(p, source, -1)
        self._use_room(p, target, 1)

    def add(self, p: int, broker: int) -> None:
        self.replicas[p].append(broker)
        self._add_load(p, broker)
        self._use_room(p, broker, 1)

    def remove(self, p: int, broker: int) -> None:
        self.replicas[p].remove(broker)
        self._take_load(p, broker)
        self._use_room(p, broker, -1)

    def rack_limit(self, factor: int) -> int:
        """How many replicas of a partition one rack may have: as few as possible on the brokers that stay.

        Racks a and b with three nodes each allow 2 of 4 replicas; when b has only one node, a has to take 3.
        """
        if factor not in self._limits:
            nodes: dict[str, set[str]] = {}
            for broker in self.brokers.values():
                if broker.state != "draining":
                    nodes.setdefault(broker.rack, set()).add(broker.node or f"broker {broker.id}")
            limit = ceil(factor / max(1, len(nodes)))
            while limit < factor and sum(min(limit, len(found)) for found in nodes.values()) < factor:
                limit += 1
            self._limits[factor] = max(1, limit)
        return self._limits[factor]

    def allows(self, p: int, target: int, without: Collection[int] = ()) -> bool:
        """Whether a replica of partition `p` may be placed on `target`, once `without` have lost theirs."""
        if p in self.frozen:
            return False
        broker = self.brokers[target]
        in_rack = 1
        for other in self.replicas[p]:
            if other in without:
                continue
            if other == target:
                return False
            other_broker = self.brokers.get(other)
            if other_broker is None:
                continue
            if broker.node and other_broker.node == broker.node:
                return False
            in_rack += other_broker.rack == broker.rack
        return in_rack <= self.rack_limit(len(self.replicas[p])) and self.has_room(p, target)

    def has_room(self, p: int, target: int) -> bool:
        """A replica that only returns to where it is needs none."""
        if target in self._original[p]:
            return (p, target) not in self.evicted
        room = self._room.get(target)
        return room is None or any(found >= self.sizes[p] for found in room.values())

    def load_key(self, p: int, broker: int) -> tuple[float, float, int, int]:
        """The smaller, the better `broker` is for a replica of `p`: few replicas, few bytes, few of the topic."""
        share = self.shares.get(broker, 1.0) or 1.0
        topic = self.partitions[p].topic
        return (
            self.counts[broker] / share,
            self.load_bytes[broker] / share,
            self.of_topic.get((broker, topic), 0),
            broker,
        )

    def _add_load(self, p: int, broker: int) -> None:
        if broker not in self.brokers:
            return
        self.counts[broker] += 1
        self.load_bytes[broker] += self.sizes[p]
        key = (broker, self.partitions[p].topic)
        self.of_topic[key] = self.of_topic.get(key, 0) + 1
        insort(self._held[broker], self._entry(p))

    def _take_load(self, p: int, broker: int) -> None:
        if broker not in self.brokers:
            return
        self.counts[broker] -= 1
        self.load_bytes[broker] -= self.sizes[p]
        self.of_topic[broker, self.partitions[p].topic] -= 1
        held = self._held[broker]
        del held[bisect_left(held, self._entry(p))]

    def _use_room(self, p: int, broker: int, sign: int) -> None:
        """Only new replicas take room, and what a broker loses is not free before the plan is carried out."""
        room = self._room.get(broker)
        if room is None or broker in self._original[p]:
            return
        if sign > 0:
            path = max(room, key=lambda path: (room[path], path))
            self._taken[p, broker] = path
        else:
            path = self._taken.pop((p, broker))
        room[path] -= sign * self.sizes[p]

    def _entry(self, p: int) -> tuple[int, int, int]:
        return self.sizes[p], self.partitions[p].index, p


def _is_open(broker: FleetBroker) -> bool:
    """Whether a broker may get replicas: it is active and so is one of its directories, if it has reported any."""
    return broker.state == "active" and (not broker.log_dirs or bool(open_dirs(broker)))


def open_dirs(broker: FleetBroker) -> list[LogDir]:
    """The directories that may get replicas."""
    return [log_dir for log_dir in broker.log_dirs if log_dir.state == "active"]


def room_of(log_dir: LogDir, policy: Policy) -> int | None:
    """The bytes that may be placed on a directory, None when it is not known."""
    if log_dir.free_bytes == UNKNOWN or log_dir.total_bytes == UNKNOWN:
        return None
    return log_dir.free_bytes - int(log_dir.total_bytes * policy.headroom)


def _room(broker: FleetBroker, policy: Policy) -> dict[str, int] | None:
    """The bytes that may be placed on each open directory; None where they are not known."""
    if not broker.log_dirs:
        return None
    rooms = {log_dir.path: room_of(log_dir, policy) for log_dir in open_dirs(broker)}
    known = {path: room for path, room in rooms.items() if room is not None}
    return None if len(known) < len(rooms) else known


def _shares(active: Sequence[FleetBroker]) -> dict[int, float]:
    """The share of each active broker, 1.0 on average, by capacity where it is known of all and not similar."""
    capacities = {
        broker.id: sum(log_dir.total_bytes for log_dir in open_dirs(broker))
        if all(log_dir.total_bytes != UNKNOWN for log_dir in broker.log_dirs)
        else 0
        for broker in active
    }
    lowest, highest = min(capacities.values(), default=0), max(capacities.values(), default=0)
    if lowest <= 0 or highest <= lowest * SIMILAR:
        return dict.fromkeys(capacities, 1.0)
    average = sum(capacities.values()) / len(capacities)
    return {broker: capacity / average for broker, capacity in capacities.items()}


def band(average: float, tolerance: float) -> tuple[int, int]:
    """The lowest and the highest whole number that counts as balanced.

    >>> band(10.0, 0.1), band(2.25, 0.1), band(0.0, 0.1)
    ((9, 11), (2, 3), (0, 0))
    """
    return floor(average * (1 - tolerance)), ceil(average * (1 + tolerance))


def outside(value: int, limits: tuple[int, int]) -> int:
    """How far a value is outside of a band.

    >>> outside(3, (4, 6)), outside(5, (4, 6)), outside(9, (4, 6))
    (1, 0, 3)
    """
    return max(limits[0] - value, value - limits[1], 0)


def factor_of(partition: FleetPartition) -> int:
    return partition.factor or len(partition.replicas)


def by_load(assignment: Assignment, p: int, brokers: Iterable[int]) -> list[int]:
    """The brokers, the best for a replica of `p` first."""
    return sorted(brokers, key=lambda broker: assignment.load_key(p, broker))

"""What the rebalancer reads, a `FleetPlacement`, and what it decides, a `Plan`: values only.

A partition stands here with the replicas that it will have: where a reassignment is under way, those of its target. So
a plan that is made again while the one before is carried out has only what is left to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

State = Literal["active", "cordoned", "draining"]
"""A broker or a log directory that is `cordoned` (KIP-1066) keeps what it has and gets nothing; a `draining` one loses
all that it has."""

PartitionId = tuple[str, int]
ReplicaId = tuple[int, str, int]
"""Broker, topic, index."""
UNKNOWN = -1
"""Bytes that the broker did not report."""


@dataclass(frozen=True, slots=True)
class LogDir:
    """One log directory of a broker. `total_bytes`, `free_bytes`: of its file system, UNKNOWN when not reported."""

    path: str
    total_bytes: int = UNKNOWN
    free_bytes: int = UNKNOWN
    state: State = "active"


@dataclass(frozen=True, slots=True)
class FleetBroker:
    """One broker of the fleet. `node`: the node that its pod runs on, "" while that is not known.

    Two replicas of a partition are never placed on brokers of one node.
    """

    id: int
    rack: str = ""
    node: str = ""
    log_dirs: tuple[LogDir, ...] = ()
    state: State = "active"


@dataclass(frozen=True, slots=True)
class FleetReplica:
    """A replica in place. `size_bytes` and `log_dir` are 0 and "" while they are not known."""

    broker: int
    size_bytes: int = 0
    log_dir: str = ""


@dataclass(frozen=True, slots=True)
class FleetPartition:
    """One partition. The first of `replicas` is the preferred leader.

    `factor`: how many replicas it should have, 0 for as many as it has. `in_sync`: the ISR; replicas outside of it are
    the first to go when there are too many.
    """

    topic: str
    index: int
    replicas: tuple[FleetReplica, ...]
    factor: int = 0
    in_sync: tuple[int, ...] = ()

    @property
    def id(self) -> PartitionId:
        return self.topic, self.index

    @property
    def brokers(self) -> tuple[int, ...]:
        return tuple(replica.broker for replica in self.replicas)

    @property
    def size_bytes(self) -> int:
        """The bytes of its largest replica: what a new replica has to copy."""
        return max((replica.size_bytes for replica in self.replicas), default=0)

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


@dataclass(frozen=True, slots=True)
class FleetPlacement:
    """All brokers and partitions. Replicas on brokers that are not in `brokers` stay where they are."""

    brokers: tuple[FleetBroker, ...]
    partitions: tuple[FleetPartition, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """When a fleet counts as balanced, and how full a disk may become.

    `tolerance`: the part of its share that a broker may have more or less, in replicas, bytes and leaders.
    `slack_bytes`: differences up to this are nothing to move data for. `headroom`: the part of a file system that is
    left free. `balance`: False for what is necessary only: draining, too few or too many replicas, replicas of one
    partition on one node or rack.
    """

    tolerance: float = 0.1
    slack_bytes: int = 1 << 30
    headroom: float = 0.1
    balance: bool = True


@dataclass(frozen=True, slots=True)
class Reassignment:
    """Other replicas for one partition, or another order of them. `size_bytes`: what each new replica has to copy.

    `log_dirs`: the directory for each new replica whose broker has several.
    """

    topic: str
    index: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    size_bytes: int = 0
    log_dirs: Mapping[int, str] | None = None

    @property
    def id(self) -> PartitionId:
        return self.topic, self.index

    @property
    def added(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.after if broker not in self.before)

    @property
    def removed(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.before if broker not in self.after)

    @property
    def bytes_to_copy(self) -> int:
        return self.size_bytes * len(self.added)

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}: {list(self.before)} -> {list(self.after)}"


@dataclass(frozen=True, slots=True)
class LogDirMove:
    """A replica that moves to another log directory of its broker (KIP-113)."""

    broker: int
    topic: str
    index: int
    before: str
    after: str
    size_bytes: int = 0

    def __str__(self) -> str:
        return f"{self.topic}-{self.index} on broker {self.broker}: {self.before} -> {self.after}"


@dataclass(frozen=True, slots=True)
class PlacementRefusal:
    """A partition that cannot be placed as it should be. It stays as it is, but for surplus replicas."""

    topic: str
    index: int
    reason: str

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What has to move, in the order in which it should: what has to leave first."""

    reassignments: tuple[Reassignment, ...] = ()
    log_dir_moves: tuple[LogDirMove, ...] = ()
    refusals: tuple[PlacementRefusal, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.reassignments and not self.log_dir_moves

    @property
    def bytes_to_copy(self) -> int:
        copied = sum(reassignment.bytes_to_copy for reassignment in self.reassignments)
        return copied + sum(move.size_bytes for move in self.log_dir_moves)


def carried_out(fleet: FleetPlacement, plan: Plan) -> FleetPlacement:
    """The fleet after the plan: the replicas as planned, the free bytes of directories that lose or get replicas.

    A new replica without a directory in the plan is in the only active one of its broker, or in an unknown one.
    """
    targets = {reassignment.id: reassignment for reassignment in plan.reassignments}
    moved = {(move.broker, move.topic, move.index): move.after for move in plan.log_dir_moves}
    only = {broker.id: broker.log_dirs[0].path for broker in fleet.brokers if len(broker.log_dirs) == 1}
    change: dict[tuple[int, str], int] = {}
    partitions: list[FleetPartition] = []
    for partition in fleet.partitions:
        there = {replica.broker: replica for replica in partition.replicas}
        target = targets.get(partition.id)
        replicas: list[FleetReplica] = []
        for number in partition.brokers if target is None else target.after:
            if number in there:
                kept = there[number]
                log_dir = moved.get((number, *partition.id), kept.log_dir)
                replicas.append(replace(kept, log_dir=log_dir))
            else:
                chosen = ((target.log_dirs or {}) if target is not None else {}).get(number, only.get(number, ""))
                replicas.append(FleetReplica(number, partition.size_bytes, chosen))
        _count(change, partition.replicas, 1)
        _count(change, replicas, -1)
        partitions.append(replace(partition, replicas=tuple(replicas)))
    brokers = tuple(replace(broker, log_dirs=_with_free(broker, change)) for broker in fleet.brokers)
    return FleetPlacement(brokers, tuple(partitions))


def _count(change: dict[tuple[int, str], int], replicas: Sequence[FleetReplica], sign: int) -> None:
    for replica in replicas:
        key = (replica.broker, replica.log_dir)
        change[key] = change.get(key, 0) + sign * replica.size_bytes


def _with_free(broker: FleetBroker, change: Mapping[tuple[int, str], int]) -> tuple[LogDir, ...]:
    return tuple(
        log_dir
        if log_dir.free_bytes == UNKNOWN
        else replace(log_dir, free_bytes=log_dir.free_bytes + change.get((broker.id, log_dir.path), 0))
        for log_dir in broker.log_dirs
    )


@dataclass(frozen=True, slots=True)
class ThrottleChange:
    """Throttles to set and to remove. `bytes_per_second`: 0 removes the rates of `brokers`.

    `leaders`, `followers`: by topic, the replicas that are throttled, as ("index:broker", …). `unset`: topics that lose
    their lists. Source: ReassignPartitionsCommand of Apache Kafka, KIP-73.
    """

    bytes_per_second: int
    brokers: tuple[int, ...]
    leaders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    followers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unset: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MoveRequests:
    """What to ask of Kafka, in this order. `reassign`: None cancels. `log_dirs`: the directory of each replica."""

    throttle: ThrottleChange | None = None
    log_dirs: Mapping[ReplicaId, str] = field(default_factory=dict)
    reassign: Mapping[PartitionId, tuple[int, ...] | None] = field(default_factory=dict)

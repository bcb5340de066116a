"""Assigns the replicas of new partitions to brokers (KIP-36).

Pure. Not here: reassigning existing partitions (`reassignment_steps`), checking assignments that a client gives
(`topic_rules`).

Source: AdminUtils of Apache Kafka.

The rules
1. Leaders go round robin over a list of the brokers, from a random start.
2. The other replicas follow the leader in the list at a distance that grows by `shift`, and `shift` grows every time
   the leaders have gone round, so that the followers of one broker's leaders are spread over all others.
3. With racks, the list alternates them, and no rack gets a second replica before each has one.

Worked example: brokers 0..4, ten partitions, three replicas, start 0, shift 0.

    >>> brokers = [BrokerRack(broker) for broker in range(5)]
    >>> for partition, replicas in assign_replicas(brokers, 10, 3, start_index=0, shift=0).items():
    ...     print(partition, replicas)
    0 (0, 1, 2)
    1 (1, 2, 3)
    2 (2, 3, 4)
    3 (3, 4, 0)
    4 (4, 0, 1)
    5 (0, 2, 3)
    6 (1, 3, 4)
    7 (2, 4, 0)
    8 (3, 0, 1)
    9 (4, 1, 2)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class BrokerRack:
    """A live broker and its `broker.rack`."""

    broker: int
    rack: str | None = None


class RackMode(Enum):
    """What to do when only some brokers have a rack."""

    ENFORCED = "enforced"
    """Refuse (a topic that a client creates)."""
    SAFE = "safe"
    """Ignore the racks (automatic creation)."""


class AssignmentError(Exception):
    """No assignment is possible; the message is for the client."""


class InvalidPartitionCount(AssignmentError): ...


class InvalidReplicationFactor(AssignmentError): ...


class IncompleteRacks(AssignmentError): ...


def alternate_racks(racks: Mapping[int, str]) -> list[int]:
    """The brokers with their racks alternating: racks by name, brokers of a rack ascending, one of each in turn.

    >>> alternate_racks({0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"})
    [0, 3, 1, 5, 4, 2]
    """
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max((len(queue) for queue in queues), default=0)
    return [queue[turn] for turn in range(longest) for queue in queues if turn < len(queue)]


def assign_replicas(
    brokers: Sequence[BrokerRack],
    partitions: int,
    replication_factor: int,
    *,
    start_index: int,
    shift: int,
    first_partition: int = 0,
    mode: RackMode = RackMode.ENFORCED,
) -> dict[int, tuple[int, ...]]:
    """Replicas of partitions `first_partition` ..., the preferred leader first.

    Raises InvalidPartitionCount, InvalidReplicationFactor or, in mode ENFORCED, IncompleteRacks.
    """
    if partitions <= 0:
        raise InvalidPartitionCount("Number of partitions must be larger than 0.")
    if replication_factor <= 0:
        raise InvalidReplicationFactor("Replication factor must be larger than 0.")
    if replication_factor > len(brokers):
        raise InvalidReplicationFactor(
            f"Replication factor: {replication_factor} larger than available brokers: {len(brokers)}."
        )
    racks = {entry.broker: entry.rack for entry in brokers if entry.rack is not None}
    if racks and len(racks) < len(brokers):
        if mode is RackMode.ENFORCED:
            without = ", ".join(str(entry.broker) for entry in brokers if entry.rack is None)
            raise IncompleteRacks(
                f"Not all brokers have rack information for replica rack aware assignment: broker.rack is missing on "
                f"broker {without}."
            )
        racks = {}
    if racks:
        ring = alternate_racks(racks)
    else:
        ring = sorted(entry.broker for entry in brokers)
        racks = dict.fromkeys(ring, "")
    size = len(ring)
    # Without racks Kafka shifts the followers by one place per round, with racks by one place in each rack.
    stride = len(set(racks.values()))
    assigned: dict[int, tuple[int, ...]] = {}
    for partition in range(max(0, first_partition), max(0, first_partition) + partitions):
        if partition > 0 and partition % size == 0:
            shift += 1
        assigned[partition] = _replicas_of(
            ring, racks, (partition + start_index) % size, shift * stride, replication_factor
        )
    return assigned


def _replicas_of(
    ring: Sequence[int], racks: Mapping[int, str], leader_index: int, distance: int, replication_factor: int
) -> tuple[int, ...]:
    size = len(ring)
    rack_count = len(set(racks.values()))
    replicas = [ring[leader_index]]
    used_racks = {racks[replicas[0]]}
    tries = 0
    while len(replicas) < replication_factor:
        broker = ring[(leader_index + 1 + (distance + tries) % (size - 1)) % size]
        tries += 1
        rack_is_free = racks[broker] not in used_racks or len(used_racks) == rack_count
        if rack_is_free and broker not in replicas:
            replicas.append(broker)
            used_racks.add(racks[broker])
    return tuple(replicas)


def assign_new_topic(
    brokers: Sequence[BrokerRack],
    partitions: int,
    replication_factor: int,
    randrange: Callable[[int], int],
    mode: RackMode = RackMode.ENFORCED,
) -> dict[int, tuple[int, ...]]:
    """The assignment of a new topic; `randrange(n)` draws start and shift. Errors as `assign_replicas`."""
    size = max(1, len(brokers))
    return assign_replicas(
        brokers, partitions, replication_factor, start_index=randrange(size), shift=randrange(size), mode=mode
    )


def assign_added_partitions(
    brokers: Sequence[BrokerRack],
    existing: Mapping[int, Sequence[int]],
    count: int,
    mode: RackMode = RackMode.ENFORCED,
) -> dict[int, tuple[int, ...]]:
    """The replicas of the partitions that bring a topic to `count`, continuing the pattern of its creation.

    `existing` has the replicas of the present partitions; its partition 0 gives the replication factor, and the
    place of its first replica among all brokers is both start and shift.

    >>> assign_added_partitions([BrokerRack(broker) for broker in range(4)], {0: [1, 2], 1: [2, 3]}, 4)
    {2: (3, 1), 3: (0, 2)}
    """
    ids = sorted(entry.broker for entry in brokers)
    first = existing[0]
    position = next((index for index, broker in enumerate(ids) if broker >= first[0]), 0)
    return assign_replicas(
        brokers,
        count - len(existing),
        len(first),
        start_index=position,
        shift=position,
        first_partition=len(existing),
        mode=mode,
    )

"""Which leaderships to ask for: those of partitions whose preferred replica is in sync and does not lead.

A broker that restarts leads nothing afterwards: its leaderships were moved away, and nobody moves them back until the
controller's own check (leader.imbalance.check.interval.seconds, five minutes). So they are asked for with ElectLeaders
(KIP-460), which any Kafka controller serves, a bounded number at a time; what a step has achieved is seen in the next
look at the metadata, and no more is kept. A fleet in balance is asked for nothing.

Who is asked for is decided by the caller: in a roll the broker that has just returned (`machine`, RestoreLeaders), in a
whole fleet all of them (`planning.leaders`).
"""

from __future__ import annotations

from collections.abc import Collection

from ottla_operator.api.fleet import ClusterMetadata, PartitionReport

ELECTIONS_PER_STEP = 200
"""How many leaderships move with one request. Each costs its clients one refresh of metadata."""

PartitionId = tuple[str, int]


def restorable(
    view: ClusterMetadata, brokers: Collection[int], refused: Collection[PartitionId] = ()
) -> tuple[PartitionReport, ...]:
    """The partitions that one of `brokers` should lead and can, in the order of the metadata.

    `refused`: what the controller has refused of late.

    >>> electable, behind = PartitionReport("t", 0, 1, (0, 1), (0, 1)), PartitionReport("t", 1, 0, (1, 0), (0,))
    >>> metadata = ClusterMetadata("c", 0, (0, 1), (electable, behind))
    >>> [str(partition) for partition in restorable(metadata, (0, 1))]
    ['t-0']
    """
    return tuple(
        partition
        for partition in view.partitions
        if partition.replicas
        and partition.replicas[0] in brokers
        and partition.replicas[0] in view.brokers
        and partition.replicas[0] in partition.in_sync
        and partition.leader != partition.replicas[0]
        and (partition.topic, partition.index) not in refused
    )


def step(partitions: Collection[PartitionReport]) -> tuple[PartitionId, ...]:
    """The first of them, as one request names them."""
    return tuple((partition.topic, partition.index) for partition in list(partitions)[:ELECTIONS_PER_STEP])

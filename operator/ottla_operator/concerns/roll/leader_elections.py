"""Which partitions need a preferred leader election: those whose preferred replica is in sync and does not lead.

A broker that restarts leads nothing afterwards: its leaderships were moved away, and the controller moves them back
only at its own check (leader.imbalance.check.interval.seconds, five minutes). So the operator asks for them with
ElectLeaders (KIP-460), which any Kafka controller supports, a bounded number at a time. The next metadata shows the
result, and nothing else is remembered. A cluster in balance is asked for nothing.

The caller decides for which brokers: in a roll for the broker that has just restarted (`machine`, RestoreLeaders),
otherwise for all (`concerns.roll.preferred_leaders`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from ottla_operator.api.fleet import ClusterMetadata, PartitionReport
from ottla_operator.facts.fleet_values import PartitionId

ELECTIONS_PER_BROKER = 200
"""How many partitions of one preferred replica a request names. Each election costs the clients of its partition a
metadata refresh. The brokers of a batch get theirs back in the same requests."""
ELECTIONS_PER_STEP = 1000
"""How many in all."""


def restorable(
    view: ClusterMetadata, brokers: Collection[int], refused: Collection[PartitionId] = ()
) -> tuple[PartitionReport, ...]:
    """The partitions that one of `brokers` should and can lead, in the order of the metadata.

    `refused`: partitions whose election the controller refused a short time ago.

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
    """The first partitions of each preferred replica, as many as one request names."""
    found: list[PartitionId] = []
    of_broker: Counter[int] = Counter()
    for partition in partitions:
        preferred = partition.replicas[0]
        if of_broker[preferred] < ELECTIONS_PER_BROKER and len(found) < ELECTIONS_PER_STEP:
            of_broker[preferred] += 1
            found.append((partition.topic, partition.index))
    return tuple(found)

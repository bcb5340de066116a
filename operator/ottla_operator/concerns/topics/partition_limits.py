"""The limits that a KafkaCluster sets for the partitions of its KafkaTopics: who gets the room that is left.

A limit refuses a creation and a growth. It takes nothing away from a topic that exists, also where that has more.

Example: `spec.topics.maxPartitions: 10`, and KafkaTopics with 6 partitions exist. Of two new ones with 3 partitions
each the first gets its topic, and the other one reports PartitionLimit until there is room.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionLimits:
    """The limits of a cluster, 0 for none. `left`: the partitions that one KafkaTopic may add; no matter without
    `in_all`. `default`: num.partitions of the brokers, which a topic gets that names no number."""

    cluster: str = ""
    per_topic: int = 0
    in_all: int = 0
    default: int = 1
    left: int = 0


NO_LIMITS = PartitionLimits()


def growth(limits: PartitionLimits, declared: int, present: int) -> int:
    """The partitions that a topic would get.

    Args:
        declared: spec.partitions, -1 when it is absent.
        present: the partitions that the topic has, 0 when it does not exist.

    >>> limits = PartitionLimits(default=3)
    >>> growth(limits, -1, 0), growth(limits, -1, 1), growth(limits, 5, 2), growth(limits, 2, 5)
    (3, 0, 3, 0)
    """
    if declared < 1:
        return 0 if present else limits.default
    return max(0, declared - present)


def why_refused(limits: PartitionLimits, declared: int, present: int) -> str:
    """The limit that a topic would exceed, in words that name its field; "" when it may grow.

    >>> why_refused(PartitionLimits("c", per_topic=10), 12, 0)
    'spec.partitions: 12 partitions are more than spec.topics.maxPartitionsPerTopic of KafkaCluster c allows, 10'
    >>> why_refused(PartitionLimits("c", in_all=100, left=2), 5, 2)
    'spec.partitions: 3 more partitions are too many for spec.topics.maxPartitions of KafkaCluster c, 100: 2 are left'
    """
    added = growth(limits, declared, present)
    if not added:
        return ""
    total = present + added
    if limits.per_topic and total > limits.per_topic:
        return (
            f"spec.partitions: {total} partitions are more than spec.topics.maxPartitionsPerTopic of KafkaCluster "
            f"{limits.cluster} allows, {limits.per_topic}"
        )
    if limits.in_all and added > limits.left:
        return (
            f"spec.partitions: {added} more partitions are too many for spec.topics.maxPartitions of KafkaCluster "
            f"{limits.cluster}, {limits.in_all}: {limits.left} are left"
        )
    return ""


def rooms(limits: PartitionLimits, used: int, asking: Iterable[tuple[str, int, int]]) -> Mapping[str, int]:
    """What is left for each of several KafkaTopics that are decided together, in their order.

    Args:
        used: the partitions of all KafkaTopics of the cluster.
        asking: name, spec.partitions and present partitions of each.

    >>> rooms(PartitionLimits(in_all=10), 4, [("a", 5, 0), ("b", 2, 0), ("c", 1, 0)])
    {'a': 6, 'b': 1, 'c': 1}
    """
    left = max(0, limits.in_all - used)
    found = {}
    for name, declared, present in asking:
        found[name] = left
        added = growth(limits, declared, present)
        if added <= left and not (limits.per_topic and present + added > limits.per_topic):
            left -= added
    return found

"""What an assignor gets, and what it gives. Pure.

Source: ConsumerGroupPartitionAssignor, GroupSpec of Apache Kafka's group coordinator API.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ottla_broker.groups.consumer.group_image import NO_PARTITIONS, Assignment, TopicId


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What an assignor knows of a member."""

    topic_ids: tuple[TopicId, ...]
    """The topics that the member subscribes to and that exist; sorted, each once."""
    instance_id: str | None = None
    assignment: Assignment = field(default_factory=lambda: NO_PARTITIONS)
    """The member's target assignment until now."""


Members: TypeAlias = Mapping[str, MemberSubscription]
"""By member id."""
PartitionCounts: TypeAlias = Mapping[TopicId, int]
"""Of every topic that a member subscribes to."""
Assignor: TypeAlias = Callable[[Members, PartitionCounts], dict[str, Assignment]]
"""Gives each member its target assignment: every partition of a topic with a subscriber belongs to one of them."""


def kept_partitions(members: Members, counts: PartitionCounts) -> dict[str, list[tuple[TopicId, int]]]:
    """The partitions of each member's assignment that it still subscribes to and that exist, sorted.

    A partition that two members have is the first one's, by member id: a log that lost a record gives no double owner.
    """
    taken: set[tuple[TopicId, int]] = set()
    kept: dict[str, list[tuple[TopicId, int]]] = {}
    for member_id in sorted(members):
        member = members[member_id]
        found = []
        for topic_id in member.topic_ids:
            count = counts[topic_id]
            for partition in sorted(member.assignment.get(topic_id, ())):
                if partition < count and (topic_id, partition) not in taken:
                    taken.add((topic_id, partition))
                    found.append((topic_id, partition))
        kept[member_id] = found
    return kept

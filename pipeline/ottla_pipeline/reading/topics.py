"""Which partitions a read has: `subscribe`, `subscribePattern` and `assign` against what the cluster has. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ottla_pipeline.errors import UnknownTopic
from ottla_pipeline.reading.options import Assign, Subscribe, SubscribePattern, Topics
from ottla_pipeline.topic_partition import TopicLayout, TopicPartition


def asked_for(topics: Topics) -> list[str] | None:
    """The topics to ask the cluster for, None for all."""
    if isinstance(topics, SubscribePattern):
        return None
    if isinstance(topics, Subscribe):
        return sorted(topics.topics)
    return sorted({partition.topic for partition in topics.partitions})


def chosen(topics: Topics, found: Mapping[str, TopicLayout], where: str) -> dict[TopicPartition, bytes]:
    """The partitions to read, with the ids of their topics, in the order of the options.

    Raises:
        UnknownTopic: a topic or partition that is named does not exist; `where` names the cluster.
    """
    if isinstance(topics, SubscribePattern):
        names = sorted(topic for topic in found if topics.pattern.search(topic))
    elif isinstance(topics, Subscribe):
        names = list(topics.topics)
    else:
        names = [partition.topic for partition in topics.partitions]
    option = "assign" if isinstance(topics, Assign) else "subscribe"
    for topic in names:
        if topic not in found:
            raise UnknownTopic(f"option {option}: topic {topic!r} does not exist at {where}")
    if isinstance(topics, Assign):
        for topic, number in topics.partitions:
            numbers = found[topic].partitions
            if number not in numbers:
                raise UnknownTopic(
                    f"option assign: topic {topic!r} has no partition {number} at {where}, it has {len(numbers)}"
                )
        return {partition: found[partition.topic].topic_id for partition in sorted(topics.partitions)}
    return {
        TopicPartition(topic, number): found[topic].topic_id for topic in names for number in found[topic].partitions
    }


def existing(topics: Topics, found: Mapping[str, TopicLayout]) -> dict[TopicPartition, bytes]:
    """The chosen partitions that exist."""
    if isinstance(topics, Assign):
        there = [
            one for one in topics.partitions if one.topic in found and one.partition in found[one.topic].partitions
        ]
        return chosen(Assign(tuple(there)), found, "")
    if isinstance(topics, Subscribe):
        return chosen(Subscribe(tuple(topic for topic in topics.topics if topic in found)), found, "")
    return chosen(topics, found, "")

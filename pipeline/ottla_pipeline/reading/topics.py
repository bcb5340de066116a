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


def chosen(topics: Topics, layouts: Mapping[str, TopicLayout], where: str) -> dict[TopicPartition, bytes]:
    """The partitions to read, with the ids of their topics, in the order of the options.

    Raises:
        UnknownTopic: a topic or partition that is named does not exist; `where` names the cluster.
    """
    if isinstance(topics, SubscribePattern):
        names = sorted(topic for topic in layouts if topics.pattern.search(topic))
    elif isinstance(topics, Subscribe):
        names = list(topics.topics)
    else:
        names = [partition.topic for partition in topics.partitions]
    option = "assign" if isinstance(topics, Assign) else "subscribe"
    for topic in names:
        if topic not in layouts:
            raise UnknownTopic(f"option {option}: topic {topic!r} does not exist at {where}")
    if isinstance(topics, Assign):
        for topic, number in topics.partitions:
            numbers = layouts[topic].partitions
            if number not in numbers:
                raise UnknownTopic(
                    f"option assign: topic {topic!r} has no partition {number} at {where}, it has {len(numbers)}"
                )
        return {partition: layouts[partition.topic].topic_id for partition in sorted(topics.partitions)}
    return {
        TopicPartition(topic, number): layouts[topic].topic_id
        for topic in names
        for number in layouts[topic].partitions
    }


def existing(topics: Topics, layouts: Mapping[str, TopicLayout]) -> dict[TopicPartition, bytes]:
    """The chosen partitions that exist."""
    if isinstance(topics, Assign):
        there = [
            one for one in topics.partitions if one.topic in layouts and one.partition in layouts[one.topic].partitions
        ]
        return chosen(Assign(tuple(there)), layouts, "")
    if isinstance(topics, Subscribe):
        return chosen(Subscribe(tuple(topic for topic in topics.topics if topic in layouts)), layouts, "")
    return chosen(topics, layouts, "")

"""A topic as the brokers describe it, and the changes that the operator asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic in Kafka. `replicas`: of the partition with the fewest. `config`: the values set on the topic.

    `error`: the error that the brokers answered, "Name: message"; the other fields have no meaning then. `whole`: the
    number of replicas of each partition whose replicas are all in sync.
    """

    name: str
    topic_id: str
    partitions: int
    replicas: int
    config: Mapping[str, str]
    is_internal: bool = False
    error: str = ""
    whole: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateTopic:
    topic: str
    partitions: int
    replicas: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    """Adds partitions, up to `partitions` in all."""

    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class AlterTopicConfig:
    topic: str
    set: Mapping[str, str]
    unset: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """`topic_id`: of the topic to delete, and of no other that has its name; "" where no id is known."""

    topic: str
    topic_id: str = ""


TopicChange = CreateTopic | CreatePartitions | AlterTopicConfig | DeleteTopic

"""What is known about one KafkaTopic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ottla_documents.kafka_topic import KafkaTopic
from ottla_documents.schema.marks import Problem
from ottla_operator.api.objects import Obj
from ottla_operator.api.topics import TopicDescription
from ottla_operator.concerns.topics.partition_limits import NO_LIMITS, PartitionLimits


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What is known about one KafkaTopic.

    `cluster_is_terminating`: the KafkaCluster is absent, or it or the namespace is terminating. `topic_owner`: the name
    of another KafkaTopic that has the topic, "" when there is none. `is_asked`: whether brokers have answered; without
    that, `live` and `brokers` (the number of registered brokers) have no meaning. `limits`: of the KafkaCluster.
    `is_allowed`: whether the KafkaCluster allows KafkaTopics of this namespace.
    `is_deleted`: whether the controller has answered that it deletes the topic, or that there is none.
    `bytes_to_go`: what the batch of the rebalance still has to copy of the topic; None when no partition is in it.
    """

    topic: KafkaTopic
    problems: Sequence[Problem]
    resource: Obj
    cluster_is_terminating: bool
    cluster_is_paused: bool
    topic_owner: str
    now: str
    limits: PartitionLimits = NO_LIMITS
    rebalance_mode: str = "Auto"
    is_allowed: bool = True
    is_asked: bool = False
    live: TopicDescription | None = None
    is_deleted: bool = False
    brokers: int = 0
    bytes_to_go: int | None = None

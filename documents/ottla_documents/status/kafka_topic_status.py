"""status of a KafkaTopic."""

from __future__ import annotations

from dataclasses import dataclass

from ottla_documents.schema.marks import LongNumber, Number
from ottla_documents.status.conditions_status import Conditions


@dataclass(frozen=True, slots=True)
class ReplicasChange:
    """The progress while the rebalance of the KafkaCluster moves the topic to spec.replicas. Absent at other times."""

    from_: Number | None = None
    """The number of replicas of the partition that has the fewest."""
    to: Number | None = None
    """The number of replicas that spec asks for."""
    partitions_done: Number | None = None
    """How many partitions have that number of replicas, all of them in sync."""
    partitions: Number | None = None
    """How many partitions there are."""
    bytes_to_go: LongNumber | None = None
    """What the batch that is under way still has to copy of this topic. Absent while no partition of the topic is in
    it."""


@dataclass(frozen=True, slots=True)
class KafkaTopicStatus:
    """The observed state of the topic. The operator writes it."""

    observed_generation: LongNumber | None = None
    """The metadata.generation that this status was computed from."""
    topic_name: str | None = None
    """The name of the topic in Kafka."""
    topic_id: str | None = None
    """The topic id (KIP-516), 22 characters of base64. Absent until the topic exists."""
    partitions: Number | None = None
    """The number of partitions that the topic has."""
    replicas: Number | None = None
    """The number of replicas of the partition that has the fewest."""
    replicas_change: ReplicasChange | None = None
    adopted: bool | None = None
    """Whether the topic existed before this KafkaTopic. True: it stays when the KafkaTopic is deleted, unless
    deletionPolicy says Delete."""
    conditions: Conditions | None = None
    """The conditions of the object. docs/reference/condition-reasons.md lists every type and reason."""

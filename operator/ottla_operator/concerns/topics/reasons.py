"""The conditions of a KafkaTopic, and their reasons."""

from __future__ import annotations

from ottla_operator.api.condition_reasons import (
    AS_DECLARED,
    CORRECT,
    INVALID_SPEC,
    KAFKA_ERROR,
    READY,
    TOPIC,
    WAIT,
    ConditionReason,
    ConditionType,
    Status,
    lacking,
)


def _topic(status: Status, reason: str, meaning: str, action: str = "") -> ConditionReason:
    return ConditionReason(TOPIC, READY, status, reason, meaning, action)


TYPES = (
    ConditionType(TOPIC, READY, "The topic exists and is as declared"),
)  # fmt: skip

_OF_TOPICS = (
    _topic("True", AS_DECLARED, "The topic exists and is as declared."),
    *lacking(TOPIC),
    _topic("False", INVALID_SPEC, "Fields of spec have values that cannot be used.", CORRECT),
    _topic(
        "False", "ClusterNotFound", "There is no KafkaCluster of that name in the namespace, or it is terminating.",
        "Correct spec.clusterRef, or create the KafkaCluster.",
    ),
    _topic(
        "False", "NamespaceNotAllowed",
        "The KafkaCluster is in another namespace, and does not allow KafkaTopics of this one. The topic, if there is "
        "one, stays as it is.",
        "Add the namespace to spec.topics.namespaces of the KafkaCluster, by name or by a label that its selector has.",
    ),
    _topic(
        "False", "ConflictingTopic", "An older KafkaTopic names the same topic and has it.",
        "Delete one of the two, or give this one another spec.topicName.",
    ),
    _topic("False", "Paused", "The KafkaCluster is paused.", "Set its spec.paused to false."),
    _topic("False", "InternalTopic", "The topic belongs to the brokers.", "Delete the KafkaTopic; use kafka-configs."),
    _topic("False", "WaitingForKafka", "No broker answers.", "See the conditions of the KafkaCluster."),
    _topic(
        "False", "NotEnoughBrokers", "spec.replicas is larger than the number of registered brokers.",
        "Start more brokers, or set fewer replicas.",
    ),
    _topic(
        "False", "PartitionLimit",
        "The topic would have more partitions than spec.topics of the KafkaCluster allows. What exists stays.",
        "Ask for fewer partitions, or raise the limit that the message names.",
    ),
    _topic("False", "Changing", "The topic is being changed, as the message says.", WAIT),
    _topic(
        "False", "PartitionsDecreased", "spec.partitions is smaller than the number of partitions. Kafka removes none.",
        "Set it to the number that the topic has or more.",
    ),
    _topic(
        "False", "ReplicasChangeNotSupported",
        "spec.replicas differs from the replication factor, and spec.rebalance.mode of the KafkaCluster is not Auto.",
        "Set it back; kafka-reassign-partitions changes the replication factor, and spec.replicas follows.",
    ),
    _topic(
        "False", "Terminating", "The KafkaTopic is being deleted and waits for what the message names.",
        "If it lasts, set spec.deletionPolicy to Retain, which deletes the KafkaTopic and keeps the topic.",
    ),
)  # fmt: skip


TOPIC_ALREADY_EXISTS = "TopicAlreadyExists"
"""The error of a refused creation from which follows that the topic was there before."""
TOPIC_DELETION_DISABLED = "TopicDeletionDisabled"

_KAFKA_ERRORS = (
    _topic(
        "False", TOPIC_ALREADY_EXISTS,
        "There is a topic of that name, or of a name that differs only in dots and underscores.",
        "Give this one another spec.topicName, or delete the other topic.",
    ),
    _topic("False", "InvalidTopic", "The brokers do not accept the name.", "Give it another spec.topicName."),
    _topic("False", "InvalidPartitions", "The brokers do not accept the partitions.", "Correct spec.partitions."),
    _topic(
        "False", "InvalidReplicationFactor", "The brokers do not accept the replication factor.",
        "Correct spec.replicas, or start more brokers.",
    ),
    _topic("False", "InvalidConfiguration", "The brokers do not accept the configuration.", "Correct spec.config."),
    _topic("False", "InvalidRequest", "The brokers do not accept the request.", "Read the message and correct spec."),
    _topic("False", "PolicyViolation", "A policy of the brokers forbids it.", "Read the message and correct spec."),
    _topic(
        "False", "TopicAuthorizationFailed", "The brokers do not allow the operator to change the topic.",
        "Allow it, by an ACL for the topic.",
    ),
    _topic(
        "False", "ClusterAuthorizationFailed", "The brokers do not allow the operator to change topics.",
        "Allow it, by an ACL for the cluster.",
    ),
    _topic("False", TOPIC_DELETION_DISABLED, "delete.topic.enable is false.", "Set it, or deletionPolicy: Retain."),
    _topic(
        "False", "ThrottlingQuotaExceeded", "The quota for changes of partitions is exhausted (KIP-599).",
        "Nothing; the operator tries again by itself.",
    ),
    _topic(
        "False", "ReassignmentInProgress", "Partitions of the topic are being reassigned.",
        "Nothing; the operator tries again when the reassignment is over.",
    ),
    _topic(
        "False", KAFKA_ERROR, "The brokers answered another error; the message begins with its name.",
        "Read the message. The operator tries again by itself.",
    ),
)  # fmt: skip

REASONS = (*_OF_TOPICS, *_KAFKA_ERRORS)
_KAFKA_ERROR_NAMES = frozenset(row.reason for row in _KAFKA_ERRORS)


def reason_of_kafka_error(name: str) -> str | None:
    """The reason for an error of Kafka by its name; None when the table has none of its own for it.

    >>> reason_of_kafka_error("PolicyViolation"), reason_of_kafka_error("SnapshotNotFound")
    ('PolicyViolation', None)
    """
    return name if name in _KAFKA_ERROR_NAMES else None

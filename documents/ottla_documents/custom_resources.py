"""KafkaCluster, KafkaTopic and KafkaPipeline as custom resources of Kubernetes."""

from __future__ import annotations

from dataclasses import replace

from ottla_documents.field_types import CLUSTER_NAME_LENGTH
from ottla_documents.kafka_cluster import CLUSTER_NAME, KafkaClusterDocument
from ottla_documents.kafka_pipeline import PIPELINE_NAME, KafkaPipelineDocument
from ottla_documents.kafka_topic import KafkaTopicDocument
from ottla_documents.schema.custom_resource import AGE, Column, CustomResource, Scale, condition_column
from ottla_documents.schema.marks import Rule, Text
from ottla_documents.status.kafka_cluster_status import KafkaClusterStatus
from ottla_documents.status.kafka_pipeline_status import KafkaPipelineStatus
from ottla_documents.status.kafka_topic_status import KafkaTopicStatus

_READY = condition_column("Ready", "Ready", "status")
_REASON = condition_column("Reason", "Ready", "reason")
_MESSAGE = condition_column("Message", "Ready", "message", is_wide=True)

KAFKA_CLUSTER = CustomResource(
    kind="KafkaCluster",
    short_name="kc",
    description="A cluster of Kafka-compatible brokers, their racks and disks, and their ZooKeeper ensemble.",
    name=CLUSTER_NAME,
    name_text="The name of the cluster. It begins the names of its objects, so it has at most 40 characters. It cannot "
    "change.",
    spec=KafkaClusterDocument,
    status=KafkaClusterStatus,
    columns=(
        Column("Brokers", "integer", ".status.replicas"),
        Column("Running", "integer", ".status.readyReplicas"),
        _READY,
        _REASON,
        condition_column("Rolled", "Rolled", "status", is_wide=True),
        Column("Roll", "string", ".status.roll.summary"),
        Column("Bootstrap", "string", ".status.bootstrap"),
        Column("Version", "string", ".status.version"),
        Column("Protocol", "string", ".status.interBrokerProtocolVersion", is_wide=True),
        _MESSAGE,
        AGE,
    ),
    scale=Scale(".spec.brokers.replicas", ".status.replicas", ".status.selector"),
)

KAFKA_TOPIC = CustomResource(
    kind="KafkaTopic",
    short_name="kt",
    description="One topic of a KafkaCluster.",
    name=Text(most=249),
    name_text="The name of this object, and of the topic where spec.topicName is absent. It cannot change.",
    spec=KafkaTopicDocument,
    status=KafkaTopicStatus,
    columns=(
        Column("Cluster", "string", ".spec.clusterRef.name"),
        Column("Topic", "string", ".status.topicName"),
        Column("Partitions", "integer", ".status.partitions"),
        Column("Replicas", "integer", ".status.replicas"),
        _READY,
        _REASON,
        _MESSAGE,
        AGE,
    ),
    rules=(
        Rule(
            "(has(self.spec.topicName) ? self.spec.topicName : self.metadata.name) == "
            "(has(oldSelf.spec.topicName) ? oldSelf.spec.topicName : oldSelf.metadata.name)",
            "topicName cannot change; Kafka does not rename topics",
        ),
    ),
)

KAFKA_PIPELINE = CustomResource(
    kind="KafkaPipeline",
    short_name="kp",
    description="A Spark query from a source through steps to a sink, as `ottla pipeline` runs it on one machine. The "
    "operator runs it in a pod of its own.",
    name=replace(PIPELINE_NAME, most=CLUSTER_NAME_LENGTH),
    name_text="The name of this object; names of its pod and claim begin with it. It cannot change.",
    spec=KafkaPipelineDocument,
    status=KafkaPipelineStatus,
    columns=(
        Column("State", "string", ".status.state"),
        Column("Rows/s", "integer", ".status.progress.rowsPerSecond"),
        Column("Lag", "integer", ".status.progress.lag"),
        Column("Last batch", "date", ".status.progress.lastBatchTime"),
        _READY,
        Column("Restarts", "integer", ".status.restarts", is_wide=True),
        _MESSAGE,
        AGE,
    ),
)

CUSTOM_RESOURCES = (KAFKA_CLUSTER, KAFKA_PIPELINE, KAFKA_TOPIC)

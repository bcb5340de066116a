"""KafkaTopic as a value: one topic of a KafkaCluster."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from ottla_broker.config import COORDINATOR_TOPICS, TOPIC_KEYS, topic_key_is_meant, validate_topic_config
from ottla_broker.protocol.errors import KafkaError
from ottla_documents.document_root import read_root
from ottla_documents.field_types import SUBDOMAIN_FORM, ClusterName, Config, ConfigKeys, NamespaceName, TopicName
from ottla_documents.limits import topic_problems
from ottla_documents.schema.marks import Problem, Rule, Text, WholeNumber
from ottla_documents.topic_config import canonical_text

_NAME_FORM = f"{SUBDOMAIN_FORM} (spec.topicName takes any other name of a topic)"
NAME_FIELDS = ("metadata.name", "spec.topicName")
"""The fields that name the topic."""


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """One topic. `partitions` and `replicas`: -1 for the default of the brokers (KIP-464)."""

    name: str
    namespace: str
    cluster: str
    topic_name: str
    partitions: int
    replicas: int
    config: Mapping[str, str]
    deletion_policy: str = ""
    """What happens to the topic when the KafkaTopic is deleted. "": one that existed before stays, one that
    was created for the KafkaTopic is deleted. `ottla local` deletes none."""
    unmanaged_config: frozenset[str] = frozenset()
    """Topic keys that the operator neither sets nor removes."""
    cluster_namespace: str = ""
    """The namespace of the KafkaCluster, when another one is named; "": that of the KafkaTopic. `ottla local` ignores
    namespaces."""


@dataclass(frozen=True, slots=True)
class TopicClusterReference:
    """The KafkaCluster of the topic."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(has(self.__namespace__) ? self.__namespace__ : '') == "
            "(has(oldSelf.__namespace__) ? oldSelf.__namespace__ : '')",
            "clusterRef cannot change",
        ),
    )
    name: Annotated[ClusterName, Rule("self == oldSelf", "clusterRef cannot change")]
    """The name of the KafkaCluster. Required. It cannot change."""
    namespace: NamespaceName = ""
    """The namespace of the KafkaCluster, which has to allow this one in its spec.topics.namespaces. Default: the
    namespace of this KafkaTopic. It cannot change."""


_NO_COORDINATOR_TOPIC = Rule(
    f"!(self in [{', '.join(json.dumps(topic) for topic in sorted(COORDINATOR_TOPICS))}])",
    "this topic belongs to the brokers; kafka-configs changes its configuration",
)


@dataclass(frozen=True, slots=True)
class KafkaTopicDocument:
    """The desired state of the topic. The operator brings the topic to it, also after changes by other tools."""

    cluster_ref: TopicClusterReference
    topic_name: Annotated[TopicName, _NO_COORDINATOR_TOPIC] = ""
    """The name of the topic in Kafka, for names that Kubernetes does not allow. Default: metadata.name. It cannot
    change. When several KafkaTopics name one topic, the oldest has it and the others report ConflictingTopic."""
    partitions: Annotated[int | None, WholeNumber(1)] = None
    """The number of partitions. Default: num.partitions of the brokers. A larger number adds partitions, which changes
    the partition of keys. A smaller number changes nothing; Kafka cannot remove partitions."""
    replicas: Annotated[int | None, WholeNumber(1, 32767)] = None
    """The replication factor of the topic. Default: default.replication.factor of the brokers. The rebalance of the
    KafkaCluster moves the topic to another number, if its mode is Auto."""
    config: Config = field(default_factory=dict)
    """Topic configuration: Kafka's keys, with values of any scalar type. Default: the defaults of the brokers. The
    operator sets these values and removes any other that is set on the topic, except replication throttles. A change
    takes effect at once, without a restart. A value that Kafka does not accept changes nothing of the configuration;
    the condition Ready names it."""
    unmanaged_config: ConfigKeys = ()
    """Topic configuration keys that the operator neither sets nor removes, for values that other tools set. Default:
    none. A key must not be in config too."""
    deletion_policy: Literal["", "Delete", "Retain"] = ""
    """What happens to the topic when this KafkaTopic is deleted. Delete: the topic is deleted with its data. Retain:
    the topic stays. Default: a topic that this KafkaTopic created is deleted; one that existed before, or was taken
    over from another KafkaTopic, stays. A topic that another KafkaTopic names is never deleted."""


def parse_topic(document: Mapping[str, Any]) -> tuple[KafkaTopic, list[Problem]]:
    """Reads a KafkaTopic document (apiVersion and kind are not checked).

    Returns:
        The topic, with a default in place of each wrong value, and the problems by field.
    """
    problems: list[Problem] = []
    root = read_root(document, KafkaTopicDocument, Text(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", _NAME_FORM), problems)
    spec = root.spec
    topic_name = spec.topic_name or root.name
    if topic_name in COORDINATOR_TOPICS:
        message = f"{topic_name} belongs to the brokers; kafka-configs changes its configuration"
        problems.append(Problem("spec.topicName", message))
    config = {key: canonical_text(key, value) for key, value in spec.config.items()}
    _check_config(config, problems)
    for key in dict.fromkeys(spec.unmanaged_config):
        if key in config:
            message = f"{key} is in spec.config too; a key is either declared or left alone"
            problems.append(Problem("spec.unmanagedConfig", message))
        elif key not in TOPIC_KEYS:
            message = f"{key} is not a topic configuration key{topic_key_is_meant(key)}"
            problems.append(Problem("spec.unmanagedConfig", message))
    namespace = spec.cluster_ref.namespace
    topic = KafkaTopic(
        name=root.name,
        namespace=root.namespace,
        cluster=spec.cluster_ref.name,
        topic_name=topic_name,
        partitions=-1 if spec.partitions is None else spec.partitions,
        replicas=-1 if spec.replicas is None else spec.replicas,
        config=config,
        deletion_policy=spec.deletion_policy,
        unmanaged_config=frozenset(spec.unmanaged_config),
        cluster_namespace="" if namespace == root.namespace else namespace,
    )
    problems += topic_problems(document)
    return topic, problems


def declared_topic(document: Mapping[str, Any]) -> str:
    """The topic that a document names; "" when it names none, or one that a KafkaTopic may not have."""
    topic, problems = parse_topic({"metadata": document.get("metadata"), "spec": _name_only(document.get("spec"))})
    return "" if has_unusable_name(problems) else topic.topic_name


def has_unusable_name(problems: Iterable[Problem]) -> bool:
    """Whether the name of the topic is unknown, or one that a KafkaTopic may not have."""
    return any(problem.path in NAME_FIELDS for problem in problems)


def _name_only(spec: Any) -> dict[str, Any]:
    return {"topicName": spec["topicName"]} if isinstance(spec, Mapping) and "topicName" in spec else {}


def _check_config(config: Mapping[str, str], problems: list[Problem]) -> None:
    """Checks each key by itself, so that every problem names its field, and then all keys together."""
    usable = {}
    for key, value in config.items():
        if key not in TOPIC_KEYS:
            message = f"is not a topic configuration key of Kafka 3.9{topic_key_is_meant(key)}"
            problems.append(Problem(f"spec.config.{key}", message))
            continue
        try:
            validate_topic_config({key: value})
            usable[key] = value
        except KafkaError as error:
            problems.append(Problem(f"spec.config.{key}", error.message))
    try:
        validate_topic_config(usable)
    except KafkaError as error:
        problems.append(Problem("spec.config", error.message))

"""KafkaTopic as a value: one topic of a KafkaCluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ottla_broker.config import COORDINATOR_TOPICS, TOPIC_KEYS, topic_key_is_meant, validate_topic_config
from ottla_broker.protocol.errors import KafkaError
from ottla_documents.fields import LABEL_FORM, SUBDOMAIN_FORM, Fields, Problem
from ottla_documents.limits import topic_problems
from ottla_documents.topic_config import canonical_text
from ottla_documents.topic_namespaces import NAMESPACE_NAME

TOPIC_NAME = r"[a-zA-Z0-9._-]{1,249}"
TOPIC_NAME_FORM = "letters, digits, ., _ and -, at most 249"
_NAME_FORM = f"{SUBDOMAIN_FORM} (spec.topicName takes any other name of a topic)"
NAME_FIELDS = ("metadata.name", "spec.topicName")
"""The fields that name the topic."""
DELETION_POLICIES = ("Delete", "Retain")


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


def parse_topic(document: Mapping[str, Any]) -> tuple[KafkaTopic, list[Problem]]:
    """Reads a KafkaTopic document (apiVersion and kind are not checked).

    Returns:
        The topic, with a default in place of each wrong value, and the problems by field.
    """
    problems: list[Problem] = []
    root = Fields(document, "", problems, {"apiVersion", "kind", "status"})
    metadata = root.child("metadata")
    name = metadata.text("name", pattern=r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", form=_NAME_FORM)
    namespace = metadata.text("namespace", "default")
    spec = root.child("spec")
    reference = spec.child("clusterRef")
    cluster = reference.text("name")
    cluster_namespace = reference.text("namespace", "", pattern=f"({NAMESPACE_NAME})?", form=LABEL_FORM)
    reference.finish()
    topic_name = spec.text("topicName", name, pattern=TOPIC_NAME, form=TOPIC_NAME_FORM)
    if topic_name in (".", ".."):
        spec.problem("topicName", f"{topic_name!r} is not a topic name")
    if topic_name in COORDINATOR_TOPICS:
        spec.problem("topicName", f"{topic_name} belongs to the brokers; kafka-configs changes its configuration")
    config = {key: canonical_text(key, value) for key, value in spec.config().items()}
    _check_config(spec, config)
    unmanaged = spec.texts("unmanagedConfig")
    for key in unmanaged:
        if key in config:
            spec.problem("unmanagedConfig", f"{key} is in spec.config too; a key is either declared or left alone")
        elif key not in TOPIC_KEYS:
            spec.problem("unmanagedConfig", f"{key} is not a topic configuration key{topic_key_is_meant(key)}")
    topic = KafkaTopic(
        name=name,
        namespace=namespace,
        cluster=cluster,
        topic_name=topic_name,
        partitions=spec.whole("partitions", -1),
        replicas=spec.whole("replicas", -1, highest=32767),
        config=config,
        deletion_policy=spec.choice("deletionPolicy", ("", *DELETION_POLICIES), ""),
        unmanaged_config=frozenset(unmanaged),
        cluster_namespace="" if cluster_namespace == namespace else cluster_namespace,
    )
    spec.finish()
    root.finish()
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


def _check_config(spec: Fields, config: Mapping[str, str]) -> None:
    """Checks each key by itself, so that every problem names its field, and then all keys together."""
    usable = {}
    for key, value in config.items():
        if key not in TOPIC_KEYS:
            spec.problem(f"config.{key}", f"is not a topic configuration key of Kafka 3.9{topic_key_is_meant(key)}")
            continue
        try:
            validate_topic_config({key: value})
            usable[key] = value
        except KafkaError as error:
            spec.problem(f"config.{key}", error.message)
    try:
        validate_topic_config(usable)
    except KafkaError as error:
        spec.problem("config", error.message)

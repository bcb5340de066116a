"""KafkaTopic: one topic of a fleet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla_broker.config import validate_topic_config
from ottla_broker.protocol.errors import KafkaError
from ottla_operator.model.fields import Fields, Problem

TOPIC_NAME = r"[a-zA-Z0-9._-]{1,249}"
DELETION_POLICIES = ("Delete", "Retain")


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """`partitions` and `replicas` are -1 where the document leaves them to the brokers' defaults (KIP-464)."""

    name: str
    namespace: str
    cluster: str
    topic_name: str
    partitions: int
    replicas: int
    config: Mapping[str, str]
    deletion_policy: str = ""
    """What becomes of the topic when the document goes; "": a topic that existed before the document is kept, one that
    was created for it is deleted. A local fleet keeps them all."""


def parse_topic(document: Mapping[str, Any]) -> tuple[KafkaTopic, list[Problem]]:
    """Reads a KafkaTopic document (apiVersion and kind are the caller's).

    Gives the topic, with a default in place of each field that is wrong, and the problems by field.
    """
    problems: list[Problem] = []
    root = Fields(document, "", problems, {"apiVersion", "kind", "status"})
    metadata = root.child("metadata")
    name = metadata.text("name", pattern=r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
    namespace = metadata.text("namespace", "default")
    spec = root.child("spec")
    reference = spec.child("clusterRef")
    cluster = reference.text("name")
    reference.finish()
    topic_name = spec.text("topicName", name, pattern=TOPIC_NAME)
    if topic_name in (".", ".."):
        spec.problem("topicName", f"{topic_name!r} is not a topic name")
    config = spec.config()
    for key, value in config.items():
        try:
            validate_topic_config({key: value})
        except KafkaError as error:
            spec.problem(f"config.{key}", error.message)
    topic = KafkaTopic(
        name=name,
        namespace=namespace,
        cluster=cluster,
        topic_name=topic_name,
        partitions=spec.whole("partitions", -1),
        replicas=spec.whole("replicas", -1, highest=32767),
        config=config,
        deletion_policy=spec.choice("deletionPolicy", ("", *DELETION_POLICIES), ""),
    )
    spec.finish()
    root.finish()
    return topic, problems

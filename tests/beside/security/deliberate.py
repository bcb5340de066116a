"""Where ours answers otherwise than Apache Kafka 3.9.1, and why; and what Apache Kafka does not answer at all."""

from __future__ import annotations

from typing import Any

from ottla_broker.protocol.api import ApiKey
from tests.beside.security.rows import Question

_INTERNAL_OBJECT = "Request Request("


def unasked(question: Question) -> str:
    """Why neither is asked; "" where both are."""
    if question.row.api_key is ApiKey.PRODUCE and question.names_twice and question.is_granted:
        return "ours appends both batches, Apache Kafka one of them: all offsets would differ from there on"
    return ""


def unanswered(question: Question) -> str:
    """Why Apache Kafka never answers, and is not asked; "" where it does."""
    api_key, row, variant = question.row.api_key, question.row, question.variant
    if row.is_ours_alone:
        return "Apache Kafka 3.9 with ZooKeeper does not serve it"
    if api_key is ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS and row.about == "of all" and not question.is_granted:
        return "it fails at the list of users that is null, when the right is missing"
    if api_key is ApiKey.ALTER_CONFIGS and "named twice" in variant:
        return "it fails at a resource that is named twice"
    if api_key is ApiKey.OFFSET_FETCH and row.about == "of groups" and variant == "none":
        return "it waits for the answer of the last of no groups"
    if api_key is ApiKey.WRITE_TXN_MARKERS and variant == "named twice" and has_markers_right(question):
        return "it waits for as many answers as there are partitions, and gets one"
    return ""


def has_markers_right(question: Question) -> bool:
    """Whether WriteTxnMarkers is allowed."""
    return any(right.resource_type.label == "Cluster" for right in question.rights)


def without_internal_objects(ours: Any, theirs: Any) -> Any:
    """Ours with their message where Apache Kafka prints an object of its own in place of words."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return {name: without_internal_objects(part, theirs.get(name)) for name, part in ours.items()}
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [without_internal_objects(*pair) for pair in zip(ours, theirs, strict=True)]
    return theirs if isinstance(theirs, str) and theirs.startswith(_INTERNAL_OBJECT) else ours


def reason(question: Question, found: str) -> str:
    """Why the answers differ as found; "" where they should not."""
    row = question.row
    if row.api_key is ApiKey.METADATA and row.changes and found.endswith("'LEADER_NOT_AVAILABLE'"):
        return "a topic that has just been created has its leader already when ours answers"
    if row.api_key is ApiKey.FIND_COORDINATOR and row.about == "of share groups":
        return "there is no coordinator of share groups: nobody has to ask again"
    return ""

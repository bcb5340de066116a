"""Where ours answers otherwise than Apache Kafka 3.9.1, and why; and what Apache Kafka does not answer at all."""

from __future__ import annotations

from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.codec import ZERO_UUID
from tests.beside.security.rows import Question

PRINTS_AN_OBJECT = frozenset(
    {
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
    }
)
"""In their messages Apache Kafka prints an object of its own: `Request Request(processor=1, …) is not authorized.`"""


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


_OF_A_NEW_TOPIC = ("says 'LEADER_NOT_AVAILABLE'", "says []", f"'<a new id>', and Apache Kafka says '{ZERO_UUID.hex()}'")


def reason(question: Question, found: str) -> str:
    """Why the answers differ as found; "" where they should not."""
    row = question.row
    if row.api_key is ApiKey.METADATA and row.changes and found.endswith(_OF_A_NEW_TOPIC):
        return "a topic that has just been created has its leader already when ours answers"
    if row.api_key is ApiKey.FETCH and question.version < 4 and ".records" in found:
        return "records of older formats are made from newer ones, by each in its own way, and cut off by Apache Kafka"
    if row.api_key in (ApiKey.FETCH, ApiKey.LIST_OFFSETS) and question.names_twice and question.is_granted:
        return "granted, a partition that is named twice is read twice by ours; in version 0 its offsets are refused"
    if row.api_key is ApiKey.OFFSET_FETCH and question.version == 1 and found.endswith("says []"):
        return "Apache Kafka loses the error of the group, which has no place of its own in this version"
    if row.api_key in (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA) and not question.is_granted:
        return "ours refuses it before it is read, so that nothing is named in the answer"
    if row.api_key is ApiKey.LEADER_AND_ISR and "_EPOCH" not in found and ": []" in found:
        return "a stale one is looked at no further: its answer names no partition"
    if row.api_key is ApiKey.CONTROLLED_SHUTDOWN and found.endswith("'UNKNOWN_SERVER_ERROR'"):
        return "Apache Kafka fails at the epoch of a broker that there is not"
    if row.api_key is ApiKey.WRITE_TXN_MARKERS and question.variant == "none" and has_markers_right(question):
        return "Apache Kafka leaves out a marker without topics"
    if row.api_key is ApiKey.LIST_PARTITION_REASSIGNMENTS and not question.is_granted:
        return "Apache Kafka names what was asked for, with replicas of nobody; ours has the error alone"
    if row.api_key is ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS and ".user: " in found:
        return "Apache Kafka leaves the name of each user out, so that nobody sees whose error it is"
    if row.about == "of client metrics":
        return "Apache Kafka 3.9 has subscriptions of client metrics under KRaft alone (KIP-714)"
    if row.api_key is ApiKey.FIND_COORDINATOR and row.about == "of share groups":
        return "there is no coordinator of share groups: nobody has to ask again"
    return ""

"""Reads and writes what consumers of the classic protocol put into JoinGroup and SyncGroup. Pure.

A broker looks into these bytes where a group has members of both protocols, and where it is converted (KIP-848).

Source: org.apache.kafka.clients.consumer.internals.ConsumerProtocol.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from ottla_broker.groups.consumer.group_image import Assignment, TopicId, TopicView, assignment_of, partitions_of
from ottla_broker.protocol.codec import DecodeError
from ottla_broker.protocol.generated import consumer_protocol as schema

_VERSION = struct.Struct(">h")
HIGHEST_VERSION = 3


class NotAConsumer(ValueError):
    """The bytes are not those of a consumer; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class ClassicSubscription:
    """What a consumer joins with."""

    version: int
    topic_names: tuple[str, ...]
    """Sorted, each once."""
    owned: Assignment
    rack_id: str | None


def read_subscription(metadata: bytes, topics: TopicView) -> ClassicSubscription:
    """NotAConsumer when the bytes do not fit. Owned partitions of topics that do not exist are left out."""
    version = _version_of(metadata)
    try:
        read = schema.read_consumer_protocol_subscription_at(version, memoryview(metadata), _VERSION.size)[0]
    except DecodeError as error:
        raise NotAConsumer(f"the subscription is malformed: {error}") from None
    owned = _by_id(read.owned_partitions, topics)
    return ClassicSubscription(version, tuple(sorted(set(read.topics))), owned, read.rack_id)


def read_assignment(blob: bytes, topics: TopicView) -> Assignment:
    """NotAConsumer when the bytes do not fit, or carry user data of a custom assignor; nothing for no bytes."""
    if not blob:
        return {}
    version = _version_of(blob)
    try:
        read = schema.read_consumer_protocol_assignment_at(version, memoryview(blob), _VERSION.size)[0]
    except DecodeError as error:
        raise NotAConsumer(f"the assignment is malformed: {error}") from None
    if read.user_data is not None and len(read.user_data):
        raise NotAConsumer("the assignment has user data of a custom assignor, which would be lost")
    return _by_id(read.assigned_partitions, topics)


def write_assignment(version: int, assignment: Assignment, topics: TopicView) -> bytes:
    """In the version that the member speaks. Topics that do not exist any more are left out."""
    names: dict[str, list[int]] = {}
    for topic_id, partition in partitions_of(assignment):
        name = topics.name_of(topic_id)
        if name is not None:
            names.setdefault(name, []).append(partition)
    topic_type = schema.ConsumerProtocolAssignmentTopicPartition
    assigned = [topic_type(topic=name, partitions=names[name]) for name in sorted(names)]
    value = schema.ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=None)
    chunks = schema.write_consumer_protocol_assignment(version, value)
    return b"".join([_VERSION.pack(version), *chunks])  # type: ignore[list-item]


def _version_of(blob: bytes) -> int:
    """A newer version is read as the newest that is known: fields are only ever added."""
    if len(blob) < _VERSION.size:
        raise NotAConsumer("the version is missing")
    version: int = _VERSION.unpack_from(blob)[0]
    if version < 0:
        raise NotAConsumer(f"version {version}")
    return min(version, HIGHEST_VERSION)


def _by_id(by_name: list[Any], topics: TopicView) -> Assignment:
    found: list[tuple[TopicId, int]] = []
    for each in by_name:
        topic = topics.find(each.topic)
        if topic is not None:
            found.extend((topic.topic_id, partition) for partition in each.partitions)
    return assignment_of(found)

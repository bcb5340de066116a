"""The records of a group of the consumer protocol in `__consumer_offsets`: keys 3 to 8 and 16, in Kafka's formats.

A group is a map from keys to values, and so is its image: the records to write are those whose values differ between
two images, and the last value of each key gives the image back, whatever compaction has removed. Pure.

Tombstones come first, so that a partition is released before somebody else gets it, then the values in the order in
which Apache Kafka writes them: subscriptions, topics, group epoch, target assignments and their epoch, current
assignments. A log that ends between two of them has a group epoch above its assignment epoch: the target assignment is
computed again.

Source: GroupCoordinatorRecordHelpers. Topics are written as Apache Kafka 4.0 does (key 4); 4.1 replaced them by a hash.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

from ottla_broker.groups.consumer.group_image import (
    Assignment,
    ClassicMetadata,
    ConsumerGroupImage,
    ConsumerMember,
    ResolvedExpression,
    SubscribedTopic,
    TopicId,
    assignment_of,
)
from ottla_broker.groups.consumer.states import MemberState
from ottla_broker.internal_topics.topic_log import StateRecord
from ottla_broker.protocol.codec import Chunk
from ottla_broker.protocol.generated import group_records as schema

_VERSION = struct.Struct(">h")
VALUE_VERSION = 0


class RecordKind(IntEnum):
    """The version in front of a key."""

    GROUP = 3
    TOPICS = 4
    MEMBER = 5
    ASSIGNMENT_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    EXPRESSION = 16


class RecordKey(NamedTuple):
    """A key of one group; `name` is a member id or a regular expression, else empty."""

    kind: RecordKind
    name: str = ""


_GROUP = RecordKey(RecordKind.GROUP)
_TOPICS = RecordKey(RecordKind.TOPICS)
_ASSIGNMENT_EPOCH = RecordKey(RecordKind.ASSIGNMENT_EPOCH)

_TOMBSTONE_ORDER = (
    RecordKind.CURRENT,
    RecordKind.TARGET,
    RecordKind.ASSIGNMENT_EPOCH,
    RecordKind.MEMBER,
    RecordKind.EXPRESSION,
    RecordKind.TOPICS,
    RecordKind.GROUP,
)
_VALUE_ORDER = (
    RecordKind.MEMBER,
    RecordKind.EXPRESSION,
    RecordKind.TOPICS,
    RecordKind.GROUP,
    RecordKind.TARGET,
    RecordKind.ASSIGNMENT_EPOCH,
    RecordKind.CURRENT,
)


def changed_keys(before: ConsumerGroupImage, after: ConsumerGroupImage) -> list[RecordKey]:
    """The keys whose values differ between two images of a group."""
    keys: list[RecordKey] = []
    if before.epoch != after.epoch:
        keys.append(_GROUP)
    if before.topics != after.topics:
        keys.append(_TOPICS)
    if before.assignment_epoch != after.assignment_epoch:
        keys.append(_ASSIGNMENT_EPOCH)
    for member_id, old, new in _differences(before.members, after.members):
        if old is None or new is None or not new.has_same_subscription_record(old):
            keys.append(RecordKey(RecordKind.MEMBER, member_id))
        if old is None or new is None or not new.has_same_assignment_record(old):
            keys.append(RecordKey(RecordKind.CURRENT, member_id))
    for member_id, _, _ in _differences(before.targets, after.targets):
        keys.append(RecordKey(RecordKind.TARGET, member_id))
    for regex, _, _ in _differences(before.expressions, after.expressions):
        keys.append(RecordKey(RecordKind.EXPRESSION, regex))
    return keys


def every_key(image: ConsumerGroupImage) -> list[RecordKey]:
    """The keys of all records of a group."""
    return [
        _GROUP,
        _TOPICS,
        _ASSIGNMENT_EPOCH,
        *(RecordKey(kind, name) for kind in (RecordKind.MEMBER, RecordKind.CURRENT) for name in image.members),
        *(RecordKey(RecordKind.TARGET, name) for name in image.targets),
        *(RecordKey(RecordKind.EXPRESSION, regex) for regex in image.expressions),
    ]


def records_of(image: ConsumerGroupImage, keys: Iterable[RecordKey]) -> list[StateRecord]:
    """The records with the image's values of these keys, each a tombstone where it has none, in the order to write."""
    values = {key: _value(image, key) for key in keys}
    ordered = [
        *_ordered([key for key, value in values.items() if value is None], _TOMBSTONE_ORDER),
        *_ordered([key for key, value in values.items() if value is not None], _VALUE_ORDER),
    ]
    return [StateRecord(_key(image.group_id, key), values[key]) for key in ordered]


def tombstones_of(group_id: str, keys: Iterable[RecordKey]) -> list[StateRecord]:
    """Tombstones for these keys, in the order to write."""
    return [StateRecord(_key(group_id, key), None) for key in _ordered(list(keys), _TOMBSTONE_ORDER)]


def read_key(kind: RecordKind, key: memoryview) -> tuple[str, RecordKey]:
    """The group and the key. DecodeError when the bytes do not fit."""
    names: dict[RecordKind, Any] = {
        RecordKind.GROUP: schema.read_consumer_group_metadata_key,
        RecordKind.TOPICS: schema.read_consumer_group_partition_metadata_key,
        RecordKind.MEMBER: schema.read_consumer_group_member_metadata_key,
        RecordKind.ASSIGNMENT_EPOCH: schema.read_consumer_group_target_assignment_metadata_key,
        RecordKind.TARGET: schema.read_consumer_group_target_assignment_member_key,
        RecordKind.CURRENT: schema.read_consumer_group_current_member_assignment_key,
        RecordKind.EXPRESSION: schema.read_consumer_group_regular_expression_key,
    }
    found = names[kind](int(kind), key, _VERSION.size)
    if kind is RecordKind.EXPRESSION:
        return found.group_id, RecordKey(kind, found.regular_expression)
    return found.group_id, RecordKey(kind, getattr(found, "member_id", ""))


RecordValues: TypeAlias = Mapping[RecordKey, bytes]
"""The last value of each key, without those whose last record is a tombstone."""


def image_of(group_id: str, values: RecordValues) -> ConsumerGroupImage:
    """The group that these values are the records of.

    Raises:
        DecodeError: a value does not fit its format.
        ValueError: a value has a version that no Kafka up to 4.1 writes.
    """
    members: dict[str, ConsumerMember] = {}
    for key in values:
        if key.kind in (RecordKind.MEMBER, RecordKind.CURRENT):
            members.setdefault(key.name, ConsumerMember(key.name))
    targets: dict[str, Assignment] = {}
    expressions: dict[str, ResolvedExpression] = {}
    epoch = assignment_epoch = 0
    topics: dict[str, SubscribedTopic] = {}
    for key, blob in values.items():
        view = memoryview(blob)
        (version,) = _VERSION.unpack_from(view)
        if version != VALUE_VERSION:
            raise ValueError(f"{key.kind.name} value of version {version}")
        if key.kind is RecordKind.GROUP:
            epoch = schema.read_consumer_group_metadata_value(version, view, _VERSION.size).epoch
        elif key.kind is RecordKind.ASSIGNMENT_EPOCH:
            read = schema.read_consumer_group_target_assignment_metadata_value
            assignment_epoch = read(version, view, _VERSION.size).assignment_epoch
        elif key.kind is RecordKind.TOPICS:
            topics = _topics(schema.read_consumer_group_partition_metadata_value(version, view, _VERSION.size))
        elif key.kind is RecordKind.MEMBER:
            found = schema.read_consumer_group_member_metadata_value(version, view, _VERSION.size)
            members[key.name] = _with_subscription(members[key.name], found)
        elif key.kind is RecordKind.CURRENT:
            current = schema.read_consumer_group_current_member_assignment_value(version, view, _VERSION.size)
            members[key.name] = _with_current(members[key.name], current)
        elif key.kind is RecordKind.TARGET:
            target = schema.read_consumer_group_target_assignment_member_value(version, view, _VERSION.size)
            targets[key.name] = _assignment(target.topic_partitions)
        else:
            resolved = schema.read_consumer_group_regular_expression_value(version, view, _VERSION.size)
            expressions[key.name] = ResolvedExpression(
                tuple(sorted(resolved.topics)), resolved.version, resolved.timestamp
            )
    return ConsumerGroupImage(group_id, epoch, assignment_epoch, members, targets, topics, expressions)


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Name, old and new value of each that differs; None where there is none."""
    if before is after:
        return []
    found = [(name, old, None) for name, old in before.items() if name not in after]
    for name, new in after.items():
        old = before.get(name)
        if old is not new and old != new:
            found.append((name, old, new))
    return found


def _ordered(keys: Sequence[RecordKey], order: Sequence[RecordKind]) -> list[RecordKey]:
    return sorted(keys, key=lambda key: order.index(key.kind))


def _encoded(version: int, chunks: list[Chunk]) -> bytes:
    return b"".join([_VERSION.pack(version), *chunks])  # type: ignore[list-item]


def _key(group_id: str, key: RecordKey) -> bytes:
    kind, name = key
    version = int(kind)
    if kind is RecordKind.GROUP:
        chunks = schema.write_consumer_group_metadata_key(version, schema.ConsumerGroupMetadataKey(group_id=group_id))
    elif kind is RecordKind.TOPICS:
        chunks = schema.write_consumer_group_partition_metadata_key(
            version, schema.ConsumerGroupPartitionMetadataKey(group_id=group_id)
        )
    elif kind is RecordKind.MEMBER:
        chunks = schema.write_consumer_group_member_metadata_key(
            version, schema.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=name)
        )
    elif kind is RecordKind.ASSIGNMENT_EPOCH:
        chunks = schema.write_consumer_group_target_assignment_metadata_key(
            version, schema.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
        )
    elif kind is RecordKind.TARGET:
        chunks = schema.write_consumer_group_target_assignment_member_key(
            version, schema.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=name)
        )
    elif kind is RecordKind.CURRENT:
        chunks = schema.write_consumer_group_current_member_assignment_key(
            version, schema.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=name)
        )
    else:
        chunks = schema.write_consumer_group_regular_expression_key(
            version, schema.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=name)
        )
    return _encoded(version, chunks)


def _value(image: ConsumerGroupImage, key: RecordKey) -> bytes | None:
    kind, name = key
    if kind is RecordKind.GROUP:
        return _encoded(
            VALUE_VERSION,
            schema.write_consumer_group_metadata_value(
                VALUE_VERSION, schema.ConsumerGroupMetadataValue(epoch=image.epoch)
            ),
        )
    if kind is RecordKind.ASSIGNMENT_EPOCH:
        return _encoded(
            VALUE_VERSION,
            schema.write_consumer_group_target_assignment_metadata_value(
                VALUE_VERSION,
                schema.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=image.assignment_epoch),
            ),
        )
    if kind is RecordKind.TOPICS:
        topics = [
            schema.TopicMetadata(topic_id=topic.topic_id, topic_name=topic_name, num_partitions=topic.partition_count)
            for topic_name, topic in image.topics.items()
        ]
        return _encoded(
            VALUE_VERSION,
            schema.write_consumer_group_partition_metadata_value(
                VALUE_VERSION, schema.ConsumerGroupPartitionMetadataValue(topics=topics)
            ),
        )
    if kind is RecordKind.TARGET:
        return _target_value(image.targets[name]) if name in image.targets else None
    if kind is RecordKind.EXPRESSION:
        resolved = image.expressions.get(name)
        return None if resolved is None else _expression_value(resolved)
    member = image.members.get(name)
    if member is None:
        return None
    return _subscription_value(member) if kind is RecordKind.MEMBER else _current_value(member)


def _subscription_value(member: ConsumerMember) -> bytes:
    classic = None
    if member.classic is not None:
        classic = schema.ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                schema.ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.classic.protocols
            ],
        )
    value = schema.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=classic,
    )
    return _encoded(VALUE_VERSION, schema.write_consumer_group_member_metadata_value(VALUE_VERSION, value))


def _current_value(member: ConsumerMember) -> bytes:
    value = schema.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=int(member.state),
        assigned_partitions=_written(member.assigned, schema.TopicPartitions),
        partitions_pending_revocation=_written(member.pending_revocation, schema.TopicPartitions),
    )
    return _encoded(VALUE_VERSION, schema.write_consumer_group_current_member_assignment_value(VALUE_VERSION, value))


def _target_value(target: Assignment) -> bytes:
    value = schema.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=_written(target, schema.TopicPartition))
    return _encoded(VALUE_VERSION, schema.write_consumer_group_target_assignment_member_value(VALUE_VERSION, value))


def _expression_value(resolved: ResolvedExpression) -> bytes:
    value = schema.ConsumerGroupRegularExpressionValue(
        topics=list(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return _encoded(VALUE_VERSION, schema.write_consumer_group_regular_expression_value(VALUE_VERSION, value))


def _written(assignment: Assignment, struct_type: Any) -> list[Any]:
    return [struct_type(topic_id=topic_id, partitions=sorted(assignment[topic_id])) for topic_id in sorted(assignment)]


def _assignment(topics: Iterable[Any]) -> Assignment:
    found: list[tuple[TopicId, int]] = []
    for topic in topics:
        topic_id = bytes(topic.topic_id)
        found.extend((topic_id, partition) for partition in topic.partitions)
    return assignment_of(found)


def _topics(value: Any) -> dict[str, SubscribedTopic]:
    found = {topic.topic_name: SubscribedTopic(bytes(topic.topic_id), topic.num_partitions) for topic in value.topics}
    return dict(sorted(found.items()))


def _with_subscription(member: ConsumerMember, value: Any) -> ConsumerMember:
    classic = None
    if value.classic_member_metadata is not None:
        classic = ClassicMetadata(
            value.classic_member_metadata.session_timeout_ms,
            tuple((each.name, bytes(each.metadata)) for each in value.classic_member_metadata.supported_protocols),
        )
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        subscribed_topic_names=tuple(sorted(set(value.subscribed_topic_names))),
        subscribed_topic_regex=value.subscribed_topic_regex,
        server_assignor=value.server_assignor,
        classic=classic,
    )


def _with_current(member: ConsumerMember, value: Any) -> ConsumerMember:
    return replace(
        member,
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=MemberState.of(value.state),
        assigned=_assignment(value.assigned_partitions),
        pending_revocation=_assignment(value.partitions_pending_revocation),
    )

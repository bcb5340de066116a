"""The records of `__consumer_offsets`, byte for byte as Apache Kafka 3.9 writes them.

Keys: int16 version, then the schema. 0 and 1 name a group's offset of a partition, 2 a classic group; the others are in
`consumer.consumer_records`. Values likewise: offsets
are written as version 3 (1 when the commit carries an expiry of its own), groups as version 3; every version up to 4
is read. A record without a value is a tombstone. Pure; the log makes batches of the records.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, TypeAlias

from ottla_broker.groups.consumer.consumer_records import RecordKey, RecordKind
from ottla_broker.groups.consumer.consumer_records import read_key as read_consumer_key
from ottla_broker.groups.decisions import GroupSnapshot, MemberSnapshot
from ottla_broker.groups.offsets import NO_EXPIRE_TIMESTAMP, CommittedOffset
from ottla_broker.internal_topics.topic_log import StateRecord
from ottla_broker.protocol.codec import Chunk
from ottla_broker.protocol.generated import group_records as schema
from ottla_broker.records.ids import TopicPartition

Buffer: TypeAlias = bytes | bytearray | memoryview

OFFSET_KEY_VERSIONS = (0, 1)
GROUP_KEY_VERSION = 2
CONSUMER_KEY_VERSIONS = frozenset(int(kind) for kind in RecordKind)
OFFSET_VALUE_VERSION = 3
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
GROUP_VALUE_VERSION = 3

_VERSION = struct.Struct(">h")


class UnknownRecordVersion(ValueError):
    """A value of a version that no Kafka up to 3.9 writes."""


class OffsetKey(NamedTuple):
    group_id: str
    partition: TopicPartition


class GroupKey(NamedTuple):
    group_id: str


class ConsumerGroupKey(NamedTuple):
    """The key of a record of a group of the consumer protocol."""

    group_id: str
    key: RecordKey


def _with_version(version: int, chunks: list[Chunk]) -> bytes:
    return b"".join([_VERSION.pack(version), *chunks])  # type: ignore[list-item]


def offset_key(group_id: str, partition: TopicPartition) -> bytes:
    key = schema.OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
    return _with_version(1, schema.write_offset_commit_key(1, key))


def offset_record(group_id: str, partition: TopicPartition, commit: CommittedOffset) -> StateRecord:
    has_expiry = commit.expire_timestamp_ms != NO_EXPIRE_TIMESTAMP
    version = OFFSET_VALUE_VERSION_WITH_EXPIRY if has_expiry else OFFSET_VALUE_VERSION
    value = schema.OffsetCommitValue(
        offset=commit.offset,
        leader_epoch=commit.leader_epoch,
        metadata=commit.metadata,
        commit_timestamp=commit.commit_timestamp_ms,
        expire_timestamp=commit.expire_timestamp_ms,
    )
    return StateRecord(
        offset_key(group_id, partition), _with_version(version, schema.write_offset_commit_value(version, value))
    )


def offset_tombstone(group_id: str, partition: TopicPartition) -> StateRecord:
    return StateRecord(offset_key(group_id, partition), None)


def group_key(group_id: str) -> bytes:
    key = schema.GroupMetadataKey(group=group_id)
    return _with_version(GROUP_KEY_VERSION, schema.write_group_metadata_key(GROUP_KEY_VERSION, key))


def group_record(snapshot: GroupSnapshot) -> StateRecord:
    value = schema.GroupMetadataValue(
        protocol_type=snapshot.protocol_type,
        generation=snapshot.generation_id,
        protocol=snapshot.protocol_name,
        leader=snapshot.leader,
        current_state_timestamp=snapshot.current_state_timestamp_ms,
        members=[
            schema.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in snapshot.members
        ],
    )
    return StateRecord(
        group_key(snapshot.group_id),
        _with_version(GROUP_VALUE_VERSION, schema.write_group_metadata_value(GROUP_VALUE_VERSION, value)),
    )


def group_tombstone(group_id: str) -> StateRecord:
    return StateRecord(group_key(group_id), None)


def read_key(key: Buffer) -> OffsetKey | GroupKey | ConsumerGroupKey | None:
    """None for a key of another kind (share groups and streams groups have theirs), which loading skips."""
    view = memoryview(key)
    (version,) = _VERSION.unpack_from(view)
    if version in OFFSET_KEY_VERSIONS:
        found = schema.read_offset_commit_key(version, view, _VERSION.size)
        return OffsetKey(found.group, TopicPartition(found.topic, found.partition))
    if version == GROUP_KEY_VERSION:
        return GroupKey(schema.read_group_metadata_key(version, view, _VERSION.size).group)
    if version in CONSUMER_KEY_VERSIONS:
        return ConsumerGroupKey(*read_consumer_key(RecordKind(version), view))
    return None


def read_offset_value(value: Buffer) -> CommittedOffset:
    """UnknownRecordVersion; DecodeError when the bytes do not fit the version."""
    view = memoryview(value)
    (version,) = _VERSION.unpack_from(view)
    if not 0 <= version <= 4:
        raise UnknownRecordVersion(f"offset value of version {version}")
    found = schema.read_offset_commit_value(version, view, _VERSION.size)
    return CommittedOffset(
        found.offset, found.leader_epoch, found.metadata, found.commit_timestamp, found.expire_timestamp
    )


def read_group_value(group_id: str, value: Buffer) -> GroupSnapshot:
    """UnknownRecordVersion; DecodeError when the bytes do not fit the version."""
    view = memoryview(value)
    (version,) = _VERSION.unpack_from(view)
    if not 0 <= version <= 4:
        raise UnknownRecordVersion(f"group value of version {version}")
    found = schema.read_group_metadata_value(version, view, _VERSION.size)
    return GroupSnapshot(
        group_id,
        found.protocol_type,
        found.generation,
        found.protocol,
        found.leader,
        found.current_state_timestamp,
        tuple(
            MemberSnapshot(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.session_timeout,
                # Version 0 knew one timeout only.
                member.session_timeout if version == 0 else member.rebalance_timeout,
                bytes(member.subscription),
                bytes(member.assignment),
            )
            for member in found.members
        ),
    )

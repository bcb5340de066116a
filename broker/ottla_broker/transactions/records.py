"""The records of `__transaction_state`, byte for byte as Apache Kafka writes them.

Key and value begin with an int16 version. Keys have version 0. Values have version 0 while transaction.version is 0,
else version 1, whose tagged fields are those of Apache Kafka 4; a transaction of version 2, or one that a producer has
kept (KIP-939), is always written as version 1, which Apache Kafka 3.9 reads too. A record without a value is a
tombstone. Pure; batches around the records are the log's matter.

Source: kafka.coordinator.transaction.TransactionLog.
"""

from __future__ import annotations

import struct
from typing import TypeAlias

from ottla_broker.internal_topics.topic_log import StateRecord
from ottla_broker.protocol.codec import Chunk, EncodeError
from ottla_broker.protocol.generated import transaction_records as schema
from ottla_broker.records.ids import TopicPartition
from ottla_broker.transactions.decisions import NO_TIMESTAMP, TransactionMetadata
from ottla_broker.transactions.states import STORED_STATES, TransactionState

Buffer: TypeAlias = bytes | bytearray | memoryview

KEY_VERSION = 0
FLEXIBLE_VALUE_VERSION = 1

_VERSION = struct.Struct(">h")
_STATES = {int(state): state for state in STORED_STATES}


class UnreadableValue(ValueError):
    """A value of a version, or with a state, that no Kafka writes."""


def fits_a_record(transactional_id: str) -> bool:
    """Whether the key can hold it: at most 32767 bytes of UTF-8. Flexible requests can carry a longer one."""
    try:
        transaction_key(transactional_id)
    except EncodeError:
        return False
    return True


def transaction_key(transactional_id: str) -> bytes:
    """Raises EncodeError for an id of more than 32767 bytes."""
    key = schema.TransactionLogKey(transactional_id=transactional_id)
    return _with_version(KEY_VERSION, schema.write_transaction_log_key(KEY_VERSION, key))


def transaction_record(
    transactional_id: str, metadata: TransactionMetadata, transaction_version: int = 0
) -> StateRecord:
    """Partitions are in order, so that the same metadata give the same bytes.

    `transaction_version`: the finalized level. What version 0 cannot hold is left out.
    """
    level = max(transaction_version, metadata.transaction_version)
    version = FLEXIBLE_VALUE_VERSION if level >= 1 or metadata.is_kept else 0
    is_empty = metadata.state is TransactionState.EMPTY
    value = schema.TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=int(metadata.state),
        # Null where there can be none, as Apache Kafka writes it.
        transaction_partitions=None if is_empty else _by_topic(metadata.partitions),
        transaction_last_update_timestamp_ms=metadata.last_update_timestamp_ms,
        transaction_start_timestamp_ms=NO_TIMESTAMP if is_empty else metadata.start_timestamp_ms,
    )
    if version >= FLEXIBLE_VALUE_VERSION:
        value.previous_producer_id = metadata.last_producer_id
        value.next_producer_id = metadata.next_producer_id
        value.client_transaction_version = metadata.transaction_version
        value.next_producer_epoch = metadata.next_producer_epoch
    return StateRecord(
        transaction_key(transactional_id),
        _with_version(version, schema.write_transaction_log_value(version, value)),
    )


def transaction_tombstone(transactional_id: str) -> StateRecord:
    return StateRecord(transaction_key(transactional_id), None)


def read_key(key: Buffer) -> str | None:
    """The transactional id; None for a key of an unknown version, which loading skips."""
    view = memoryview(key)
    (version,) = _VERSION.unpack_from(view)
    if version != KEY_VERSION:
        return None
    transactional_id: str = schema.read_transaction_log_key(version, view, _VERSION.size).transactional_id
    return transactional_id


def read_value(value: Buffer) -> TransactionMetadata:
    """
    Raises:
        UnreadableValue: the version or the state is unknown.
        DecodeError: the bytes do not fit the version.
    """
    view = memoryview(value)
    (version,) = _VERSION.unpack_from(view)
    if not 0 <= version <= FLEXIBLE_VALUE_VERSION:
        raise UnreadableValue(f"value of version {version}")
    found = schema.read_transaction_log_value(version, view, _VERSION.size)
    state = _STATES.get(found.transaction_status)
    if state is None:
        raise UnreadableValue(f"TransactionStatus {found.transaction_status}")
    return TransactionMetadata(
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        state,
        found.transaction_last_update_timestamp_ms,
        found.transaction_start_timestamp_ms,
        frozenset(
            TopicPartition(topic.topic, index)
            for topic in found.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        last_producer_id=found.previous_producer_id,
        next_producer_id=found.next_producer_id,
        transaction_version=found.client_transaction_version,
        next_producer_epoch=found.next_producer_epoch,
    )


def _by_topic(partitions: frozenset[TopicPartition]) -> list[schema.PartitionsSchema]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return [schema.PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in topics.items()]


def _with_version(version: int, chunks: list[Chunk]) -> bytes:
    return b"".join([_VERSION.pack(version), *chunks])  # type: ignore[list-item]

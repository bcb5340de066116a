"""The checks of a producer's batch by the leader, and the answer of an append. Pure.

`LogAppender.append_as_leader` checks everything in one expression and calls `refusal` only to find out what was wrong,
so the usual path costs no call. Source: LogValidator and UnifiedLog.analyzeAndValidateRecords of Apache Kafka.
"""

from __future__ import annotations

from struct import Struct

from ottla_broker.ports.disk import Buffer
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.batch import (
    CONTROL_MASK,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    PREFIX,
    PREFIX_BYTES,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    checksum,
    read_header,
)
from ottla_broker.records.compression import codec_of
from ottla_broker.records.errors import (
    BatchBeyondSegment,
    BatchTooLarge,
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    NotOneBatch,
    UnsupportedMessageFormat,
)
from ottla_broker.storage.log.config import LogConfig

UNUSUAL_IN_TRANSACTION = CONTROL_MASK | TIMESTAMP_TYPE_MASK
"""Attributes that no producer's batch may have."""

UNUSUAL_MASK = TRANSACTIONAL_MASK | UNUSUAL_IN_TRANSACTION
"""The same where the request has no transactional id."""


_ATTRIBUTES = Struct(">h")
_TIMESTAMP = Struct(">q")
_CRC = Struct(">I")


class PreparationNeeded(Exception):
    """These records cannot be appended as they are, or not before earlier ones: `replication.append_queue` takes them.

    An exception because it is rare, and so costs an ordinary append nothing.
    """


class AppendInfo:
    """The offsets of one or several appended batches. `log_append_time_ms` is -1 with CreateTime."""

    __slots__ = ("first_offset", "is_duplicate", "last_offset", "log_append_time_ms")

    def __init__(
        self, first_offset: int, last_offset: int, is_duplicate: bool = False, log_append_time_ms: int = -1
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.is_duplicate = is_duplicate
        self.log_append_time_ms = log_append_time_ms

    def __repr__(self) -> str:
        return f"AppendInfo({self.first_offset}, {self.last_offset}, is_duplicate={self.is_duplicate})"


def refusal(records: Buffer, config: LogConfig, is_transactional: bool) -> KafkaError:
    """What is wrong with a producer's records that are not one well-formed, ordinary batch, in Kafka's order.

    `is_transactional`: the request has a transactional id.
    """
    size = len(records)
    if size >= PREFIX_BYTES:
        _, length, _, magic = PREFIX.unpack_from(records)
        if magic in (0, 1):
            return UnsupportedMessageFormat(f"message format {magic} is not stored here, only {MAGIC}")
        if magic != MAGIC:
            return CorruptBatch(f"magic {magic} does not exist")
    if size < HEADER_BYTES:
        return NotOneBatch(f"{size} bytes hold no batch: a produce request carries exactly one per partition")
    header = read_header(records)
    if header.size > size:
        return NotOneBatch(f"the batch is cut off: {size} of {LOG_OVERHEAD + length} bytes")
    if header.size < size:
        rest = records[header.size :]
        if len(rest) >= PREFIX_BYTES and LOG_OVERHEAD + PREFIX.unpack_from(rest)[1] <= len(rest):
            return NotOneBatch("a produce request carries exactly one batch per partition")
        return CorruptBatch(f"{len(rest)} bytes behind the batch are no other one")
    if size > config.max_message_bytes:
        return BatchTooLarge(f"the batch has {size} bytes, max.message.bytes is {config.max_message_bytes}")
    if size > config.segment_bytes:
        return BatchBeyondSegment(f"the batch has {size} bytes, segment.bytes is {config.segment_bytes}")
    if header.record_count <= 0 or header.last_offset_delta + 1 != header.record_count:
        return InvalidRecord(
            f"the batch counts {header.record_count} records over {header.last_offset_delta + 1} offsets"
        )
    if header.is_control:
        return InvalidRecord("clients write no control batches")
    if header.has_append_time:
        return InvalidTimestamp("only the broker sets the timestamp type LogAppendTime")
    if header.max_timestamp < header.base_timestamp:
        return InvalidTimestamp(
            f"the largest timestamp {header.max_timestamp} is below the first, {header.base_timestamp}"
        )
    if header.is_transactional and not is_transactional:
        return KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "a transactional batch in a request without a transactional id",
        )
    if header.producer_id < NO_PRODUCER_ID:
        return InvalidRecord(f"producer id {header.producer_id} is negative")
    try:
        codec_of(header.attributes)
    except KafkaError as error:
        return error
    return CorruptBatch("the batch is malformed")


def check_sequence(header_sequence: int, producer_id: int) -> None:
    """Raises InvalidRecord for a batch with a producer id but without a sequence."""
    if header_sequence < 0:
        raise InvalidRecord(f"producer {producer_id} sent a batch with sequence {header_sequence}")


def stamp_append_time(records: memoryview, now_ms: int) -> memoryview:
    """Sets the timestamp type LogAppendTime (KIP-32), the largest timestamp and the checksum of a batch in place, or in
    a copy where the buffer is read-only. No record is parsed: readers take the header's timestamp."""
    if records.readonly:
        records = memoryview(bytearray(records))
    _ATTRIBUTES.pack_into(records, 21, _ATTRIBUTES.unpack_from(records, 21)[0] | TIMESTAMP_TYPE_MASK)
    _TIMESTAMP.pack_into(records, 35, now_ms)
    _CRC.pack_into(records, 17, checksum(records))
    return records

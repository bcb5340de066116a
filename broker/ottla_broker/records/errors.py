"""The errors of record batches, as exceptions with Kafka's error codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla_broker.protocol.errors import ErrorCode, KafkaError


class RecordsError(KafkaError):
    """The base of the errors of a batch. The message is for the response and the broker's log."""

    error_code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str) -> None:
        super().__init__(self.error_code, message)


class CorruptBatch(RecordsError):
    """Length, structure or checksum are wrong."""

    error_code = ErrorCode.CORRUPT_MESSAGE


class InvalidRecord(RecordsError):
    """The batch is well-formed, but may not be written."""

    error_code = ErrorCode.INVALID_RECORD


class NotOneBatch(InvalidRecord):
    """A produce request has exactly one whole batch per partition; this one has less or more."""


class UnsupportedMessageFormat(RecordsError):
    """Magic 0, 1 or one that does not exist."""

    error_code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class UnsupportedCompression(RecordsError):
    """The request version, or this broker, does not support the codec."""

    error_code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class BatchTooLarge(RecordsError):
    """The batch is larger than max.message.bytes, or than the limit of decompression."""

    error_code = ErrorCode.MESSAGE_TOO_LARGE


class BatchBeyondSegment(RecordsError):
    """The batch is larger than segment.bytes."""

    error_code = ErrorCode.RECORD_LIST_TOO_LARGE


class InvalidTimestamp(RecordsError):
    """A timestamp is outside message.timestamp.before.max.ms or message.timestamp.after.max.ms."""

    error_code = ErrorCode.INVALID_TIMESTAMP


class RecordsRejected(KafkaError):
    """Some records of a batch may not be written, so none is (KIP-467).

    `record_errors`: (position in the batch from 0, what is wrong) of each.
    """

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = tuple(record_errors)

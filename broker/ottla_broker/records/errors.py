"""What is wrong with a batch, as a closed set of exceptions that carry Kafka's error code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla_broker.protocol.errors import ErrorCode, KafkaError


class RecordsError(KafkaError):
    """Base of the errors of a batch. The message is for the response and the broker's log."""

    error_code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str) -> None:
        super().__init__(self.error_code, message)


class CorruptBatch(RecordsError):
    """Length, structure or checksum do not fit."""

    error_code = ErrorCode.CORRUPT_MESSAGE


class InvalidRecord(RecordsError):
    """Well-formed, but not what may be written."""

    error_code = ErrorCode.INVALID_RECORD


class NotOneBatch(InvalidRecord):
    """A produce request carries exactly one whole batch per partition, this one less or more."""


class UnsupportedMessageFormat(RecordsError):
    """Magic 0, 1 or one that does not exist."""

    error_code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class UnsupportedCompression(RecordsError):
    """A codec that this request version, or this broker, does not know."""

    error_code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class BatchTooLarge(RecordsError):
    """Larger than max.message.bytes, or than may be decompressed."""

    error_code = ErrorCode.MESSAGE_TOO_LARGE


class BatchBeyondSegment(RecordsError):
    """Larger than segment.bytes."""

    error_code = ErrorCode.RECORD_LIST_TOO_LARGE


class InvalidTimestamp(RecordsError):
    """Outside message.timestamp.before.max.ms or message.timestamp.after.max.ms."""

    error_code = ErrorCode.INVALID_TIMESTAMP


class RecordsRejected(KafkaError):
    """Some records of a batch may not be written, and so none is (KIP-467).

    `record_errors`: (position in the batch from 0, what is wrong) of each; the code is that of the worst.
    """

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = tuple(record_errors)

"""The jobs of the Workers port that decode records: preparing a producer's batch, down-converting for old consumers,
searching by timestamp.

Arguments and results are plain values. A KafkaError comes back as a value too, since our exceptions cannot be sent
between processes.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from ottla_broker.ports.disk import Disk
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.conversion import Converted, down_convert
from ottla_broker.records.errors import RecordsRejected
from ottla_broker.records.preparation import RecordRules, prepare
from ottla_broker.records.timestamp_search import first_record_at

PREPARE_JOB = "prepare-records"
CONVERT_JOB = "down-convert"
SEARCH_JOB = "search-by-timestamp"

LITTLE_BYTES = 8 * 1024
LITTLE_RECORDS = 64
LITTLE_DECOMPRESSED_BYTES = 64 * 1024
"""Up to here a job takes less than a millisecond, and sending it to another process would cost the loop as much."""


class Refusal(NamedTuple):
    """A KafkaError as plain values."""

    code: int
    message: str
    record_errors: tuple[tuple[int, str], ...] = ()

    @classmethod
    def of(cls, error: KafkaError) -> Refusal:
        return cls(int(error.code), error.message, getattr(error, "record_errors", ()))

    def error(self) -> KafkaError:
        code = ErrorCode.of(self.code)
        if self.record_errors:
            return RecordsRejected(code, self.message, self.record_errors)
        return KafkaError(code, self.message)


JobResult: TypeAlias = "tuple[bool, Any]"
"""(True, the result) or (False, the fields of a Refusal)."""


async def prepare_records(_disk: Disk, records: bytes, rules: tuple[Any, ...], now_ms: int) -> JobResult:
    """`records.preparation.prepare`; `rules` are the fields of RecordRules."""
    try:
        return True, bytes(prepare(records, RecordRules(*rules), now_ms))
    except KafkaError as error:
        return False, tuple(Refusal.of(error))


async def convert_records(
    _disk: Disk, data: bytes, magic: int, first_offset: int, max_bytes: int, max_decompressed: int
) -> JobResult:
    """`records.conversion.down_convert`."""
    try:
        return True, tuple(down_convert(data, magic, first_offset, max_bytes, max_decompressed))
    except KafkaError as error:
        return False, tuple(Refusal.of(error))


async def search_records(
    _disk: Disk, batch: bytes, timestamp: int, first_offset: int, upper_offset: int, max_bytes: int
) -> JobResult:
    """`records.timestamp_search.first_record_at`."""
    try:
        return True, first_record_at(batch, timestamp, first_offset, upper_offset, max_bytes)
    except KafkaError as error:
        return False, tuple(Refusal.of(error))


def searched_of(result: JobResult) -> tuple[int, int] | None:
    """The result of `search_records`; raises its KafkaError."""
    is_done, value = result
    if not is_done:
        raise Refusal(*value).error()
    return None if value is None else (value[0], value[1])


def converted_of(result: JobResult) -> Converted:
    """The result of `convert_records`; raises its KafkaError."""
    is_done, value = result
    if not is_done:
        raise Refusal(*value).error()
    return Converted(*value)


def prepared_of(result: JobResult) -> bytes | KafkaError:
    """The result of `prepare_records`."""
    is_done, value = result
    if not is_done:
        return Refusal(*value).error()
    records: bytes = value
    return records

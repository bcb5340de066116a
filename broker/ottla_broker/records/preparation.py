"""Prepares a producer's batch for the append where its header is not enough: checks records, converts, recompresses.

    formats 0 and 1           every message is checked and becomes a record of one batch of format 2
    compression.type          the records are decompressed and compressed again, not decoded
    cleanup.policy=compact    every record needs a key
    message.timestamp.*       every record's timestamp must be within the bounds
    ottla.validate.records    all checks of Apache Kafka

One record that may not be written rejects the batch; the error has every such record (KIP-467).

Pure; `storage.log.appender` decides when it is needed, and it runs on the event loop or in a worker process. Not here:
the timestamps of LogAppendTime, which the append sets in the header. Source: LogValidator of Apache Kafka.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla_broker.ports.disk import Buffer
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records import legacy
from ottla_broker.records.batch import (
    CODEC_MASK,
    CRC_START,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    checksum,
    read_header,
)
from ottla_broker.records.compression import Codec, codec_of, compress, decompress
from ottla_broker.records.errors import BatchTooLarge, CorruptBatch, InvalidRecord, RecordsRejected
from ottla_broker.records.record import MAX_DECOMPRESSED_BYTES, Record, build_batch, iterate_records
from ottla_broker.records.varint import decode_varint

NO_BOUND = 2**63 - 1

_FIRST_SHOWN = 3


class RecordRules(NamedTuple):
    """The checks and conversions of one topic's records, as plain values, which can be sent to a worker process.

    `codec`: compression.type, None for producer. The bounds are in ms, NO_BOUND for none; they apply to CreateTime
    only. `max_message_bytes` applies to single messages of formats 0 and 1; `max_decompressed_bytes` is
    ottla.batch.max.decompressed.bytes.
    """

    topic: str = ""
    codec: int | None = None
    gzip_level: int | None = None
    lz4_level: int | None = None
    zstd_level: int | None = None
    needs_keys: bool = False
    validates: bool = False
    is_append_time: bool = False
    before_max_ms: int = NO_BOUND
    after_max_ms: int = NO_BOUND
    max_message_bytes: int = 2**31 - 1
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES

    def level(self, codec: Codec) -> int | None:
        """The level for records that this broker compresses, None for the codec's default."""
        if self.codec is None or codec is not Codec(self.codec):
            return None
        return {Codec.GZIP: self.gzip_level, Codec.LZ4: self.lz4_level, Codec.ZSTD: self.zstd_level}.get(codec)

    @property
    def has_record_rules(self) -> bool:
        """Whether single records of format 2 must be checked."""
        has_bounds = self.before_max_ms != NO_BOUND or self.after_max_ms != NO_BOUND
        return self.needs_keys or self.validates or (has_bounds and not self.is_append_time)


def prepare(records: Buffer, rules: RecordRules, now_ms: int) -> Buffer:
    """One batch of format 2 that may be appended, made from a producer's records; the same buffer without changes.

    Args:
        records: a batch of format 2, whose header and checksum are checked, or a message set of format 0 or 1.
        rules: of the topic.
        now_ms: the time in ms.

    Raises RecordsRejected (INVALID_RECORD or INVALID_TIMESTAMP with the records' errors), CorruptBatch, InvalidRecord,
    UnsupportedCompression, BatchTooLarge.
    """
    if len(records) > 16 and records[16] < MAGIC:
        return _up_converted(records, rules, now_ms)
    header = read_header(records)
    source = codec_of(header.attributes)
    target = source if rules.codec is None else Codec(rules.codec)
    content: Buffer | None = None
    if source is not target or (rules.has_record_rules and source is not Codec.NONE):
        content = _decompressed(records, source, rules.max_decompressed_bytes)
    if rules.has_record_rules:
        if rules.validates:
            _check_everything(records, header, content, rules, now_ms)
        else:
            plain = memoryview(records)[HEADER_BYTES:] if content is None else content
            _check_summaries(plain, header, rules, now_ms)
    if source is target or content is None:
        return records
    return _with_payload(records, header, target, compress(target, content, rules.level(target)))


def _decompressed(records: Buffer, codec: Codec, max_bytes: int) -> Buffer:
    payload = memoryview(records)[HEADER_BYTES:]
    if codec is Codec.NONE:
        return payload
    try:
        return decompress(codec, payload, max_bytes)
    except CorruptBatch as error:
        # The checksum fits, so the client itself sent it so: not an error to try again after.
        raise InvalidRecord(str(error)) from error


def _with_payload(records: Buffer, header: BatchHeader, codec: Codec, payload: bytes) -> bytearray:
    batch = bytearray(memoryview(records)[:HEADER_BYTES])
    batch += payload
    batch[8:12] = (len(batch) - LOG_OVERHEAD).to_bytes(4, "big")
    batch[21:23] = ((header.attributes & ~CODEC_MASK & 0xFFFF) | codec).to_bytes(2, "big")
    batch[17:CRC_START] = checksum(batch).to_bytes(4, "big")
    return batch


# -- single records ---------------------------------------------------------------------------------------------------


def _check_summaries(data: Buffer, header: BatchHeader, rules: RecordRules, now_ms: int) -> None:
    """Checks the key and timestamp of every record, reading it up to the length of its key only."""
    problems = _Problems(rules, now_ms)
    position = 0
    try:
        for index in range(header.record_count):
            length, position = decode_varint(data, position)
            end = position + length
            if length < 0 or end > len(data):
                raise CorruptBatch(f"a record of {length} bytes does not fit the batch")
            delta, position = decode_varint(data, position + 1)
            _, position = decode_varint(data, position)
            key_length, position = decode_varint(data, position)
            problems.check(index, header.base_timestamp + delta, key_length >= 0)
            position = end
    except CorruptBatch as error:
        raise InvalidRecord(str(error)) from error
    problems.raise_any()


def _check_everything(
    records: Buffer, header: BatchHeader, content: Buffer | None, rules: RecordRules, now_ms: int
) -> None:
    """The checks of ottla.validate.records=always: every field of every record, and consecutive offsets."""
    problems = _Problems(rules, now_ms)
    try:
        whole = records if content is None else _with_payload(records, header, Codec.NONE, bytes(content))
        for index, record in enumerate(iterate_records(whole, rules.max_decompressed_bytes)):
            if record.offset - header.base_offset != index:
                problems.add(index, f"offset {record.offset - header.base_offset} in its batch, expected {index}")
            else:
                problems.check(index, record.timestamp, record.key is not None)
    except CorruptBatch as error:
        raise InvalidRecord(str(error)) from error
    problems.raise_any()


class _Problems:
    """Collects the records that may not be written, in order."""

    __slots__ = ("_codes", "_earliest", "_found", "_latest", "_rules")

    def __init__(self, rules: RecordRules, now_ms: int) -> None:
        self._rules = rules
        self._earliest = now_ms - rules.before_max_ms
        self._latest = now_ms + rules.after_max_ms
        self._found: list[tuple[int, str]] = []
        self._codes: list[ErrorCode] = []

    def add(self, index: int, message: str, code: ErrorCode = ErrorCode.INVALID_RECORD) -> None:
        self._found.append((index, message))
        self._codes.append(code)

    def check(self, index: int, timestamp: int, has_key: bool) -> None:
        """Checks one record and adds at most one problem, a missing key first."""
        if self._rules.needs_keys and not has_key:
            self.add(index, f"Compacted topic cannot accept message without key in topic {self._rules.topic}.")
        elif (
            not self._earliest <= timestamp <= self._latest
            and timestamp != NO_TIMESTAMP
            and not self._rules.is_append_time
        ):
            message = f"Timestamp {timestamp} is not within [{self._earliest}, {self._latest}]"
            self.add(index, message, ErrorCode.INVALID_TIMESTAMP)

    def raise_any(self, *, has_code_of_first: bool = False) -> None:
        """Raises RecordsRejected when there is a problem: INVALID_TIMESTAMP when any record has that one, or the code
        of the first problem."""
        if not self._found:
            return
        has_bad_timestamp = ErrorCode.INVALID_TIMESTAMP in (self._codes[:1] if has_code_of_first else self._codes)
        code = ErrorCode.INVALID_TIMESTAMP if has_bad_timestamp else ErrorCode.INVALID_RECORD
        shown = "; ".join(f"record {index}: {message}" for index, message in self._found[:_FIRST_SHOWN])
        raise RecordsRejected(code, f"{len(self._found)} records were rejected, first {shown}", self._found)


# -- formats 0 and 1 --------------------------------------------------------------------------------------------------


def _up_converted(message_set: Buffer, rules: RecordRules, now_ms: int) -> bytearray:
    """A message set as one batch of format 2. The append assigns new offsets, so those inside are not checked: some old
    clients set them wrong."""
    problems = _Problems(rules, now_ms)
    found: list[Record] = []
    codec = Codec.NONE
    magic: int | None = None
    for entry in legacy.entries(message_set):
        if codec is not Codec.NONE:
            raise InvalidRecord("more than one compressed message in a message set")
        if len(entry) > rules.max_message_bytes:
            raise BatchTooLarge(f"a message has {len(entry)} bytes, max.message.bytes is {rules.max_message_bytes}")
        message = legacy.read_message(entry)
        if not legacy.is_entry_intact(entry):
            raise CorruptBatch("the checksum of a message does not fit")
        if magic is not None and message.magic != magic:
            raise InvalidRecord(f"a message of format {message.magic} after one of format {magic}")
        magic = message.magic
        codec = codec_of(message.attributes)
        if codec is not Codec.NONE and found:
            raise InvalidRecord("a compressed message among others in a message set")
        inside = (
            legacy.unwrap(message, rules.max_decompressed_bytes, check_inside=True)
            if codec is not Codec.NONE
            else (message,)
        )
        for one in inside:
            if message.has_append_time or one.has_append_time:
                raise RecordsRejected(
                    ErrorCode.INVALID_TIMESTAMP,
                    "only the broker sets the timestamp type LogAppendTime",
                    [(len(found), "timestamp type LogAppendTime")],
                )
            problems.check(len(found), one.timestamp, one.key is not None)
            found.append(Record(len(found), one.timestamp, one.key, one.value))
    if not found:
        raise CorruptBatch("the message set has no whole message")
    # Apache Kafka checks a compressed set as one batch, but every uncompressed message as a batch of its own.
    problems.raise_any(has_code_of_first=codec is Codec.NONE)
    if rules.codec is not None:
        codec = Codec(rules.codec)
    return build_batch(found, codec=codec, level=rules.level(codec))

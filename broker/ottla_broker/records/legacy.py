"""Reads, checks and writes messages of formats 0 and 1, the log entries of releases before 0.11. No I/O.

A message set is a sequence of entries, big endian:

    offset i64 @0 · size i32 @8 (bytes after this field) · crc u32 @12 (CRC-32 of everything from @16) · magic i8 @16
    attributes i8 @17 (bits 0-2 codec, bit 3 timestamp type, format 1 only) · timestamp i64 @18 (format 1 only)
    key length i32 (-1 null) · key · value length i32 · value

A compressed set is one entry, the wrapper, whose value is the compressed set. Its offset is that of the last message
inside. Inside, format 0 has absolute offsets and format 1 relative ones (KIP-31). Worked example: messages 40, 41 and
43 of format 1 are a wrapper with offset 43 around offsets 0, 1 and 3: the first is 43 - 3 + 0.

A log treats an entry as a batch of one offset, the entry's (`read_entry_header`). `formats.py` reads entries of any
format.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from ottla_broker.ports.disk import Buffer
from ottla_broker.records.batch import (
    CODEC_MASK,
    LOG_OVERHEAD,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
)
from ottla_broker.records.compression import (
    Codec,
    codec_of,
    compress,
    decompress,
    old_kafka_lz4,
    repaired_lz4,
)
from ottla_broker.records.errors import CorruptBatch, InvalidRecord, UnsupportedCompression
from ottla_broker.records.record import MAX_DECOMPRESSED_BYTES, Record

MAGIC_0 = 0
MAGIC_1 = 1

_START = Struct(">qiIbb")
_START_V1 = Struct(">qiIbbq")
_ENTRY = Struct(">qi")
_LENGTH = Struct(">i")
_CRC_START = 16
_MIN_SIZE = {MAGIC_0: 14, MAGIC_1: 22}
"""Smallest size of a message: without key and value."""

MIN_ENTRY_BYTES = LOG_OVERHEAD + _MIN_SIZE[MAGIC_0]
"""No log entry of any format is shorter than this, 26."""

UNKNOWN_COUNT = -1
"""Record count of a wrapper, which is unknown without decompression."""


class LegacyMessage(NamedTuple):
    """One entry: `offset` is relative inside a wrapper of format 1, `timestamp` is -1 in format 0."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def has_append_time(self) -> bool:
        return bool(self.attributes & TIMESTAMP_TYPE_MASK)


def read_entry_header(buffer: Buffer, position: int = 0) -> BatchHeader | None:
    """The entry at `position` as the header of a batch of one offset; None when it is not of format 0 or 1.

    Does not check the checksum. `record_count` is 1, for a wrapper UNKNOWN_COUNT.
    """
    left = len(buffer) - position
    if left < MIN_ENTRY_BYTES:
        return None
    offset, size, crc, magic, attributes = _START.unpack_from(buffer, position)
    if magic not in (MAGIC_0, MAGIC_1) or size < _MIN_SIZE[magic] or offset < 0:
        return None
    timestamp = NO_TIMESTAMP
    if magic == MAGIC_1:
        if left < _START_V1.size:
            return None
        timestamp = _START_V1.unpack_from(buffer, position)[5]
        attributes &= CODEC_MASK | TIMESTAMP_TYPE_MASK
    else:
        attributes &= CODEC_MASK
    return BatchHeader(
        offset,
        size,
        NO_LEADER_EPOCH,
        magic,
        crc,
        attributes,
        0,
        timestamp,
        timestamp,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        UNKNOWN_COUNT if attributes & CODEC_MASK else 1,
    )


def is_entry_intact(entry: Buffer) -> bool:
    """Whether the checksum of this whole entry is right; a wrapper's covers the messages inside."""
    view = memoryview(entry)
    return crc32(view[_CRC_START:]) == int.from_bytes(view[12:16], "big")


def entries(message_set: Buffer) -> Iterator[memoryview]:
    """Every whole entry, in order, without a partial one at the end, which old clients and fetch responses may have.

    Raises CorruptBatch at an impossible entry.
    """
    view = memoryview(message_set)
    position = 0
    while len(view) - position >= LOG_OVERHEAD:
        size = _ENTRY.unpack_from(view, position)[1]
        if size < _MIN_SIZE[MAGIC_0]:
            raise CorruptBatch(f"a message of {size} bytes is below the smallest, {_MIN_SIZE[MAGIC_0]}")
        after = position + LOG_OVERHEAD + size
        if after > len(view):
            return
        yield view[position:after]
        position = after


def read_message(entry: Buffer) -> LegacyMessage:
    """Reads one whole entry. Raises CorruptBatch when its fields do not fit, or the magic is neither 0 nor 1."""
    offset, size, _, magic, attributes = _START.unpack_from(entry)
    if magic not in (MAGIC_0, MAGIC_1):
        raise CorruptBatch(f"magic {magic} is not one of a message")
    if size < _MIN_SIZE[magic]:
        raise CorruptBatch(f"a message of {size} bytes is below the smallest of format {magic}, {_MIN_SIZE[magic]}")
    timestamp = NO_TIMESTAMP
    position = _START.size
    if magic == MAGIC_1:
        timestamp = _START_V1.unpack_from(entry)[5]
        position = _START_V1.size
    else:
        attributes &= ~TIMESTAMP_TYPE_MASK
    key, position = _field(entry, position)
    value, position = _field(entry, position)
    if position != len(entry):
        raise CorruptBatch(f"{len(entry) - position} bytes follow the value of a message")
    return LegacyMessage(offset, magic, attributes, timestamp, key, value)


def _field(entry: Buffer, position: int) -> tuple[bytes | None, int]:
    if len(entry) - position < _LENGTH.size:
        raise CorruptBatch("a message ends inside the length of a field")
    length = _LENGTH.unpack_from(entry, position)[0]
    position += _LENGTH.size
    if length < 0:
        return None, position
    after = position + length
    if after > len(entry):
        raise CorruptBatch(f"a field of {length} bytes does not fit its message")
    return bytes(entry[position:after]), after


def unwrap(
    wrapper: LegacyMessage, max_bytes: int = MAX_DECOMPRESSED_BYTES, *, check_inside: bool = False
) -> list[LegacyMessage]:
    """The messages inside a wrapper, with the offsets that are stored there.

    Raises:
        CorruptBatch: it has no messages, or, with `check_inside`, one of their checksums is wrong.
        InvalidRecord: the wrapper has no value, another format than the messages inside, or another wrapper inside.
        UnsupportedCompression: for zstd, which exists only in format 2.
        BatchTooLarge: above `max_bytes`.
    """
    codec = codec_of(wrapper.attributes)
    if codec is Codec.ZSTD:
        raise UnsupportedCompression(f"zstd does not exist in message format {wrapper.magic}")
    if wrapper.value is None:
        raise InvalidRecord("a compressed message has no value")
    data = wrapper.value
    if codec is Codec.LZ4 and wrapper.magic == MAGIC_0:
        data = repaired_lz4(data)
    inside: list[LegacyMessage] = []
    total = 0
    content = decompress(codec, data, max_bytes)
    for entry in entries(content):
        total += len(entry)
        if check_inside and not is_entry_intact(entry):
            raise CorruptBatch("the checksum of a message inside a compressed one does not fit")
        message = read_message(entry)
        if message.magic != wrapper.magic:
            raise InvalidRecord(f"a message of format {message.magic} inside one of format {wrapper.magic}")
        if message.codec:
            raise InvalidRecord("a compressed message inside a compressed one")
        inside.append(message)
    if not inside or total != len(content):
        raise CorruptBatch("a compressed message holds no whole messages")
    return inside


def decode_entry(entry: Buffer, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> list[Record]:
    """The records of one whole entry, a single message or a wrapper, with absolute offsets. Raises as `unwrap`."""
    message = read_message(entry)
    if not message.codec:
        return [Record(message.offset, message.timestamp, message.key, message.value)]
    inside = unwrap(message, max_bytes)
    base = message.offset - inside[-1].offset if message.magic == MAGIC_1 else 0
    append_time = message.timestamp if message.has_append_time else None
    return [
        Record(base + one.offset, one.timestamp if append_time is None else append_time, one.key, one.value)
        for one in inside
    ]


def build_message_set(
    records: Sequence[Record],
    magic: int,
    *,
    codec: Codec = Codec.NONE,
    has_append_time: bool = False,
    level: int | None = None,
) -> bytes:
    """Writes records as a message set of format 0 or 1: one entry each, or one wrapper around all. Drops headers.

    `has_append_time`: their timestamps are the broker's. Raises ValueError without records, UnsupportedCompression for
    zstd.
    """
    if not records:
        raise ValueError("a message set needs at least one record")
    if codec is Codec.ZSTD:
        raise UnsupportedCompression(f"zstd does not exist in message format {magic}")
    attributes = TIMESTAMP_TYPE_MASK if has_append_time and magic == MAGIC_1 else 0
    if codec is Codec.NONE:
        return b"".join(
            encode_message(magic, record.offset, record.timestamp, attributes, record.key, record.value)
            for record in records
        )
    base = records[0].offset if magic == MAGIC_1 else 0
    content = b"".join(
        encode_message(magic, record.offset - base, record.timestamp, attributes, record.key, record.value)
        for record in records
    )
    value = compress(codec, content, level)
    if codec is Codec.LZ4 and magic == MAGIC_0:
        value = old_kafka_lz4(value)
    largest = max(record.timestamp for record in records)
    return encode_message(magic, records[-1].offset, largest, attributes | codec, None, value)


def encode_message(
    magic: int, offset: int, timestamp: int, attributes: int, key: bytes | None, value: bytes | None
) -> bytes:
    """One entry of format 0 (the timestamp is dropped) or 1."""
    parts = [
        bytes((magic, attributes)),
        timestamp.to_bytes(8, "big", signed=True) if magic == MAGIC_1 else b"",
        _LENGTH.pack(-1 if key is None else len(key)),
        key or b"",
        _LENGTH.pack(-1 if value is None else len(value)),
        value or b"",
    ]
    body = b"".join(parts)
    return _ENTRY.pack(offset, 4 + len(body)) + crc32(body).to_bytes(4, "big") + body

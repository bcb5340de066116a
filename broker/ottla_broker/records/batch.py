"""The record batch of message format 2: its 61-byte header, its checksum, and a walk over several batches (KIP-98).

Pure functions over buffers. Not here: the records inside (`record.py`), whether a batch may be appended
(`storage.log.append_checks`). Layout, big endian:

    base offset i64 @0 · length i32 @8 (bytes after this field) · partition leader epoch i32 @12 · magic i8 @16
    crc u32 @17 (CRC-32C of everything from @21) · attributes i16 @21 · last offset delta i32 @23
    base timestamp i64 @27 · max timestamp i64 @35 · producer id i64 @43 · producer epoch i16 @51
    base sequence i32 @53 · record count i32 @57 · records @61

The checksum leaves out base offset and leader epoch, so a leader patches both in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from ottla_broker.ports.disk import Buffer
from ottla_broker.records.errors import CorruptBatch, UnsupportedMessageFormat

HEADER = Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
"""61."""

LOG_OVERHEAD = 12
"""Bytes that the length does not count: a batch has `LOG_OVERHEAD + length` bytes."""

PREFIX = Struct(">qiib")
"""Base offset, length, leader epoch, magic: what a walk needs."""
PREFIX_BYTES = PREFIX.size

PATCH = Struct(">qii")
"""Base offset, length, leader epoch: what a leader writes over the producer's."""

CRC_START = 21
"""The first byte that the checksum covers."""

MIN_LENGTH = HEADER_BYTES - LOG_OVERHEAD
"""The smallest length of a batch of format 2: a header without records."""

MAGIC = 2
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1

CODEC_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
"""Set: the broker's append time, unset: the producer's create time (KIP-32)."""
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40
"""The base timestamp is the time from which tombstones may be deleted (KIP-534)."""

MAX_SEQUENCE = 0x7FFFFFFF


class BatchHeader(NamedTuple):
    """The header's fields in wire order."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LOG_OVERHEAD + self.length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset behind the batch; not derived from the record count, since compaction leaves gaps."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, wrapping from 2^31-1 to 0; -1 without a sequence."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_MASK)

    @property
    def has_append_time(self) -> bool:
        return bool(self.attributes & TIMESTAMP_TYPE_MASK)


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`; does not check the checksum.

    Raises CorruptBatch when the buffer or the length is too short, UnsupportedMessageFormat when the magic is not 2.
    """
    if len(buffer) - position < HEADER_BYTES:
        if len(buffer) - position >= PREFIX_BYTES:
            magic = PREFIX.unpack_from(buffer, position)[3]
            if magic != MAGIC:
                raise UnsupportedMessageFormat(f"message format {magic} is not supported, only {MAGIC}")
        raise CorruptBatch(f"{len(buffer) - position} bytes are too few for a batch header of {HEADER_BYTES}")
    header = BatchHeader._make(HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise UnsupportedMessageFormat(f"message format {header.magic} is not supported, only {MAGIC}")
    if header.length < MIN_LENGTH:
        raise CorruptBatch(f"a batch length of {header.length} is below the smallest, {MIN_LENGTH}")
    return header


def checksum(batch: Buffer) -> int:
    """The CRC-32C that belongs into the header of this whole batch."""
    value: int = crc32c(memoryview(batch)[CRC_START:])
    return value


def is_intact(batch: Buffer) -> bool:
    """Whether the checksum of this whole batch is right."""
    stored: int = int.from_bytes(memoryview(batch)[17:21], "big")
    return checksum(batch) == stored


def batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every whole batch, without a partial one at the end, which fetch responses may have.

    Raises CorruptBatch or UnsupportedMessageFormat at an impossible header.
    """
    position = 0
    end = len(buffer)
    while end - position >= HEADER_BYTES:
        header = read_header(buffer, position)
        after = position + LOG_OVERHEAD + header.length
        if after > end:
            return
        yield position, header
        position = after

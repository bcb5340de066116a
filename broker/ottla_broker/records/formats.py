"""Reads log entries of any message format.

Since Apache Kafka 3.0 a leader stores only format 2, but a directory that Kafka wrote may have messages of formats 0
and 1 as long as retention keeps them. Each function here handles all three formats; `batch` and `record` handle format
2, `legacy` the older ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla_broker.ports.disk import Buffer
from ottla_broker.records import legacy
from ottla_broker.records.batch import (
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    MIN_LENGTH,
    BatchHeader,
    is_intact,
)
from ottla_broker.records.errors import CorruptBatch, UnsupportedMessageFormat
from ottla_broker.records.legacy import MIN_ENTRY_BYTES
from ottla_broker.records.record import MAX_DECOMPRESSED_BYTES, Record, iterate_records

MAGIC_OFFSET = 16
"""The position of the magic, the same in every format."""


def header_at(buffer: Buffer, position: int) -> BatchHeader | None:
    """The header at `position`; None for too few bytes, a preallocated tail of zeros or an unknown format."""
    if len(buffer) - position >= HEADER_BYTES:
        header = BatchHeader._make(HEADER.unpack_from(buffer, position))
        if header.magic == MAGIC:
            if header.length < MIN_LENGTH or header.last_offset_delta < 0 or header.base_offset < 0:
                return None
            return header
    return legacy.read_entry_header(buffer, position)


def batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every whole batch or entry, without a partial one at the end.

    Raises CorruptBatch at an impossible header, UnsupportedMessageFormat for a magic above 2.
    """
    position = 0
    end = len(buffer)
    while end - position >= MIN_ENTRY_BYTES:
        header = header_at(buffer, position)
        if header is None:
            magic = buffer[position + MAGIC_OFFSET]
            if magic > MAGIC:
                raise UnsupportedMessageFormat(f"message format {magic} does not exist")
            after = position + LOG_OVERHEAD + int.from_bytes(buffer[position + 8 : position + 12], "big", signed=True)
            if after > end:
                return  # an incomplete header
            raise CorruptBatch(f"no batch begins at byte {position}")
        after = position + LOG_OVERHEAD + header.length
        if after > end:
            return
        yield position, header
        position = after


def is_batch_intact(batch: Buffer, magic: int) -> bool:
    """Whether the checksum of this whole batch or entry is right: CRC-32C for format 2, CRC-32 for the older ones."""
    return is_intact(batch) if magic == MAGIC else legacy.is_entry_intact(batch)


def decode_batch(batch: Buffer, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> list[Record]:
    """The records of one whole batch or entry, with absolute offsets; does not check the checksum.

    Raises CorruptBatch, InvalidRecord, UnsupportedCompression, BatchTooLarge (above `max_bytes` decompressed).
    """
    return list(iterate_batch(batch, max_bytes))


def iterate_batch(batch: Buffer, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
    """As `decode_batch`, one record at a time; those of format 2 are built when they are asked for."""
    if len(batch) > MAGIC_OFFSET and batch[MAGIC_OFFSET] < MAGIC:
        return iter(legacy.decode_entry(batch, max_bytes))
    return iterate_records(batch, max_bytes)

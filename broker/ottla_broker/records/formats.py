"""Log entries of any message format, for whoever reads a log that may be older than format 2.

Since release 3.0 a leader stores nothing but format 2, but a directory that Apache Kafka wrote may hold messages of
formats 0 and 1 for as long as retention keeps them. Here one function each stands for all three; `batch`, `record` and
`legacy` are for whoever knows.
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
from ottla_broker.records.record import MAX_RECORDS_BYTES, Record, decode_records

MAGIC_OFFSET = 16
"""Where every format has its magic."""


def header_at(buffer: Buffer, position: int) -> BatchHeader | None:
    """The header there; None when there is none: too few bytes, a preallocated tail of zeros, an unknown format."""
    if len(buffer) - position >= HEADER_BYTES:
        header = BatchHeader._make(HEADER.unpack_from(buffer, position))
        if header.magic == MAGIC:
            if header.length < MIN_LENGTH or header.last_offset_delta < 0 or header.base_offset < 0:
                return None
            return header
    return legacy.read_entry_header(buffer, position)


def batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every whole batch or entry; a partial one at the end is left out.

    CorruptBatch at a header that cannot be one, UnsupportedMessageFormat for a magic above 2.
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
                return  # a header of which only a part is there
            raise CorruptBatch(f"no batch begins at byte {position}")
        after = position + LOG_OVERHEAD + header.length
        if after > end:
            return
        yield position, header
        position = after


def is_batch_intact(batch: Buffer, magic: int) -> bool:
    """Whether the checksum of this one whole batch or entry fits: CRC-32C for format 2, CRC-32 for the older ones."""
    return is_intact(batch) if magic == MAGIC else legacy.is_entry_intact(batch)


def decode_batch(batch: Buffer, max_bytes: int = MAX_RECORDS_BYTES) -> list[Record]:
    """The records of one whole batch or entry, with absolute offsets; the checksum is not looked at.

    CorruptBatch, InvalidRecord, UnsupportedCompression, BatchTooLarge (beyond `max_bytes` decompressed).
    """
    if len(batch) > MAGIC_OFFSET and batch[MAGIC_OFFSET] < MAGIC:
        return legacy.decode_entry(batch, max_bytes)
    return decode_records(batch, max_bytes)

"""Finds the first record of a batch at or after a timestamp, for ListOffsets, without building the records.

Reads the records in their order and stops at the one that is found. A batch is decompressed whole, up to a limit.

Source: FileRecords.searchForTimestamp of Apache Kafka (KIP-79).
"""

from __future__ import annotations

from ottla_broker.ports.disk import Buffer
from ottla_broker.records.batch import HEADER_BYTES, MAGIC, BatchHeader, read_header
from ottla_broker.records.compression import Codec, codec_of, decompress
from ottla_broker.records.errors import CorruptBatch
from ottla_broker.records.formats import MAGIC_OFFSET
from ottla_broker.records.legacy import decode_entry
from ottla_broker.records.varint import decode_varint


def first_record_at(
    batch: Buffer, timestamp: int, first_offset: int, upper_offset: int, max_bytes: int
) -> tuple[int, int] | None:
    """(timestamp in ms, offset) of the first record at or after `timestamp`; None when there is none.

    Args:
        batch: one whole batch or entry, of any format.
        timestamp: in ms.
        first_offset: records below it do not count.
        upper_offset: nor do those from here on.
        max_bytes: the limit of decompressed records.

    Raises:
        CorruptBatch, InvalidRecord: the records before the one that is found do not fit the header.
        UnsupportedCompression: there is no such codec.
        BatchTooLarge: the records decompress to more than `max_bytes`.
    """
    if len(batch) > MAGIC_OFFSET and batch[MAGIC_OFFSET] < MAGIC:
        for record in decode_entry(batch, max_bytes):
            if record.timestamp >= timestamp and first_offset <= record.offset < upper_offset:
                return record.timestamp, record.offset
        return None
    header = read_header(batch)
    if len(batch) < header.size:
        raise CorruptBatch(f"the batch is cut off at {len(batch)} of {header.size} bytes")
    payload = memoryview(batch)[HEADER_BYTES : header.size]
    codec = codec_of(header.attributes)
    data = payload if codec is Codec.NONE else decompress(codec, payload, max_bytes)
    return _search(data, header, timestamp, first_offset, upper_offset)


def _search(
    data: Buffer, header: BatchHeader, timestamp: int, first_offset: int, upper_offset: int
) -> tuple[int, int] | None:
    has_append_time = header.has_append_time
    found = header.max_timestamp  # of every record, where the broker sets the timestamps
    if has_append_time and found < timestamp:
        return None
    position = 0
    for _ in range(header.record_count):
        length, position = decode_varint(data, position)
        end = position + length
        if length < 0 or end > len(data):
            raise CorruptBatch(f"a record of {length} bytes does not fit the batch")
        delta, position = decode_varint(data, position + 1)  # after the attributes, of which none are in use
        if not has_append_time:
            found = header.base_timestamp + delta
        if found >= timestamp:
            delta, position = decode_varint(data, position)
            offset = header.base_offset + delta
            if offset >= upper_offset:
                return None
            if offset >= first_offset:
                return found, offset
        position = end
    return None

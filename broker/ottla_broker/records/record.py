"""Decodes the records of a batch, and builds batches, which the broker writes itself.

A record of format 2: varint length, int8 attributes, varlong timestamp delta, varint offset delta, varint key length
(-1 null), key, varint value length, value, varint header count, then per header varint key length, key, varint value
length, value. A producer's batches are usually stored as received, without this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ottla_broker.ports.disk import Buffer
from ottla_broker.records.batch import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    checksum,
    read_header,
)
from ottla_broker.records.compression import Codec, codec_of, compress, decompress
from ottla_broker.records.errors import CorruptBatch
from ottla_broker.records.varint import decode_varint, encode_varint

MAX_DECOMPRESSED_BYTES = 128 * 1024 * 1024
"""The default of ottla.batch.max.decompressed.bytes; Apache Kafka's own limit is 2^31-1."""


class Record(NamedTuple):
    """One record. `timestamp` in ms (-1 none); `offset` and `timestamp` are absolute."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def decode_records(batch: Buffer, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> list[Record]:
    """The records of one whole batch, decompressed.

    Does not check the checksum. Raises CorruptBatch when they do not fit the header; UnsupportedMessageFormat for magic
    0 and 1; BatchTooLarge above `max_bytes`.
    """
    return list(iterate_records(batch, max_bytes))


def iterate_records(batch: Buffer, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
    """As `decode_records`, one record at a time: all together take a multiple of their bytes."""
    header = read_header(batch)
    if len(batch) < header.size:
        raise CorruptBatch(f"the batch is cut off at {len(batch)} of {header.size} bytes")
    codec = codec_of(header.attributes)
    payload = memoryview(batch)[HEADER_BYTES : header.size]
    data = decompress(codec, payload, max_bytes)
    append_time = header.max_timestamp if header.has_append_time else None
    position = 0
    for _ in range(header.record_count):
        length, position = decode_varint(data, position)
        end = position + length
        if length < 0 or end > len(data):
            raise CorruptBatch(f"a record of {length} bytes does not fit the batch")
        position += 1  # attributes, unused
        timestamp_delta, position = decode_varint(data, position)
        offset_delta, position = decode_varint(data, position)
        key, position = _bytes(data, position, end)
        value, position = _bytes(data, position, end)
        count, position = decode_varint(data, position)
        headers: list[tuple[str, bytes | None]] = []
        if count < 0:
            raise CorruptBatch(f"a record has {count} headers")
        for _ in range(count):
            name, position = _bytes(data, position, end)
            if name is None:
                raise CorruptBatch("the key of a record header is null")
            header_value, position = _bytes(data, position, end)
            try:
                headers.append((name.decode(), header_value))
            except UnicodeDecodeError as error:
                raise CorruptBatch(f"the key of a record header is not UTF-8: {error}") from error
        if position != end:
            raise CorruptBatch(f"a record of {length} bytes ends {end - position} bytes off its length")
        yield Record(
            header.base_offset + offset_delta,
            header.base_timestamp + timestamp_delta if append_time is None else append_time,
            key,
            value,
            tuple(headers),
        )
    if position != len(data):
        raise CorruptBatch(f"{len(data) - position} bytes follow the last record")


def _bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = decode_varint(data, position)
    if length < 0:
        return None, position
    after = position + length
    if after > end:
        raise CorruptBatch(f"a field of {length} bytes does not fit its record")
    return data[position:after], after


def encode_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    """Encodes one record with its length, relative to its batch."""
    parts = [
        b"\0",
        encode_varint(record.timestamp - base_timestamp),
        encode_varint(record.offset - base_offset),
    ]
    for field in (record.key, record.value):
        if field is None:
            parts.append(b"\x01")
        else:
            parts.append(encode_varint(len(field)))
            parts.append(field)
    parts.append(encode_varint(len(record.headers)))
    for name, value in record.headers:
        encoded = name.encode()
        parts.append(encode_varint(len(encoded)))
        parts.append(encoded)
        if value is None:
            parts.append(b"\x01")
        else:
            parts.append(encode_varint(len(value)))
            parts.append(value)
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def build_batch(
    records: Sequence[Record],
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    attributes: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytearray:
    """A whole batch of records whose offsets ascend; the first one's offset is the base offset.

    Args:
        records: at least one; ValueError otherwise.
        codec: of the batch.
        level: of the codec, None for its default.
        attributes: in addition to the codec (transactional, control, timestamp type).
        leader_epoch: of the batch; a leader's append sets it.
        producer_id: of the batch.
        producer_epoch: of the batch.
        base_sequence: of the first record.

    Returns a writable buffer, in which a log can patch the offsets.
    """
    if not records:
        raise ValueError("a batch needs at least one record")
    base_offset = records[0].offset
    base_timestamp = records[0].timestamp
    payload = compress(codec, b"".join(encode_record(record, base_offset, base_timestamp) for record in records), level)
    batch = bytearray(HEADER_BYTES)
    batch += payload
    length = len(batch) - LOG_OVERHEAD
    fields = (
        attributes | codec,
        records[-1].offset - base_offset,
        base_timestamp,
        max(record.timestamp for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    HEADER.pack_into(batch, 0, base_offset, length, leader_epoch, MAGIC, 0, *fields)
    batch[17:CRC_START] = checksum(batch).to_bytes(4, "big")
    return batch


def build_records(
    values: Iterable[tuple[bytes | None, bytes | None]], timestamp: int = NO_TIMESTAMP, base_offset: int = 0
) -> list[Record]:
    """Records with consecutive offsets and one timestamp from (key, value) pairs, as coordinators write them."""
    return [Record(base_offset + number, timestamp, key, value) for number, (key, value) in enumerate(values)]

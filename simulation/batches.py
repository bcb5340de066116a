"""Record batches of format 2 as the simulated clients write and read them.

This module does not use `ottla_broker.records`: the check must not share a bug with the broker. The value of a record
is its name, unique in the run, padded after a NUL, so that the value at an offset identifies the record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from crc32c import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
_CRC_FROM = 21
_UNSIGNED = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch as it was read, with the names of its records."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    producer_id: int
    base_sequence: int
    is_control: bool
    names: tuple[str, ...]
    size: int
    timestamp_ms: int
    producer_epoch: int
    is_transactional: bool = False
    """Control batches too: their name is "ABORT" or "COMMIT"."""

    def records(self) -> Iterator[tuple[int, str]]:
        """(offset, name) of every record."""
        return zip(range(self.base_offset, self.last_offset + 1), self.names, strict=True)


def build_batch(
    names: Sequence[str],
    *,
    timestamp_ms: int,
    padding: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_offset: int = 0,
    leader_epoch: int = -1,
    is_transactional: bool = False,
) -> bytes:
    """A batch with one record a name; base offset and leader epoch are what a producer sends, unless given."""
    records = b"".join(_record(delta, name.encode() + b"\0" + bytes(padding)) for delta, name in enumerate(names))
    return _with_header(
        records,
        len(names),
        timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        is_transactional=is_transactional,
    )


def _with_header(
    records: bytes,
    count: int,
    *,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    base_offset: int,
    leader_epoch: int,
    is_transactional: bool = False,
) -> bytes:
    length = HEADER_BYTES - 12 + len(records)
    batch = bytearray(HEADER_BYTES)
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        length,
        leader_epoch,
        2,  # magic
        0,  # CRC, below
        0x10 if is_transactional else 0,  # attributes: no compression, CreateTime
        count - 1,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    batch += records
    _UNSIGNED.pack_into(batch, 17, crc32c(memoryview(batch)[_CRC_FROM:]))
    return bytes(batch)


def read_batches(data: Any) -> list[Batch]:
    """The whole batches at the start of `data`. ValueError for one that is damaged; a partial last one is left out."""
    batches: list[Batch] = []
    view = memoryview(data)
    position = 0
    while len(view) - position >= HEADER_BYTES:
        fields = HEADER.unpack_from(view, position)
        base, length, epoch, magic, crc, attributes, last_delta = fields[:7]
        end = position + 12 + length
        if magic != 2 or length < HEADER_BYTES - 12:
            raise ValueError(f"no batch at byte {position}: magic {magic}, length {length}")
        if end > len(view):
            break
        if crc32c(view[position + _CRC_FROM : end]) != crc:
            raise ValueError(f"the batch at byte {position} (offset {base}) does not match its CRC")
        is_control = bool(attributes & 0x20)
        records = view[position + HEADER_BYTES : end]
        names = _markers(records) if is_control else tuple(_names(records, fields[12]))
        batches.append(
            Batch(
                base_offset=base,
                last_offset=base + last_delta,
                leader_epoch=epoch,
                producer_id=fields[9],
                base_sequence=fields[11],
                is_control=is_control,
                names=names,
                size=end - position,
                timestamp_ms=fields[8],
                producer_epoch=fields[10],
                is_transactional=bool(attributes & 0x10),
            )
        )
        position = end
    return batches


def build_keyed_batch(
    records: Sequence[tuple[bytes, str | None]],
    *,
    timestamp_ms: int,
    padding: int = 0,
    producer_id: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """A batch of (key, name) records; a name of None is a null value, a deletion of its key."""
    values = [None if name is None else name.encode() + b"\0" + bytes(padding) for _, name in records]
    encoded = b"".join(
        _record(delta, value, key) for delta, ((key, _), value) in enumerate(zip(records, values, strict=True))
    )
    return _with_header(
        encoded,
        len(records),
        timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=base_sequence,
        base_offset=0,
        leader_epoch=-1,
    )


@dataclass(frozen=True, slots=True)
class KeyedRecord:
    """One record as it was read. `name` is None for a deletion."""

    offset: int
    key: bytes | None
    name: str | None


def read_keyed(data: Any) -> tuple[list[KeyedRecord], int]:
    """(the records of the whole batches, the offset after the last batch); compacted batches too, whose records have
    gaps between them. ValueError for a damaged batch; -1 for no batch at all."""
    records: list[KeyedRecord] = []
    view = memoryview(data)
    position = 0
    end_offset = -1
    while len(view) - position >= HEADER_BYTES:
        fields = HEADER.unpack_from(view, position)
        end = position + 12 + fields[1]
        if end > len(view):
            break
        if fields[3] != 2 or crc32c(view[position + _CRC_FROM : end]) != fields[4]:
            raise ValueError(f"the batch at byte {position} (offset {fields[0]}) is damaged")
        at = position + HEADER_BYTES
        for _ in range(fields[12]):
            record, at = _keyed_record(view, at, fields[0])
            records.append(record)
        if at != end:
            raise ValueError(f"the records of the batch at offset {fields[0]} end {end - at} bytes off")
        end_offset = fields[0] + fields[6] + 1
        position = end
    return records, end_offset


def _keyed_record(view: memoryview, position: int, base_offset: int) -> tuple[KeyedRecord, int]:
    length, position = _read_varint(view, position)
    end = position + length
    _, position = _read_varint(view, position + 1)
    delta, position = _read_varint(view, position)
    size, position = _read_varint(view, position)
    key = None if size < 0 else bytes(view[position : position + size])
    position += max(size, 0)
    size, position = _read_varint(view, position)
    name = None if size < 0 else bytes(view[position : position + size]).split(b"\0", 1)[0].decode()
    return KeyedRecord(base_offset + delta, key, name), end


def valid_prefix(data: Any) -> list[Batch]:
    """The batches before the first damaged or partial one: what a scan of a torn file must keep."""
    batches: list[Batch] = []
    view = memoryview(data)
    position = 0
    while len(view) - position >= HEADER_BYTES:
        length = HEADER.unpack_from(view, position)[1]
        end = position + 12 + length
        if length < HEADER_BYTES - 12 or end > len(view):
            break
        try:
            found = read_batches(view[position:end])
        except ValueError:
            break
        batches += found
        position = end
    return batches


def _record(delta: int, value: bytes | None, key: bytes | None = None) -> bytes:
    body = b"\0\0" + _varint(delta) + _field(key) + _field(value) + b"\0"
    return _varint(len(body)) + body


def _field(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    if value < 0x80:
        return value.to_bytes(1, "big")
    out = bytearray()
    while value & ~0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: memoryview | bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    shift, result = 7, byte & 0x7F
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return (result >> 1) ^ -(result & 1), position
        shift += 7


def _markers(view: memoryview) -> tuple[str, ...]:
    """The kind of a control batch's only record; its key is a version and a type of two bytes each."""
    position = 1 + _read_varint(view, 0)[1]
    for _ in range(2):
        _, position = _read_varint(view, position)
    _, position = _read_varint(view, position)
    return (("ABORT", "COMMIT")[int.from_bytes(view[position + 2 : position + 4], "big")],)


def _names(view: memoryview, count: int) -> Iterator[str]:
    data = bytes(view)
    position = 0
    for _ in range(count):
        length, position = _read_varint(data, position)
        end = position + length
        position += 1
        for _ in range(2):
            _, position = _read_varint(data, position)
        key, position = _read_varint(data, position)
        position += max(key, 0)
        size, position = _read_varint(data, position)
        yield data[position : position + size].split(b"\0", 1)[0].decode()
        position = end

"""Record batches of message format 2 as Arrow columns: the hot path of the source. No I/O, no Spark.

A fetch response contains batches and a batch contains records. The start of a record follows from the length of the
record before it, a varint. Only this walk visits records one by one; all other work runs on the positions of thousands
of records at once (numpy), and Arrow copies the bytes of keys and values once.

How a column of values is built without a Python object per value: take a buffer with two records, where `h` is a byte
around the values.

    hhhh AAAA hhh BB h          values at [4, 8) and [11, 13)

The positions 4, 8, 11, 13 are the offsets of an Arrow binary array over that buffer with three elements, `AAAA`, `hhh`
and `BB`. Elements 0 and 2 are taken, and Arrow copies them into one buffer.

As in a consumer, these are omitted: control batches, records outside the requested offsets and, with read_committed,
the records of aborted transactions (KIP-98).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla_broker.ports.disk import Buffer
from ottla_broker.records.batch import HEADER_BYTES, MAGIC, BatchHeader, batches, is_intact
from ottla_broker.records.compression import Codec, codec_of, decompress
from ottla_broker.records.control_records import ControlType, read_marker
from ottla_broker.records.errors import CorruptBatch, UnsupportedMessageFormat
from ottla_broker.records.formats import MAGIC_OFFSET

Int64s: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
)
"""The columns of the stock connector in its order, with the Arrow types that Spark takes for them."""

SCHEMA_WITH_HEADERS = SCHEMA.append(pa.field("headers", HEADERS))

ROWS = 10_000
"""At most so many rows per Arrow batch."""

_GROUP_BYTES = 8 * 1024 * 1024
"""Batches are laid out as columns in groups of about this size, whatever they decompress to."""

_MAX_BATCH_BYTES = 1 << 30
"""Bound on one batch's decompressed records, as `records.record` has it."""

_MIN_RECORD_BYTES = 7
"""Length, attributes, both deltas, two absent fields and no headers."""

_ABREAST = 16
"""From so many batches on, their records are walked abreast: a step of numpy costs what so many of the loop cost."""


class AbortedTransaction(NamedTuple):
    """An entry of a fetch answer: the producer's records from `first_offset` to its next marker were aborted."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows of a partition, and how. `start` and `end` are offsets, the end is not in."""

    topic: str
    partition: int
    start: int
    end: int
    with_headers: bool = False
    committed_only: bool = False
    checks_crcs: bool = True

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA_WITH_HEADERS if self.with_headers else SCHEMA


class Chosen(NamedTuple):
    """The batches of a fetch answer that rows are made of, and the offset to fetch from next."""

    batches: list[tuple[int, BatchHeader]]
    next_offset: int


def choose(answer: Buffer, wanted: Wanted, aborted: Sequence[AbortedTransaction]) -> Chosen:
    """Looks at the batches of a fetch answer from `wanted.start` on, not yet at their records.

    `next_offset` is behind the last whole batch, or `wanted.start` when the answer holds none. It is derived from the
    batches' headers, so a compacted batch without records moves it too.

    Raises:
        CorruptBatch: for bytes that are no batch.
        UnsupportedMessageFormat: the answer begins with message format 0 or 1 (see `old_formats`). Where they come
            later, the batches before them are chosen.
    """
    view = memoryview(answer)
    chosen: list[tuple[int, BatchHeader]] = []
    next_offset = wanted.start
    to_come = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True) if wanted.committed_only else []
    open_aborted: set[int] = set()
    if len(view) > MAGIC_OFFSET and view[MAGIC_OFFSET] < MAGIC:
        raise UnsupportedMessageFormat(f"message format {view[MAGIC_OFFSET]}")
    for position, header in _format_2(view):
        if header.base_offset >= wanted.end:
            next_offset = max(next_offset, wanted.end)
            break
        next_offset = max(next_offset, header.next_offset)
        if header.producer_id >= 0:
            while to_come and to_come[-1].first_offset <= header.last_offset:
                open_aborted.add(to_come.pop().producer_id)
        if header.is_control:
            if header.producer_id in open_aborted:
                marker = read_marker(view[position : position + header.size])
                if marker is not None and marker.type is ControlType.ABORT:
                    open_aborted.discard(header.producer_id)
            continue
        if header.is_transactional and header.producer_id in open_aborted:
            continue
        if header.last_offset >= wanted.start and header.record_count:
            chosen.append((position, header))
    return Chosen(chosen, next_offset)


def _format_2(view: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """The batches before the first entry of an older format."""
    with contextlib.suppress(UnsupportedMessageFormat):
        yield from batches(view)


def columns(answer: Buffer, chosen: Chosen, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """The rows of the chosen batches as Arrow batches of `wanted.schema`, in the order of offsets.

    `answer` may be written over once the iterator has ended: nothing in the batches points into it.

    Raises:
        CorruptBatch: a checksum does not fit, or records do not fit their batch.
        UnsupportedCompression, BatchTooLarge: see `records.compression`.
    """
    view = memoryview(answer)
    group: list[tuple[int, int, BatchHeader]] = []
    parts: list[Buffer] = []
    filled = 0
    only_plain = all(header.codec == Codec.NONE for _, header in chosen.batches)
    for position, header in chosen.batches:
        end = position + header.size
        if wanted.checks_crcs and not is_intact(view[position:end]):
            raise CorruptBatch(f"the checksum of the batch at offset {header.base_offset} does not fit")
        if only_plain:
            group.append((position + HEADER_BYTES, end, header))
            filled += header.size
        else:
            payload = view[position + HEADER_BYTES : end]
            codec = codec_of(header.attributes)
            part: Buffer = payload if codec is Codec.NONE else decompress(codec, payload, _MAX_BATCH_BYTES)
            group.append((filled, filled + len(part), header))
            parts.append(part)
            filled += len(part)
        if filled >= _GROUP_BYTES:
            yield from _rows(view if only_plain else b"".join(parts), group, wanted)
            group, parts, filled = [], [], 0
    if group:
        yield from _rows(view if only_plain else b"".join(parts), group, wanted)


def _rows(data: Buffer, group: Sequence[tuple[int, int, BatchHeader]], wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """Arrow batches of one group: (begin, end, header) of each batch's records in `data`."""
    octets = np.frombuffer(data, np.uint8)
    headers = [header for _, _, header in group]
    counts = np.array([header.record_count for header in headers], np.int64)
    sizes = np.array([end - begin for begin, end, _ in group], np.int64)
    if (counts < 0).any() or (counts * _MIN_RECORD_BYTES > sizes).any():
        raise CorruptBatch("a batch has fewer bytes than its number of records needs")
    limit = np.repeat(np.array([end for _, end, _ in group], np.int64), counts)
    starts = _record_starts(data, octets, group, counts)
    size, at = _varints(octets, starts)
    ends = at + size
    _, at = _timestamps = _varints(octets, at + 1)  # behind the attributes, which mean nothing
    timestamp_deltas = _timestamps[0]
    offset_deltas, at = _varints(octets, at)
    key_starts, key_ends, no_key = _field(octets, at, ends)
    value_starts, value_ends, no_value = _field(octets, key_ends, ends)
    offsets = np.repeat(np.array([header.base_offset for header in headers], np.int64), counts) + offset_deltas
    append_times = np.array([header.has_append_time for header in headers])
    timestamps = np.repeat(np.array([header.base_timestamp for header in headers], np.int64), counts) + timestamp_deltas
    if append_times.any():
        latest = np.repeat(np.array([header.max_timestamp for header in headers], np.int64), counts)
        timestamps = np.where(np.repeat(append_times, counts), latest, timestamps)
    types = np.repeat(append_times.astype(np.int32), counts)
    if (ends > limit).any():
        raise CorruptBatch("a record reaches beyond its batch")

    kept: Bools | None = None
    if headers[0].base_offset < wanted.start or headers[-1].last_offset >= wanted.end:
        kept = (offsets >= wanted.start) & (offsets < wanted.end)
        offsets, timestamps, types = offsets[kept], timestamps[kept], types[kept]
        key_starts, key_ends, no_key = key_starts[kept], key_ends[kept], no_key[kept]
        value_starts, value_ends, no_value = value_starts[kept], value_ends[kept], no_value[kept]
        ends = ends[kept]
    rows = len(offsets)
    if not rows:
        return
    found: list[pa.Array] = [
        _gathered(data, key_starts, key_ends, no_key),
        _gathered(data, value_starts, value_ends, no_value),
        pa.repeat(wanted.topic, rows),
        pa.repeat(pa.scalar(wanted.partition, pa.int32()), rows),
        pa.array(offsets),
        pa.Array.from_buffers(pa.timestamp("us", "UTC"), rows, [None, pa.py_buffer(timestamps * 1000)]),
        pa.array(types),
    ]
    if wanted.with_headers:
        found.append(_record_headers(data, octets, value_ends, ends))
    batch = pa.RecordBatch.from_arrays(found, schema=wanted.schema)
    for begin in range(0, rows, ROWS):
        yield batch.slice(begin, ROWS)


# -- where the records are


def _record_starts(
    data: Buffer, octets: npt.NDArray[np.uint8], group: Sequence[tuple[int, int, BatchHeader]], counts: Int64s
) -> Int64s:
    """The positions at which the records of all batches begin, batch after batch.

    Many batches are walked abreast, the k-th record of each in step k, until few are left that have a k-th record;
    those are finished one by one.
    """
    starts = np.empty(int(counts.sum()), np.int64)
    first = np.cumsum(counts) - counts  # where each batch's records go in `starts`
    at = np.array([begin for begin, _, _ in group], np.int64)
    longest_first = np.argsort(-counts, kind="stable")
    step = 0
    if len(group) >= _ABREAST:
        sorted_counts = counts[longest_first]
        last_step = int(sorted_counts[_ABREAST - 1])
        position = at[longest_first]
        place = first[longest_first]
        # How many batches have a record of number `step`, for every step.
        alive = len(group) - np.searchsorted(sorted_counts[::-1], np.arange(last_step), side="right")
        for step, batches_left in enumerate(alive.tolist()):
            position, place = position[:batches_left], place[:batches_left]
            starts[place + step] = position
            size, behind = _varints(octets, position)
            position = behind + size
            at[longest_first[:batches_left]] = position
        step = last_step
    for index in np.flatnonzero(counts > step).tolist():
        found: list[int] = []
        at[index] = walk(data, int(at[index]), int(counts[index]) - step, found)
        begin = int(first[index]) + step
        starts[begin : begin + len(found)] = found
    ends = np.array([end for _, end, _ in group], np.int64)
    if (at != ends).any():
        wrong = int(np.flatnonzero(at != ends)[0])
        raise CorruptBatch(
            f"the records of the batch at offset {group[wrong][2].base_offset} end {int(at[wrong] - ends[wrong])} bytes"
            " behind its end"
        )
    return starts


def walk(data: Buffer, position: int, count: int, starts: list[int]) -> int:
    """Appends where each of `count` records begins to `starts`; gives the position behind the last one.

    CorruptBatch where a length cannot be read.

    >>> starts: list[int] = []
    >>> walk(bytes([4, 0, 0, 6, 0, 0, 0]), 0, 2, starts), starts
    (7, [0, 3])
    """
    append = starts.append
    try:
        for _ in range(count):
            append(position)
            size = data[position]
            if size < 128:
                position += 1 + (size >> 1)
                continue
            byte = data[position + 1]
            if byte < 128:  # written out: records from 64 to 8191 bytes
                position += 2 + ((size & 127 | byte << 7) >> 1)
                continue
            size = size & 127 | (byte & 127) << 7
            position += 2
            shift = 14
            while True:
                byte = data[position]
                position += 1
                size |= (byte & 127) << shift
                if byte < 128:
                    break
                shift += 7
                if shift > 28:
                    raise CorruptBatch("the length of a record is no varint of 32 bits")
            position += size >> 1
    except IndexError:
        raise CorruptBatch("a record reaches beyond its batch") from None
    return position


def _varints(octets: npt.NDArray[np.uint8], at: Int64s) -> tuple[Int64s, Int64s]:
    """The zigzag varints at many positions: (values, positions behind them). CorruptBatch where there is none."""
    try:
        byte = octets[at]
        number = (byte & 127).astype(np.uint64)
        at = at + 1
        more = np.flatnonzero(byte > 127)
        shift = 7
        while len(more):
            if shift > 63:
                raise CorruptBatch("a varint is longer than 10 bytes")
            byte = octets[at[more]]
            number[more] |= (byte & 127).astype(np.uint64) << np.uint64(shift)
            at[more] += 1
            more = more[byte > 127]
            shift += 7
    except IndexError:
        raise CorruptBatch("a record reaches beyond its batch") from None
    signed = number.view(np.int64)
    return (number >> np.uint64(1)).view(np.int64) ^ -(signed & 1), at


def _field(octets: npt.NDArray[np.uint8], at: Int64s, limit: Int64s) -> tuple[Int64s, Int64s, Bools]:
    """The key or value whose length stands at `at`: (begin, end, whether it is null), of each record."""
    size, begin = _varints(octets, at)
    is_null = size < 0
    end = begin + np.where(is_null, 0, size)
    if (size > len(octets)).any() or (end > limit).any():
        raise CorruptBatch("a key, value or header does not fit its record")
    return begin, end, is_null


# -- columns


def _gathered(data: Buffer, begin: Int64s, end: Int64s, is_null: Bools) -> pa.Array:
    """A binary array of the given ranges, which must not overlap and must grow. Copies them; see the module."""
    rows = len(begin)
    bounds = np.empty(2 * rows, np.int32)
    bounds[0::2] = begin
    bounds[1::2] = end
    every_other: Any = pa.Array.from_buffers(
        pa.binary(), max(2 * rows - 1, 0), [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    if is_null.all():
        return pa.nulls(rows, pa.binary())
    taken = np.arange(0, 2 * rows, 2, dtype=np.int32)
    return every_other.take(pa.array(taken, mask=is_null if is_null.any() else None))


def _record_headers(data: Buffer, octets: npt.NDArray[np.uint8], at: Int64s, ends: Int64s) -> pa.Array:
    """The headers column: a list per record, null for a record without headers, as the stock connector has it."""
    counts, at = _varints(octets, at)
    if (counts < 0).any() or (counts > len(octets)).any():
        raise CorruptBatch("a record has an impossible number of headers")
    bounds = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    total = int(bounds[-1])
    fields = [np.zeros(total, np.int64) for _ in range(4)]
    no_value = np.zeros(total, np.bool_)
    records = np.flatnonzero(counts > 0)
    number = 0
    while len(records):  # the headers of this number, of all records that have so many
        place = bounds[records] + number
        key_begin, key_end, no_key = _field(octets, at[records], ends[records])
        if no_key.any():
            raise CorruptBatch("the key of a record header is null")
        value_begin, value_end, no_value[place] = _field(octets, key_end, ends[records])
        for values, positions in zip(fields, (key_begin, key_end, value_begin, value_end), strict=True):
            values[place] = positions
        at[records] = value_end
        number += 1
        records = records[counts[records] > number]
    if (at != ends).any():
        raise CorruptBatch("a record ends elsewhere than its length says")
    try:
        keys = _gathered(data, fields[0], fields[1], np.zeros(total, np.bool_)).cast(pa.string())
    except pa.ArrowInvalid as error:
        raise CorruptBatch(f"the key of a record header is not UTF-8: {error}") from error
    pairs = pa.StructArray.from_arrays([keys, _gathered(data, fields[2], fields[3], no_value)], ["key", "value"])
    lists = pa.ListArray.from_arrays(
        pa.array(bounds.astype(np.int32)), pairs, mask=pa.array(counts == 0) if (counts == 0).any() else None
    )
    return lists.cast(HEADERS)

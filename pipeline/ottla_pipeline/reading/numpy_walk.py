"""Where the records of batches are, and their fields as columns, by numpy. No I/O, no Spark, pure.

A batch contains records, and the start of a record follows from the length of the record before it, a varint. Only this
walk visits records one by one; all other work runs on the positions of thousands of records at once (numpy), and Arrow
copies the bytes of keys and values once.

How a column of values is built without a Python object per value: take a buffer with two records, where `h` is a byte
around the values.

    hhhh AAAA hhh BB h          values at [4, 8) and [11, 13)

The positions 4, 8, 11, 13 are the offsets of an Arrow binary array over that buffer with three elements, `AAAA`, `hhh`
and `BB`. Elements 0 and 2 are taken, and Arrow copies them into one buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla_broker.ports.disk import Buffer
from ottla_broker.records.errors import CorruptBatch
from ottla_pipeline.reading.decoded import BatchRecords, Decoded, Int64s, Kept, headers_column, record_counts

Bools: TypeAlias = npt.NDArray[np.bool_]

_ABREAST = 16
"""From so many batches on, their records are walked abreast: a step of numpy costs what so many of the loop cost."""

_INT32_BYTES, _INT64_BYTES = 5, 10
"""The longest varint of each type."""


def decode(data: Buffer, group: Sequence[BatchRecords], kept: Kept) -> Decoded:
    """The records of the batches whose offsets are wanted; see `decoded.Decode`."""
    octets = np.frombuffer(data, np.uint8)
    headers = [header for _, _, header in group]
    counts = record_counts(group)
    limit = np.repeat(np.array([end for _, end, _ in group], np.int64), counts)
    starts = _record_starts(data, octets, group, counts)
    size, at = _varints(octets, starts, _INT32_BYTES)
    ends = at + size
    timestamp_deltas, at = _varints(octets, at + 1, _INT64_BYTES)  # behind the attributes, which mean nothing
    offset_deltas, at = _varints(octets, at, _INT32_BYTES)
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

    if headers[0].base_offset < kept.first or headers[-1].last_offset > kept.last:
        inside = (offsets >= kept.first) & (offsets <= kept.last)
        offsets, timestamps, types = offsets[inside], timestamps[inside], types[inside]
        key_starts, key_ends, no_key = key_starts[inside], key_ends[inside], no_key[inside]
        value_starts, value_ends, no_value = value_starts[inside], value_ends[inside], no_value[inside]
        ends = ends[inside]
    return Decoded(
        offsets,
        timestamps * 1000,
        types,
        _gathered(data, key_starts, key_ends, no_key),
        _gathered(data, value_starts, value_ends, no_value),
        _headers(data, octets, value_ends, ends) if kept.with_headers else None,
    )


# -- where the records are


def _record_starts(
    data: Buffer, octets: npt.NDArray[np.uint8], group: Sequence[BatchRecords], counts: Int64s
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
            size, behind = _varints(octets, position, _INT32_BYTES)
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
            f"the records of the batch at offset {group[wrong].header.base_offset}"
            f" end {int(at[wrong] - ends[wrong])} bytes behind its end"
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


def _varints(octets: npt.NDArray[np.uint8], at: Int64s, longest: int) -> tuple[Int64s, Int64s]:
    """The zigzag varints at many positions: (values, positions behind them). CorruptBatch where there is none.

    `longest`: the bytes that one has at most.
    """
    try:
        byte = octets[at]
        number = (byte & 127).astype(np.uint64)
        at = at + 1
        more = np.flatnonzero(byte > 127)
        shift = 7
        while len(more):
            if shift >= 7 * longest:
                raise CorruptBatch(f"a varint is longer than {longest} bytes")
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
    size, begin = _varints(octets, at, _INT32_BYTES)
    is_null = size < 0
    end = begin + np.where(is_null, 0, size)
    if (size > len(octets)).any() or (end > limit).any():
        raise CorruptBatch("a key, value or header does not fit its record")
    return begin, end, is_null


# -- columns


def _gathered(data: Buffer, begin: Int64s, end: Int64s, is_null: Bools) -> pa.Array:
    """A binary array of the given ranges, which must not overlap and must grow: Arrow copies every second element."""
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


def _headers(data: Buffer, octets: npt.NDArray[np.uint8], at: Int64s, ends: Int64s) -> pa.Array:
    counts, at = _varints(octets, at, _INT32_BYTES)
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
    keys = _gathered(data, fields[0], fields[1], np.zeros(total, np.bool_))
    return headers_column(keys, _gathered(data, fields[2], fields[3], no_value), bounds)

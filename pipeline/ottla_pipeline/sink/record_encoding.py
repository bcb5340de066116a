"""Arrow columns as record batches of message format 2: the hot path of the sink. No I/O, no Spark, pure.

No Python object per record. Where there is compiled code, it writes the records (`compiled_encoding`). Else, of each
record, numpy computes the varints of many records at once: those before the key,
those between key and value, and the headers behind. Arrow then joins the five columns element by element, which copies
keys and values once, and a batch is a slice of the result:

    [length attributes timestamp-delta offset-delta key-length] key [value-length] value [header-count headers]

Source: DefaultRecord and DefaultRecordBatch of Apache Kafka (KIP-98).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ottla_broker.ports.disk import Buffer
from ottla_broker.records.compression import Codec, compress
from ottla_pipeline.compiled.library import Functions
from ottla_pipeline.sink.compiled_encoding import ByteColumn, EncodedRecords, encode_records
from ottla_pipeline.sink.plain_batch import PlainBatch

Int64s: TypeAlias = npt.NDArray[np.int64]
Octets: TypeAlias = npt.NDArray[np.uint8]

_LIMITS = np.array([1 << bits for bits in range(7, 64, 7)], np.uint64)
"""The first number that needs 2, 3, ... bytes as a varint."""

MAX_OVERHEAD_BYTES = 5 + 1 + 10 + 5 + 5 + 5 + 5
"""What a record without headers has at most around its key and value."""


class Rows(NamedTuple):
    """Rows on their way into batches: columns of one length, as `row_columns.normalized` makes them."""

    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: pa.ListArray | None
    """Lists of struct<key: string, value: binary>; None where no record has headers."""
    timestamps: Int64s
    """Milliseconds since the epoch."""


def sizes(rows: Rows) -> Int64s:
    """An upper bound of the bytes that each row takes in a batch, before compression."""
    total = byte_lengths(rows.keys) + byte_lengths(rows.values) + MAX_OVERHEAD_BYTES
    if rows.headers is not None:
        counts, encoded = _headers(rows.headers)
        total += byte_lengths(encoded) + 10 * counts
    return total


def encode(
    rows: Rows,
    counts: Sequence[int],
    codec: Codec = Codec.NONE,
    level: int | None = None,
    order: Int64s | None = None,
    compiled: Functions | None = None,
) -> list[PlainBatch]:
    """Record batches of consecutive rows: the first `counts[0]` rows, the next `counts[1]`, and so on.

    Args:
        rows: together less than 2 GiB.
        counts: how many rows each batch has, none 0.
        codec: of the batches.
        level: of the codec, None for its default.
        order: the numbers of the rows in the order in which they are to stand in the batches; None for all as they are.
        compiled: the functions that write the records; None for numpy.
    """
    per_batch = np.asarray(counts, np.int64)
    if compiled is None:
        encoded = _encoded_by_numpy(rows if order is None else taken(rows, order), per_batch)
    else:
        encoded = encode_records(
            compiled,
            _byte_column(rows.keys),
            _byte_column(rows.values),
            None if rows.headers is None else _byte_column(_header_bytes(rows.headers)),
            rows.timestamps,
            per_batch,
            order,
        )
    batches: list[PlainBatch] = []
    begin = 0
    for count, end, base, latest in zip(
        per_batch.tolist(), encoded.ends, encoded.base_timestamps, encoded.max_timestamps, strict=True
    ):
        plain = encoded.data[begin:end]
        payload: Buffer = plain if codec is Codec.NONE else compress(codec, plain, level)
        batches.append(PlainBatch(payload, codec, count, base, latest))
        begin = end
    return batches


def _encoded_by_numpy(rows: Rows, per_batch: Int64s) -> EncodedRecords:
    firsts = np.cumsum(per_batch) - per_batch
    base = rows.timestamps[firsts]
    latest = np.maximum.reduceat(rows.timestamps, firsts)
    timestamp_deltas = rows.timestamps - np.repeat(base, per_batch)
    offset_deltas = np.arange(len(rows.timestamps), dtype=np.int64) - np.repeat(firsts, per_batch)
    key_lengths, value_lengths = _lengths_or_null(rows.keys), _lengths_or_null(rows.values)
    between, _ = _varints([value_lengths])
    zeros = np.zeros(len(key_lengths), np.int64)
    behind: pa.Array | pa.Scalar
    if rows.headers is None:
        behind, behind_bytes = pa.scalar(b"\0", pa.binary()), zeros + 1
    else:
        behind = _header_bytes(rows.headers)
        behind_bytes = byte_lengths(behind)
    head = [zeros, timestamp_deltas, offset_deltas, key_lengths]
    lengths = (
        sum((_varint_sizes(_zigzag(column)) for column in (*head, value_lengths)), zeros)
        + np.maximum(key_lengths, 0)
        + np.maximum(value_lengths, 0)
        + behind_bytes
    )
    before, _ = _varints([lengths, *head])
    records = _join(before, rows.keys, between, rows.values, behind)
    data = memoryview(records.buffers()[2]) if len(records) else memoryview(b"")
    ends = _bounds(records)[firsts + per_batch]
    return EncodedRecords(data, ends.tolist(), base.tolist(), latest.tolist())


def taken(rows: Rows, chosen: Int64s) -> Rows:
    """The rows of these numbers, in their order."""
    if len(chosen) == len(rows.values) and (chosen[:-1] < chosen[1:]).all():
        return rows
    indices = pa.array(chosen)
    return Rows(
        rows.keys.take(indices),
        rows.values.take(indices),
        None if rows.headers is None else rows.headers.take(indices),
        rows.timestamps[chosen],
    )


def byte_lengths(column: pa.Array) -> Int64s:
    """Bytes of each element of a binary column, 0 for null."""
    found = np.diff(_bounds(column)).astype(np.int64)
    if column.null_count:
        found[np.asarray(column.is_null())] = 0
    return found


def octets_of(column: pa.BinaryArray) -> tuple[Octets, Int64s]:
    """The bytes of a binary column and, one more than it has elements, where each begins."""
    data = column.buffers()[2]
    octets = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return octets, _bounds(column).astype(np.int64)


# -- parts


def _byte_column(column: pa.BinaryArray) -> ByteColumn:
    data = column.buffers()[2] if len(column) else None
    octets = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return ByteColumn(octets, _bounds(column), _lengths_or_null(column))


def _header_bytes(column: pa.ListArray) -> pa.BinaryArray:
    """The headers of each row as they are in a record: their number, then their bytes."""
    counts, encoded = _headers(column)
    number_of, _ = _varints([counts])
    return _join(number_of, encoded)


def _headers(column: pa.ListArray) -> tuple[Int64s, pa.BinaryArray]:
    """The number of headers of each row, and their bytes one behind the other."""
    bounds = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    counts = np.diff(bounds).astype(np.int64)
    if column.null_count:
        # The range of a null list may hold elements, which mean nothing.
        column = column.fill_null([])
        bounds = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
        counts = np.diff(bounds).astype(np.int64)
    pairs = column.values[int(bounds[0]) : int(bounds[-1])]
    keys, values = (pairs.field(number).cast(pa.binary()) for number in (0, 1))
    key_sizes, _ = _varints([byte_lengths(keys)])
    value_sizes, _ = _varints([_lengths_or_null(values)])
    joined = _join(key_sizes, keys, value_sizes, values)
    starts = _bounds(joined)[bounds - bounds[0]].astype(np.int32)
    return counts, pa.BinaryArray.from_buffers(
        pa.binary(), len(counts), [None, pa.py_buffer(starts), joined.buffers()[2]]
    )


def _join(*columns: pa.Array | pa.Scalar) -> pa.BinaryArray:
    """The columns' elements joined row by row, null as nothing."""
    joined = pc.binary_join_element_wise(
        *columns, pa.scalar(b"", pa.binary()), null_handling="replace", null_replacement=""
    )
    if isinstance(joined, pa.Scalar):
        raise AssertionError("one of the columns is an array")
    return joined


def _bounds(column: pa.Array) -> npt.NDArray[np.int32]:
    if not len(column):
        return np.zeros(1, np.int32)
    return np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]


def _lengths_or_null(column: pa.Array) -> Int64s:
    found = byte_lengths(column)
    if column.null_count:
        found[np.asarray(column.is_null())] = -1
    return found


def _zigzag(values: Int64s) -> npt.NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def _varint_sizes(numbers: npt.NDArray[np.uint64]) -> Int64s:
    return np.searchsorted(_LIMITS, numbers, side="right") + 1


def _varints(columns: Sequence[Int64s]) -> tuple[pa.BinaryArray, Int64s]:
    """A binary column whose elements are the zigzag varints of a row of `columns`, and their lengths.

    >>> _varints([np.array([0, 64]), np.array([-1, 1])])[0].to_pylist()
    [b'\\x00\\x01', b'\\x80\\x01\\x02']
    """
    parts: list[Octets] = []
    masks: list[npt.NDArray[np.bool_]] = []
    total = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        numbers = _zigzag(column)
        lengths = _varint_sizes(numbers)
        total += lengths
        width = int(lengths.max(initial=1))
        places = np.arange(width)
        part = ((numbers[:, None] >> (places * 7).astype(np.uint64)) & np.uint64(127)).astype(np.uint8)
        if width > 1:
            part[places < (lengths - 1)[:, None]] |= 128
        parts.append(part)
        masks.append(places < lengths[:, None])
    octets = np.concatenate(parts, axis=1)[np.concatenate(masks, axis=1)]
    bounds = np.zeros(len(total) + 1, np.int32)
    np.cumsum(total, out=bounds[1:])
    made = pa.BinaryArray.from_buffers(pa.binary(), len(total), [None, pa.py_buffer(bounds), pa.py_buffer(octets)])
    return made, total

"""Rows as the records of batches by compiled code: the bytes that numpy makes in `record_encoding`, in one pass.

Rows are taken in the order of their partitions, so that nobody has to sort the columns before.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ottla_pipeline.compiled.library import Functions

Int64s: TypeAlias = npt.NDArray[np.int64]

_MAX_OVERHEAD_BYTES = 5 + 1 + 10 + 5 + 5 + 5


class ByteColumn(NamedTuple):
    """A binary column: its bytes, where each element begins, and its length, -1 for null."""

    octets: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int32]
    lengths: Int64s


class EncodedRecords(NamedTuple):
    """The records of batches one behind the other."""

    data: memoryview
    ends: list[int]
    """Behind each batch."""
    base_timestamps: list[int]
    max_timestamps: list[int]


def encode_records(
    functions: Functions,
    keys: ByteColumn,
    values: ByteColumn,
    headers: ByteColumn | None,
    timestamps: Int64s,
    counts: Int64s,
    order: Int64s | None,
) -> EncodedRecords:
    """The records of `counts[0]` rows, of the next `counts[1]`, and so on.

    Args:
        headers: of each row the number of its headers and their bytes, as they are in a record.
        order: the numbers of the rows in the order in which they are to stand; None for all as they are.
    """
    chosen = slice(None) if order is None else order
    times = np.ascontiguousarray(timestamps, np.int64)
    bodies = (keys, values) if headers is None else (keys, values, headers)
    rows = int(counts.sum())
    room = rows * (_MAX_OVERHEAD_BYTES + 1) + sum(int(np.maximum(column.lengths[chosen], 0).sum()) for column in bodies)
    target = np.empty(room, np.uint8)
    ends, base_timestamps, max_timestamps = (np.empty(len(counts), np.int64) for _ in range(3))
    behind: tuple[int | None, ...] = (None, None, None) if headers is None else _addresses(headers)
    written = functions.encode(
        *_addresses(keys), *_addresses(values), *behind,
        times.ctypes.data, None if order is None else order.ctypes.data, counts.ctypes.data, len(counts),
        target.ctypes.data, room, ends.ctypes.data, base_timestamps.ctypes.data, max_timestamps.ctypes.data,
    )  # fmt: skip
    assert 0 <= written <= room, "there is room for the longest records"
    return EncodedRecords(target.data[:written], ends.tolist(), base_timestamps.tolist(), max_timestamps.tolist())


def _addresses(column: ByteColumn) -> tuple[int, int, int]:
    return column.octets.ctypes.data, column.starts.ctypes.data, column.lengths.ctypes.data

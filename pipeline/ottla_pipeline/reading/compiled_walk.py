"""The records of batches as columns by compiled code. What `numpy_walk.decode` gives, in one pass over the bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla_broker.ports.disk import Buffer
from ottla_broker.records.errors import CorruptBatch
from ottla_pipeline.compiled.library import Functions
from ottla_pipeline.reading.decoded import BatchRecords, Decode, Decoded, Kept, headers_column, record_counts

Int32s = npt.NDArray[np.int32]

_CORRUPT = -1


def decoder(functions: Functions) -> Decode:
    """The walk of the compiled functions."""

    def decode(data: Buffer, group: Sequence[BatchRecords], kept: Kept) -> Decoded:
        room = int(record_counts(group).sum())
        batches = np.array(
            [
                (
                    begin, end, header.record_count, header.base_offset, header.base_timestamp, header.max_timestamp,
                    header.has_append_time,
                )
                for begin, end, header in group
            ],
            np.int64,
        )  # fmt: skip
        octets = np.frombuffer(data, np.uint8)
        offsets, timestamps_us = np.empty(room, np.int64), np.empty(room, np.int64)
        types, key_begin, key_bytes, value_begin, value_bytes, headers, ends = (
            np.empty(room, np.int32) for _ in range(7)
        )
        totals = np.empty(4, np.int64)
        rows = functions.decode(
            octets.ctypes.data, batches.ctypes.data, len(group), kept.first, kept.last,
            offsets.ctypes.data, timestamps_us.ctypes.data, types.ctypes.data,
            key_begin.ctypes.data, key_bytes.ctypes.data, value_begin.ctypes.data, value_bytes.ctypes.data,
            headers.ctypes.data, ends.ctypes.data, totals.ctypes.data,
        )  # fmt: skip
        if rows == _CORRUPT:
            raise CorruptBatch(
                f"the records of the batches at the offsets {group[0].header.base_offset} to"
                f" {group[-1].header.last_offset} do not fit them"
            )
        key_total, no_keys, value_total, no_values = totals.tolist()
        return Decoded(
            offsets[:rows],
            timestamps_us[:rows],
            types[:rows],
            _gathered(functions, octets, key_begin[:rows], key_bytes[:rows], key_total, no_keys),
            _gathered(functions, octets, value_begin[:rows], value_bytes[:rows], value_total, no_values),
            _headers(functions, octets, headers[:rows], ends[:rows]) if kept.with_headers else None,
        )

    return decode


def _headers(functions: Functions, octets: npt.NDArray[np.uint8], headers: Int32s, ends: Int32s) -> pa.Array:
    rows = len(headers)
    bounds, totals = np.empty(rows + 1, np.int64), np.empty(4, np.int64)

    def decode(*outputs: int | None) -> int:
        return functions.decode_headers(
            octets.ctypes.data, headers.ctypes.data, ends.ctypes.data, rows, bounds.ctypes.data, *outputs,
            totals.ctypes.data,
        )  # fmt: skip

    count = decode(None, None, None, None)
    if count == _CORRUPT:
        raise CorruptBatch("the headers of a record do not fit it")
    fields = [np.empty(count, np.int32) for _ in range(4)]
    decode(*(field.ctypes.data for field in fields))
    key_total, no_keys, value_total, no_values = totals.tolist()
    return headers_column(
        _gathered(functions, octets, fields[0], fields[1], key_total, no_keys),
        _gathered(functions, octets, fields[2], fields[3], value_total, no_values),
        bounds,
    )


def _gathered(
    functions: Functions, octets: npt.NDArray[np.uint8], begin: Int32s, sizes: Int32s, total: int, nulls: int
) -> pa.Array:
    """A binary array of the pieces, whose bytes it copies."""
    rows = len(begin)
    if nulls == rows:
        return pa.nulls(rows, pa.binary())
    bounds, target = np.empty(rows + 1, np.int32), np.empty(total, np.uint8)
    validity = np.zeros((rows + 7) // 8, np.uint8) if nulls else None
    functions.gather(
        octets.ctypes.data, begin.ctypes.data, sizes.ctypes.data, rows,
        bounds.ctypes.data, target.ctypes.data, None if validity is None else validity.ctypes.data,
    )  # fmt: skip
    buffers = [None if validity is None else pa.py_buffer(validity), pa.py_buffer(bounds), pa.py_buffer(target)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, nulls)

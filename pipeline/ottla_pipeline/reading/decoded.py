"""The records of some batches once they are found: what both walks give and share. No I/O, no Spark, pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla_broker.ports.disk import Buffer
from ottla_broker.records.batch import BatchHeader
from ottla_broker.records.errors import CorruptBatch

Int64s: TypeAlias = npt.NDArray[np.int64]

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

_MIN_RECORD_BYTES = 7
"""Length, attributes, both deltas, two absent fields and no headers."""


class BatchRecords(NamedTuple):
    """The records of a batch, uncompressed: where they begin and end in a buffer, and the batch's header."""

    begin: int
    end: int
    header: BatchHeader


class Kept(NamedTuple):
    """Which records become rows, and how."""

    first: int
    """The lowest offset."""
    last: int
    with_headers: bool


class Decoded(NamedTuple):
    """Columns of the records that are kept, in the order of the batches."""

    offsets: Int64s
    timestamps_us: Int64s
    timestamp_types: npt.NDArray[np.int32]
    keys: pa.Array
    values: pa.Array
    headers: pa.Array | None
    """None where nobody asked for them."""


Decode: TypeAlias = Callable[[Buffer, Sequence[BatchRecords], Kept], Decoded]
"""A walk over the records of batches in one buffer, of which none is empty. CorruptBatch where one does not fit."""


def record_counts(group: Sequence[BatchRecords]) -> Int64s:
    """How many records each batch says it has. CorruptBatch where it has too few bytes for them."""
    counts = np.array([one.header.record_count for one in group], np.int64)
    sizes = np.array([one.end - one.begin for one in group], np.int64)
    if (counts < 0).any() or (counts * _MIN_RECORD_BYTES > sizes).any():
        raise CorruptBatch("a batch has fewer bytes than its number of records needs")
    return counts


def headers_column(keys: pa.Array, values: pa.Array, bounds: Int64s) -> pa.Array:
    """A list of headers per record, null for a record without headers, as the stock connector has it.

    Args:
        keys: of all headers, as bytes; CorruptBatch where one is not UTF-8.
        values: of all headers.
        bounds: where the headers of each record begin among all, and one more.
    """
    try:
        names = keys.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise CorruptBatch(f"the key of a record header is not UTF-8: {error}") from error
    pairs = pa.StructArray.from_arrays([names, values], ["key", "value"])
    is_empty = bounds[1:] == bounds[:-1]
    mask = pa.array(is_empty) if is_empty.any() else None
    return pa.ListArray.from_arrays(pa.array(bounds.astype(np.int32)), pairs, mask=mask).cast(HEADERS)

"""An Arrow batch of the sink's columns in one normal form; `column_types` says which they are. Pure, no Spark."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla_pipeline.errors import ColumnError
from ottla_pipeline.sink.record_encoding import Int64s, Rows

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


class Destinations(NamedTuple):
    """Where rows go: the topic of each (one name for all, or a column), and the partition where rows name one."""

    topic: str | pa.StringArray
    partitions: pa.Int32Array | None


def normalized(batch: pa.RecordBatch, topic: str | None, first_row: int, now_ms: int) -> tuple[Rows, Destinations]:
    """The columns of a batch that records are made of. Nothing is copied where Arrow can avoid it.

    Args:
        batch: its schema has passed `column_types.check_columns`.
        topic: of all rows; None takes the column.
        first_row: the number of the batch's first row in its task, for errors.
        now_ms: the timestamp of rows that have none.
    """
    names = set(batch.schema.names)
    rows = len(batch)

    def column(name: str) -> pa.Array | None:
        return batch.column(batch.schema.get_field_index(name)) if name in names else None

    keys, values = column("key"), column("value")
    assert values is not None, "the schema is checked before"
    headers = column("headers")
    topics = column("topic") if topic is None else None
    if topic is None:
        assert topics is not None, "the schema is checked before"
        if topics.null_count:
            raise ColumnError("topic", f"is null in row {first_row + _first(pc.is_null(topics))} of its task")
        topics = topics.cast(pa.string())
    partitions = column("partition")
    return (
        Rows(
            pa.nulls(rows, pa.binary()) if keys is None else keys.cast(pa.binary()),
            values.cast(pa.binary()),
            None if headers is None else _headers(headers, first_row),
            _timestamps(column("timestamp"), rows, now_ms),
        ),
        Destinations(topics if topic is None else topic, None if partitions is None else partitions.cast(pa.int32())),
    )


def _headers(column: pa.ListArray, first_row: int) -> pa.ListArray | None:
    column = column.cast(HEADERS)
    if not len(column.flatten()):
        return None
    keys = column.flatten().field(0) if not column.flatten().null_count else None
    if keys is None or keys.null_count:
        wrong = [
            number
            for number, row in enumerate(column.to_pylist())
            if any(header is None or header["key"] is None for header in row or ())
        ]
        raise ColumnError("headers", f"has a header without key in row {first_row + wrong[0]} of its task")
    return column


def _timestamps(column: pa.Array | None, rows: int, now_ms: int) -> Int64s:
    if column is None:
        return np.full(rows, now_ms, np.int64)
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    if micros.null_count:
        micros = micros.fill_null(now_ms * 1000)
    return np.asarray(micros, dtype=np.int64) // 1000


def _first(mask: pa.BooleanArray) -> int:
    return int(np.flatnonzero(np.asarray(mask))[0])

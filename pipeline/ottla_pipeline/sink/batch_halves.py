"""A batch that a broker finds too large, in two. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ottla_broker.records.record import decode_records
from ottla_pipeline.sink.plain_batch import PlainBatch
from ottla_pipeline.sink.record_encoding import Rows, encode
from ottla_pipeline.sink.row_columns import HEADERS


def halves(header: bytes, batch: PlainBatch) -> list[PlainBatch]:
    """Two batches with the records of one; `header` is the one that it was sent with."""
    records = decode_records(header + bytes(batch.payload))
    headers = [[{"key": name, "value": value} for name, value in record.headers] for record in records]
    rows = Rows(
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        pa.array(headers, HEADERS) if any(headers) else None,
        np.array([record.timestamp for record in records], np.int64),
    )
    half = len(records) // 2
    return encode(rows, [half, len(records) - half], batch.codec)

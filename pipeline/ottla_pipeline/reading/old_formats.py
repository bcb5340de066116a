"""Messages of format 0 and 1 as Arrow columns: what a log holds that was written before Kafka 0.11. No I/O, no Spark.

Such messages are few and old, so they are laid out one by one; `columns` is the path of format 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from ottla_broker.ports.disk import Buffer
from ottla_broker.records.batch import MAGIC
from ottla_broker.records.errors import CorruptBatch
from ottla_broker.records.formats import batches, decode_batch, is_batch_intact
from ottla_pipeline.reading.columns import ROWS, Wanted

NO_TIMESTAMP_TYPE = -1
"""timestampType of format 0, as TimestampType.NO_TIMESTAMP_TYPE of Kafka's client."""


class OldRows(NamedTuple):
    """The rows of the old entries at the beginning of a fetch answer, and the offset to fetch from next."""

    batches: list[pa.RecordBatch]
    next_offset: int


def rows(answer: Buffer, wanted: Wanted) -> OldRows:
    """The rows of the whole entries of format 0 and 1, up to the first batch of format 2.

    `next_offset` is `wanted.start` where no whole entry is there.

    Raises:
        CorruptBatch: a checksum does not fit (where they are checked), or an entry cannot be read.
    """
    view = memoryview(answer)
    found: list[tuple[bytes | None, bytes | None, int, int, int]] = []
    next_offset = wanted.start
    for position, header in batches(view):
        if header.magic == MAGIC:
            break
        if header.base_offset >= wanted.end:
            next_offset = max(next_offset, wanted.end)
            break
        entry = view[position : position + header.size]
        if wanted.checks_crcs and not is_batch_intact(entry, header.magic):
            raise CorruptBatch(f"the checksum of the message at offset {header.base_offset} does not fit")
        kind = NO_TIMESTAMP_TYPE if header.magic == 0 else int(header.has_append_time)
        for record in decode_batch(entry):
            if wanted.start <= record.offset < wanted.end:
                found.append((record.key, record.value, record.offset, record.timestamp, kind))
            next_offset = max(next_offset, record.offset + 1)
    return OldRows(list(_laid_out(found, wanted)), next_offset)


def _laid_out(
    found: list[tuple[bytes | None, bytes | None, int, int, int]], wanted: Wanted
) -> Iterator[pa.RecordBatch]:
    for begin in range(0, len(found), ROWS):
        keys, values, offsets, timestamps, kinds = zip(*found[begin : begin + ROWS], strict=True)
        count = len(offsets)
        columns: list[pa.Array] = [
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.repeat(wanted.topic, count),
            pa.repeat(pa.scalar(wanted.partition, pa.int32()), count),
            pa.array(offsets, pa.int64()),
            pa.array([timestamp * 1000 for timestamp in timestamps], pa.timestamp("us", "UTC")),
            pa.array(kinds, pa.int32()),
        ]
        if wanted.with_headers:
            columns.append(pa.nulls(count, wanted.schema.field("headers").type))
        yield pa.RecordBatch.from_arrays(columns, schema=wanted.schema)

"""Record batches of message format 2 as Arrow columns: the hot path of the source. No I/O, no Spark.

A fetch response contains batches and a batch contains records. The walk over the records is compiled code where there
is any (`compiled_walk`), else numpy (`numpy_walk`); both give the same columns.

As in a consumer, these are omitted: control batches, records outside the requested offsets and, with read_committed,
the records of aborted transactions (KIP-98).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from ottla_broker.ports.disk import Buffer
from ottla_broker.records.batch import HEADER_BYTES, MAGIC, BatchHeader, batches, is_intact
from ottla_broker.records.compression import Codec, codec_of, decompress
from ottla_broker.records.control_records import ControlType, read_marker
from ottla_broker.records.errors import CorruptBatch, UnsupportedMessageFormat
from ottla_broker.records.formats import MAGIC_OFFSET
from ottla_pipeline.compiled.library import functions
from ottla_pipeline.reading import compiled_walk, numpy_walk
from ottla_pipeline.reading.decoded import HEADERS, BatchRecords, Decode, Kept

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

_FIRST_OFFSET, _LAST_OFFSET = -(2**63), 2**63 - 1
"""The least and largest offset: every record of a batch, whatever it says."""


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


def walk() -> Decode:
    """The walk of this process: `compiled.library` says which one, and why."""
    compiled = functions()
    return numpy_walk.decode if compiled is None else compiled_walk.decoder(compiled)


def columns(answer: Buffer, chosen: Chosen, wanted: Wanted, decode: Decode | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of the chosen batches as Arrow batches of `wanted.schema`, in the order of offsets.

    `decode` is the walk over their records, None that of this process. `answer` may be written over once the
    iterator has ended: nothing in the batches points into it.

    Raises:
        CorruptBatch: a checksum does not fit, or records do not fit their batch.
        UnsupportedCompression, BatchTooLarge: see `records.compression`.
    """
    view = memoryview(answer)
    decode = decode or walk()
    group: list[BatchRecords] = []
    parts: list[Buffer] = []
    filled = 0
    only_plain = all(header.codec == Codec.NONE for _, header in chosen.batches)
    for position, header in chosen.batches:
        end = position + header.size
        if wanted.checks_crcs and not is_intact(view[position:end]):
            raise CorruptBatch(f"the checksum of the batch at offset {header.base_offset} does not fit")
        if only_plain:
            group.append(BatchRecords(position + HEADER_BYTES, end, header))
            filled += header.size
        else:
            payload = view[position + HEADER_BYTES : end]
            codec = codec_of(header.attributes)
            part: Buffer = payload if codec is Codec.NONE else decompress(codec, payload, _MAX_BATCH_BYTES)
            group.append(BatchRecords(filled, filled + len(part), header))
            parts.append(part)
            filled += len(part)
        if filled >= _GROUP_BYTES:
            yield from _rows(view if only_plain else b"".join(parts), group, wanted, decode)
            group, parts, filled = [], [], 0
    if group:
        yield from _rows(view if only_plain else b"".join(parts), group, wanted, decode)


def _rows(data: Buffer, group: Sequence[BatchRecords], wanted: Wanted, decode: Decode) -> Iterator[pa.RecordBatch]:
    """Arrow batches of one group, whose records are in `data`."""
    is_within = wanted.start <= group[0].header.base_offset and group[-1].header.last_offset < wanted.end
    first, last = (_FIRST_OFFSET, _LAST_OFFSET) if is_within else (wanted.start, wanted.end - 1)
    decoded = decode(data, group, Kept(first, last, wanted.with_headers))
    rows = len(decoded.offsets)
    if not rows:
        return
    arrays: list[pa.Array] = [
        decoded.keys,
        decoded.values,
        pa.repeat(wanted.topic, rows),
        pa.repeat(pa.scalar(wanted.partition, pa.int32()), rows),
        pa.array(decoded.offsets),
        pa.Array.from_buffers(pa.timestamp("us", "UTC"), rows, [None, pa.py_buffer(decoded.timestamps_us)]),
        pa.array(decoded.timestamp_types),
    ]
    if decoded.headers is not None:
        arrays.append(decoded.headers)
    batch = pa.RecordBatch.from_arrays(arrays, schema=wanted.schema)
    for begin in range(0, rows, ROWS):
        yield batch.slice(begin, ROWS)

"""Rows on their way to record batches: which partition each goes to, and where one batch ends. Pure.

Rows of one partition keep their order. A batch holds rows of one call only: whoever calls collects rows first
(`MIN_BYTES`), so that batches become large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla_broker.records.batch import HEADER_BYTES
from ottla_broker.records.compression import Codec
from ottla_pipeline.compiled.library import Functions
from ottla_pipeline.errors import ColumnError, RecordError
from ottla_pipeline.sink.partitioner import partitions_of_keys
from ottla_pipeline.sink.plain_batch import PlainBatch
from ottla_pipeline.sink.record_encoding import Int64s, Rows, encode, octets_of, sizes, taken
from ottla_pipeline.sink.row_columns import Destinations
from ottla_pipeline.topic_partition import TopicPartition

MIN_BYTES = 8 * 1024 * 1024
"""So many bytes of rows are collected before they are made batches: with 16 partitions half a megabyte each."""


class Limits(NamedTuple):
    """How large a batch becomes, and how it is compressed."""

    batch_bytes: int
    """Before compression; a single record may be larger."""
    request_bytes: int
    """max.request.size: of a single record."""
    codec: Codec
    level: int | None


class Batching:
    """Makes record batches of rows. Its only state is the partition that rows without a key go to next."""

    def __init__(
        self,
        limits: Limits,
        partition_count: Callable[[str], int],
        first_sticky: int,
        compiled: Functions | None = None,
    ) -> None:
        """`partition_count` gives a topic's number of partitions, or raises; `first_sticky` is any number; `compiled`
        are the functions that write the records, None for numpy."""
        self.limits = limits
        self._compiled = compiled
        self._partition_count = partition_count
        self._sticky = first_sticky

    def batches(
        self, rows: Rows, destinations: Destinations, first_row: int
    ) -> Iterator[tuple[TopicPartition, PlainBatch]]:
        """Batches of all rows, in the order of the rows in each partition.

        Raises:
            ColumnError: a partition that the topic does not have.
            RecordError: a record larger than max.request.size.
            What `partition_count` raises.
        """
        if isinstance(destinations.topic, str):
            yield from self._of_topic(
                destinations.topic, rows, destinations.partitions, np.arange(len(rows.values)) + first_row
            )
            return
        encoded = destinations.topic.dictionary_encode()
        indices = np.asarray(encoded.indices)
        for number, topic in enumerate(encoded.dictionary.to_pylist()):
            chosen = np.flatnonzero(indices == number)
            partitions = None if destinations.partitions is None else destinations.partitions.take(pa.array(chosen))
            yield from self._of_topic(topic, taken(rows, chosen), partitions, chosen + first_row)

    def _of_topic(
        self, topic: str, rows: Rows, explicit: pa.Int32Array | None, row_numbers: Int64s
    ) -> Iterator[tuple[TopicPartition, PlainBatch]]:
        count = self._partition_count(topic)
        row_sizes = sizes(rows)
        too_large = np.flatnonzero(row_sizes + HEADER_BYTES > self.limits.request_bytes)
        partitions = self._partitions(topic, rows, explicit, count, row_sizes, row_numbers)
        if len(too_large):
            at = int(too_large[0])
            raise RecordError(
                f"the record of row {int(row_numbers[at])} for {TopicPartition(topic, int(partitions[at]))} has"
                f" {int(row_sizes[at]) + HEADER_BYTES} bytes, kafka.max.request.size is {self.limits.request_bytes}"
            )
        order: Int64s | None = None
        if (partitions[1:] < partitions[:-1]).any():
            # numpy sorts 16 bits in linear time, and more of them by comparing.
            order = np.argsort(partitions.astype(np.int16) if count <= _INT16_MAX else partitions, kind="stable")
            partitions, row_sizes = partitions[order], row_sizes[order]
        behind = np.cumsum(row_sizes)
        begin = 0
        while begin < len(partitions):
            # As much as one join may hold; whole runs of a partition are then cut into batches.
            end = min(begin + _rows_within(behind, begin, _GROUP_BYTES), len(partitions))
            counts, where = _cut(partitions[begin:end], row_sizes[begin:end], self.limits.batch_bytes)
            part = order[begin:end] if order is not None else None
            if part is None and (begin, end) != (0, len(partitions)):
                part = np.arange(begin, end)
            batches = encode(rows, counts, self.limits.codec, self.limits.level, part, self._compiled)
            for partition, batch in zip(where, batches, strict=True):
                yield TopicPartition(topic, partition), batch
            begin = end

    def _partitions(
        self, topic: str, rows: Rows, explicit: pa.Int32Array | None, count: int, row_sizes: Int64s, numbers: Int64s
    ) -> Int64s:
        """The partition of each row: its own, that of its key, or the sticky one."""
        found = np.full(len(row_sizes), -1, np.int64)
        if explicit is not None and explicit.null_count < len(explicit):
            given = np.asarray(explicit.fill_null(0)).astype(np.int64)
            wrong = np.flatnonzero((given < 0) | (given >= count))
            if len(wrong):
                at = int(wrong[0])
                raise ColumnError(
                    "partition",
                    f"is {int(given[at])} in row {int(numbers[at])} of its task, topic {topic!r} has 0 to {count - 1}",
                )
            is_given = np.asarray(pc.is_valid(explicit))
            found[is_given] = given[is_given]
        open_rows = found < 0
        if rows.keys.null_count < len(rows.keys) and open_rows.any():
            keyed = np.flatnonzero(open_rows & np.asarray(pc.is_valid(rows.keys)))
            octets, bounds = octets_of(rows.keys)
            found[keyed] = partitions_of_keys(octets, bounds[keyed], bounds[keyed + 1], count, self._compiled)
            open_rows[keyed] = False
        if open_rows.any():
            places = np.flatnonzero(open_rows)
            filled = np.cumsum(row_sizes[places])
            turns = (filled - 1) // min(self.limits.batch_bytes, max(int(filled[-1]) // count, _STICKY_BYTES))
            found[places] = (self._sticky + turns) % count
            self._sticky = int(self._sticky + turns[-1] + 1) % count
        return found


_GROUP_BYTES = 64 * 1024 * 1024
_INT16_MAX = 2**15 - 1
_STICKY_BYTES = 16 * 1024
"""batch.size of Java's producer: so much of rows without key goes to one partition at least."""


def _cut(partitions: Int64s, row_sizes: Int64s, batch_bytes: int) -> tuple[list[int], list[int]]:
    """How many rows each batch has, and its partition; `partitions` ascend.

    >>> _cut(np.array([0, 0, 0, 1]), np.array([40, 40, 40, 90]), 80)
    ([2, 1, 1], [0, 0, 1])
    """
    counts: list[int] = []
    where: list[int] = []
    behind = np.cumsum(row_sizes)
    changes = np.flatnonzero(np.diff(partitions)) + 1
    ends = [*changes.tolist(), len(partitions)]
    begin = 0
    for end in ends:
        while begin < end:
            count = min(_rows_within(behind, begin, batch_bytes), end - begin)
            counts.append(count)
            where.append(int(partitions[begin]))
            begin += count
    return counts, where


def _rows_within(behind: Int64s, begin: int, limit: int) -> int:
    """How many rows from `begin` on have at most `limit` bytes, at least one; `behind` adds up the sizes."""
    before = int(behind[begin - 1]) if begin else 0
    return max(int(np.searchsorted(behind, before + limit, side="right")) - begin, 1)

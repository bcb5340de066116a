"""The streaming side of the data source: what Spark calls to plan micro-batches and to read them. Imports pyspark.

Spark keeps one reader per query in a Python process of the driver, and pickles another one for the executors.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ottla_pipeline.reading.batch import RangePartition
from ottla_pipeline.reading.options import ReadOptions
from ottla_pipeline.reading.plain_errors import plainly
from ottla_pipeline.reading.sizes import offset_bytes
from ottla_pipeline.reading.stream_offsets import from_json, to_json
from ottla_pipeline.reading.stream_planner import StreamPlanner
from ottla_pipeline.reading.topic_ids import GROUP_SUFFIX
from ottla_pipeline.wire.cluster import Cluster
from ottla_pipeline.wire.group_progress import GroupProgress
from ottla_pipeline.worker_memory import exempt_loaded_modules

if TYPE_CHECKING:
    import pyarrow as pa


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("ottla")`; see `stream_planner` for what a batch reads."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._kept: StreamPlanner | None = None

    def __getstate__(self) -> ReadOptions:
        return self._options

    def __setstate__(self, options: ReadOptions) -> None:
        self._options = options
        self._kept = None

    @plainly
    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins."""
        return to_json(self._planner().initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        """One of the limits: Spark has no list of them for a Python source. `latestOffset` applies them all."""
        limits = self._options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        return ReadAllAvailable() if limits.min_offsets is None else ReadMinRows(limits.min_offsets)

    @plainly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends. Trigger.Once asks for all that is there, whatever the options say."""
        found = self._planner().latest(from_json(start), unlimited=isinstance(limit, ReadAllAvailable))
        return to_json(found)

    @plainly
    def reportLatestOffset(self) -> dict[str, Any]:
        """Where the logs end: `latestOffset` of Spark's progress."""
        return to_json(self._planner().ends_now())

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:
        """Records where the logs end now; nothing behind it is read by this run."""
        self._planner().freeze()

    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch."""
        return [RangePartition(found) for found in self._planner().ranges(from_json(start), from_json(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; see `fetch.read` for the errors."""
        from ottla_pipeline.reading import fetch  # pyarrow and numpy: only tasks need them

        assert isinstance(partition, RangePartition) and partition.range is not None
        yield from fetch.read(partition.range, self._options)
        exempt_loaded_modules()

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: `latestOffset` commits, which Spark calls after the last batch too."""

    def _planner(self) -> StreamPlanner:
        if self._kept is None:
            connecting = self._options.connecting
            cluster = Cluster(connecting)
            group_id = self._options.group_id
            group, id_store = (
                None if group_id is None else GroupProgress(cluster, group_id + suffix) for suffix in ("", GROUP_SUFFIX)
            )
            self._kept = StreamPlanner(
                self._options,
                cluster,
                group,
                id_store,
                sizes=lambda positions: offset_bytes(cluster, positions),
                clock_ms=lambda: time.monotonic() * 1000,
                pause=lambda: time.sleep(connecting.retry_interval_ms / 1000),
            )
        return self._kept

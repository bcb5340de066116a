"""The batch side of the data source: what Spark calls to plan a read and, on executors, to read. Imports pyspark."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ottla_pipeline.reading.offset_range import OffsetRange
from ottla_pipeline.reading.options import Assign, ReadOptions
from ottla_pipeline.reading.plain_errors import plainly
from ottla_pipeline.reading.plan import plan
from ottla_pipeline.topic_partition import TopicPartition
from ottla_pipeline.wire.cluster import Cluster
from ottla_pipeline.worker_memory import exempt_loaded_modules

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RangePartition(InputPartition):
    """One task: a range, None where nothing was there to plan.

    Spark plans a DataFrame once and reads it at each action. One task therefore also reads the partitions that have
    come since: all but `planned`. It is None in the other tasks.
    """

    range: OffsetRange | None
    planned: frozenset[TopicPartition] | None = None


class BatchReader(DataSourceReader):
    """Plans one task per topic partition (more with minPartitions) and reads them."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        """Asks the cluster which offsets there are; see `plan.plan` for the errors."""
        for option in self._options.ignored:
            _log.warning("option %s has no effect on a batch read", option)
        connecting = self._options.connecting
        with Cluster(connecting) as cluster:
            ranges = plan(self._options, cluster, connecting.addresses)
        planned = frozenset(found.partition for found in ranges)
        is_fixed = isinstance(self._options.topics, Assign) and len(planned) == len(self._options.topics.partitions)
        return [
            *(RangePartition(found) for found in ranges[:-1]),
            RangePartition(ranges[-1] if ranges else None, None if is_fixed else planned),
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; see `fetch.read` for the errors."""
        from ottla_pipeline.reading import fetch  # pyarrow and numpy: only tasks need them

        assert isinstance(partition, RangePartition)
        if partition.range is not None:
            yield from fetch.read(partition.range, self._options)
        if partition.planned is not None:
            yield from self._read_what_came(partition.planned)
        exempt_loaded_modules()

    def _read_what_came(self, planned: frozenset[TopicPartition]) -> Iterator[pa.RecordBatch]:
        from ottla_pipeline.reading import fetch

        connecting = self._options.connecting
        with Cluster(connecting) as cluster:
            ranges = plan(self._options, cluster, connecting.addresses, but=planned)
        for found in ranges:
            yield from fetch.read(found, self._options)

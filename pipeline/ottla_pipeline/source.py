"""The data source "ottla", called by Spark. The only module here that imports pyspark.

Planning runs in a Python process of the driver, reading in one process per task of the executors. The reader and its
ranges are pickled between them, so they contain values only.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla_pipeline.errors import OptionError, PipelineError
from ottla_pipeline.reading import fetch
from ottla_pipeline.reading.options import ReadOptions, parse
from ottla_pipeline.reading.plan import OffsetRange, plan
from ottla_pipeline.sink.writers import batch_writer, stream_writer
from ottla_pipeline.wire.cluster import Cluster

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger(__name__)

_SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
_HEADERS = StructField(
    "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
)


def _plainly(function: Callable[P, T]) -> Callable[P, T]:
    """Spark prints the traceback of what a data source raises: an error that speaks for itself gets a short one."""

    @functools.wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return function(*arguments, **named)
        except PipelineError as error:
            raise error.with_traceback(None) from None

    return call


@dataclass(frozen=True)
class RangePartition(InputPartition):
    """One task."""

    range: OffsetRange


def _schema(options: ReadOptions) -> StructType:
    return StructType([*_SCHEMA.fields, _HEADERS]) if options.include_headers else _SCHEMA


class OttlaDataSource(DataSource):
    """`spark.read.format("ottla")`: the rows and options of Spark's own Kafka connector."""

    @classmethod
    def name(cls) -> str:
        return "ottla"

    @_plainly
    def schema(self) -> StructType:
        return _schema(parse(self.options))

    @_plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        """OptionError for options that are wrong, and for a schema given by the user."""
        options = parse(self.options)
        own = _schema(options)
        if schema != own:
            raise OptionError("schema", f"cannot be chosen, it is always {own.simpleString()}")
        return BatchReader(options)

    @_plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """The writer of `df.write.format("ottla")`."""
        return batch_writer(self.options, schema, overwrite)

    @_plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """The writer of `writeStream.format("ottla")`, in each output mode: a topic is only appended to."""
        return stream_writer(self.options, schema)


class BatchReader(DataSourceReader):
    """Plans one task per topic partition (more with minPartitions) and reads them."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    @_plainly
    def partitions(self) -> Sequence[InputPartition]:
        """Asks the cluster which offsets there are; see `plan.plan` for the errors."""
        for option in self._options.ignored:
            _log.warning("option %s has no effect on a batch read", option)
        connecting = self._options.connecting
        with Cluster(connecting) as cluster:
            return [RangePartition(found) for found in plan(self._options, cluster, connecting.addresses)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; see `fetch.read` for the errors."""
        if not isinstance(partition, RangePartition):
            return iter(())  # where nothing was planned, Spark runs one task with a partition of its own
        return fetch.read(partition.range, self._options)

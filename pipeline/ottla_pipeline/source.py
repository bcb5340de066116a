"""The data source "ottla", called by Spark.

Planning runs in a Python process of the driver, reading in one process per task of the executors. The reader and its
ranges are pickled between them, so they contain values only. Spark starts several Python processes for one read or
write, and each imports this module: it loads readers and writers only where they are asked for.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
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

from ottla_pipeline.errors import OptionError
from ottla_pipeline.option_values import boolean
from ottla_pipeline.reading.options import ReadOptions, check_names, parse, parse_stream
from ottla_pipeline.reading.plain_errors import plainly

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


_SCHEMA_WITH_HEADERS = StructType([*_SCHEMA.fields, _HEADERS])


class OttlaDataSource(DataSource):
    """`spark.read.format("ottla")` and `readStream`: the rows and options of Spark's own Kafka connector."""

    @classmethod
    def name(cls) -> str:
        return "ottla"

    @plainly
    def schema(self) -> StructType:
        check_names(self.options)
        return _SCHEMA_WITH_HEADERS if boolean(self.options, "includeHeaders", False) else _SCHEMA

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        """OptionError for options that are wrong, and for a schema given by the user."""
        from ottla_pipeline.reading.batch import BatchReader

        return BatchReader(self._checked(schema, parse(self.options)))

    @plainly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """OptionError likewise."""
        from ottla_pipeline.reading.stream import StreamReader

        return StreamReader(self._checked(schema, parse_stream(self.options)))

    def _checked(self, schema: StructType, options: ReadOptions) -> ReadOptions:
        own = self.schema()
        if schema != own:
            raise OptionError("schema", f"cannot be chosen, it is always {own.simpleString()}")
        return options

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """The writer of `df.write.format("ottla")`."""
        from ottla_pipeline.sink.writers import batch_writer

        return batch_writer(self.options, schema, overwrite)

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """The writer of `writeStream.format("ottla")`, in each output mode: a topic is only appended to."""
        from ottla_pipeline.sink.writers import stream_writer

        return stream_writer(self.options, schema)

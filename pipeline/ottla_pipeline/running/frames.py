"""The DataFrames of a pipeline: the view `source`, a view for each step, and what goes to the sink. Imports pyspark."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla_documents.kafka_pipeline import KafkaPipeline
from ottla_documents.pipeline_sink import TopicSink
from ottla_documents.pipeline_source import CORRUPT_RECORD, FileSource, TopicSource
from ottla_documents.pipeline_steps import ERROR_COLUMN, SOURCE_VIEW, PythonStep, SqlStep
from ottla_pipeline.errors import PipelineError
from ottla_pipeline.running.dead_letters import SINK_COLUMNS, dead_letters, sorted_rows
from ottla_pipeline.running.failure_reasons import failure_reason
from ottla_pipeline.running.query_options import file_options, topic_options
from ottla_pipeline.running.spark_errors import SPARK_ERRORS, pipeline_error
from ottla_pipeline.sink.column_types import check_columns

_Planned = TypeVar("_Planned")

_RAW = "_ottla_raw"
_FILE = "_ottla_file"
_LINES = ("json", "csv")
"""Formats of files whose lines are read one by one, so that a line that is none of them is a dead letter."""


class StepError(PipelineError):
    """A field of the document that Spark or the user's own code refuses; the message begins with its path."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


@dataclass(frozen=True)
class Frames:
    """`rows`: the view of the sink, with ERROR_COLUMN where a step marks rows that have failed. `unreadable`: dead
    letters of what is not of the source's schema."""

    pipeline: str
    views: dict[str, DataFrame]
    rows: DataFrame
    unreadable: DataFrame | None

    @property
    def has_dead_letters(self) -> bool:
        return self.unreadable is not None or ERROR_COLUMN in self.rows.columns

    @property
    def result(self) -> DataFrame:
        """The rows of the sink."""
        if ERROR_COLUMN not in self.rows.columns:
            return self.rows
        return self.rows.where(F.col(ERROR_COLUMN).isNull()).drop(ERROR_COLUMN)

    @property
    def dead(self) -> DataFrame:
        """Records for the topic of dead letters, without a topic column, of which there are some kind."""
        parts = [] if self.unreadable is None else [self.unreadable]
        if ERROR_COLUMN in self.rows.columns:
            failed = self.rows.where(F.col(ERROR_COLUMN).isNotNull())
            parts.append(dead_letters(failed, self.pipeline, F.col(ERROR_COLUMN)))
        return reduce(DataFrame.unionByName, parts)

    def with_dead_letters(self, topic: str, dead_topic: str) -> DataFrame:
        """Rows of the sink and dead letters as one frame with a topic column: one query, and one transaction, for both.

        What steps mark is sorted in one pass. What is not of the schema never enters the steps, so it is a second
        branch, for which Spark reads the source once more.
        """
        if ERROR_COLUMN in self.rows.columns:
            records = sorted_rows(self.rows, self.pipeline, topic, dead_topic)
        else:
            there = {name: kind for name, kind in SINK_COLUMNS.items() if name in self.rows.columns}
            columns = [F.col(name).cast(kind).alias(name) for name, kind in there.items()]
            records = self.rows.select(*columns, F.lit(topic).alias("topic"))
        if self.unreadable is None:
            return records
        return records.unionByName(self.unreadable.withColumn("topic", F.lit(dead_topic)), allowMissingColumns=True)


def build_frames(spark: SparkSession, pipeline: KafkaPipeline, brokers: Mapping[str, str]) -> Frames:
    """Plans the pipeline up to its sink. StepError names the field that cannot be planned."""
    source, dead = _source(spark, pipeline, brokers)
    views: dict[str, DataFrame] = {}

    def declare(name: str, frame: DataFrame, path: str) -> None:
        mark = pipeline.watermark
        if mark is not None and mark.view.lower() == name.lower():
            frame = planned(
                "spec.watermark.column", lambda: frame.withWatermark(mark.column, f"{mark.delay_ms} milliseconds")
            )
        planned(path, lambda: frame.createOrReplaceTempView(name))
        views[name.lower()] = frame

    declare(SOURCE_VIEW, source, "spec.source")
    for index, step in enumerate(pipeline.steps):
        path = f"spec.steps[{index}]"
        if isinstance(step, SqlStep):
            declare(step.name, planned(f"{path}.sql", partial(spark.sql, step.sql)), f"{path}.sql")
        else:
            declare(step.name, _called(step, views[step.view.lower()], f"{path}.python"), f"{path}.python")
    rows = views[pipeline.sink.view.lower()]
    if not rows.isStreaming:
        raise StepError("spec.sink.from", f"the view {pipeline.sink.view} reads nothing of the source")
    if ERROR_COLUMN in rows.columns and not pipeline.dead_letters:
        raise StepError("spec.deadLetters", f"is required for the column {ERROR_COLUMN} of {pipeline.sink.view}")
    if isinstance(pipeline.sink.target, TopicSink):
        types = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
        try:
            check_columns(types, pipeline.sink.target.topic)
        except PipelineError as error:
            raise StepError("spec.sink.from", f"view {pipeline.sink.view}: {error}") from None
    return Frames(pipeline.name, views, rows, dead)


def _source(
    spark: SparkSession, pipeline: KafkaPipeline, brokers: Mapping[str, str]
) -> tuple[DataFrame, DataFrame | None]:
    """The view `source`, and the dead letters of what is not of its schema."""
    source = pipeline.source
    if isinstance(source, FileSource):
        return _without_dead_letters(pipeline, _files(spark, source))
    rows, dead = _without_dead_letters(pipeline, _topics(spark, source, brokers))
    return (_table(rows, is_whole=pipeline.sink.output_mode == "complete") if source.is_table else rows), dead


def _without_dead_letters(pipeline: KafkaPipeline, rows: DataFrame) -> tuple[DataFrame, DataFrame | None]:
    if CORRUPT_RECORD not in rows.columns:
        return rows, None
    if not pipeline.dead_letters:
        return rows.drop(_RAW, _FILE), None
    bad = rows.where(F.col(CORRUPT_RECORD).isNotNull())
    if isinstance(pipeline.source, TopicSource):
        bad = bad.select("key", "topic", "partition", "offset", F.col(_RAW).alias("value"))
    else:
        bad = bad.select(F.col(_FILE).alias("file"), F.col(_RAW).alias("value"))
    what = F.lit("is not of the schema in spec.source")
    good = rows.where(F.col(CORRUPT_RECORD).isNull()).drop(CORRUPT_RECORD, _RAW, _FILE)
    return good, dead_letters(bad, pipeline.name, what)


def _table(rows: DataFrame, *, is_whole: bool) -> DataFrame:
    """The latest record of each key: the one with the highest offset, which is the one that compaction keeps (Apache
    Kafka's Cleaner). A record without a key is of no table (KTableSource).

    Args:
        rows: the records of one topic.
        is_whole: each batch has the whole table, so that a key with a tombstone is not there; else what has changed,
            and a deleted key has a row with null as value.
    """
    columns = [name for name in rows.columns if name != "key"]
    latest = F.max_by(F.struct(*columns), "offset").alias("latest")
    table = rows.where(F.col("key").isNotNull()).groupBy("key").agg(latest).select("key", "latest.*")
    if not is_whole:
        return table
    is_there = F.col("value").isNotNull()
    return table.where(is_there | F.col(CORRUPT_RECORD).isNotNull() if CORRUPT_RECORD in columns else is_there)


def _topics(spark: SparkSession, source: TopicSource, brokers: Mapping[str, str]) -> DataFrame:
    reader = spark.readStream.format("ottla").options(**topic_options(source, brokers))
    rows = planned("spec.source", reader.load)
    if source.value.format == "text":
        return rows.withColumn("value", F.col("value").cast("string"))
    if source.value.format != "json":
        return rows
    rows = rows.withColumnRenamed("value", _RAW)
    return planned("spec.source.value.schema", lambda: _parsed(rows, "json", source.value.schema))


def _files(spark: SparkSession, source: FileSource) -> DataFrame:
    if Path(source.path).is_file():
        raise StepError("spec.source.files.path", f"{source.path} is a file; files that appear in a folder are read")
    is_text = source.format in _LINES
    reader = spark.readStream.format("text" if is_text else source.format).options(**file_options(source))
    if source.schema and not is_text:
        planned("spec.source.files.schema", lambda: reader.schema(source.schema))
    rows = planned("spec.source.files", lambda: reader.load(source.path))
    if not is_text:
        return rows
    lines = rows.where(F.trim("value") != "")  # a blank line is no row, as in Spark's own readers
    lines = lines.select(F.col("value").alias(_RAW), F.col("_metadata.file_path").alias(_FILE))
    parsed = planned("spec.source.files.schema", lambda: _parsed(lines, source.format, source.schema))
    return parsed.select("value.*", CORRUPT_RECORD, _RAW, _FILE)


def _parsed(rows: DataFrame, kind: str, schema: str) -> DataFrame:
    """The rows with `value`, a struct of the text in `_RAW`, and the text itself in CORRUPT_RECORD where it is none."""
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT_RECORD}
    text = F.col(_RAW).cast("string")
    parse = F.from_csv if kind == "csv" else F.from_json
    rows = rows.withColumn("value", parse(text, f"{schema}, {CORRUPT_RECORD} string", options))
    is_empty = F.col(_RAW).isNotNull() & F.col("value").isNull()  # from_json makes null of an empty text
    rows = rows.withColumn(CORRUPT_RECORD, F.when(is_empty, text).otherwise(F.col(f"value.{CORRUPT_RECORD}")))
    return rows.withColumn("value", F.col("value").dropFields(CORRUPT_RECORD))


def _called(step: PythonStep, rows: DataFrame, path: str) -> DataFrame:
    module, _, name = step.function.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except AttributeError:
        raise StepError(path, f"the module {module} has no {name}") from None
    except (Exception, SystemExit) as error:
        raise StepError(path, f"{module} cannot be imported: {type(error).__name__}: {error}") from None
    try:
        found = function(rows)
    except (Exception, SystemExit) as error:
        raise StepError(path, f"{step.function} failed: {type(error).__name__}: {failure_reason(str(error))}") from None
    if not isinstance(found, DataFrame):
        raise StepError(path, f"{step.function} must return a DataFrame, not {type(found).__name__}")
    return found


def planned(path: str, plan: Callable[[], _Planned]) -> _Planned:
    """The result of a call that Spark may refuse; the refusal, a StepError, names the field."""
    try:
        return plan()
    except SPARK_ERRORS as error:
        raise pipeline_error(error, partial(StepError, path)) from None

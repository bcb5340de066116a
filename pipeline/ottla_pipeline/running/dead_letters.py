"""Rows that cannot be read become records of another topic, and end no batch. Imports pyspark.

A dead letter has the record's own key and value, and says in headers where it comes from and what is wrong. The headers
have the names that Kafka Connect gives them (DeadLetterQueueReporter), with a prefix of our own.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ottla_documents.pipeline_steps import ERROR_COLUMN

PREFIX = "__ottla.errors."
_HEADERS = "array<struct<key:string,value:binary>>"
SINK_COLUMNS = {"key": "binary", "value": "binary", "headers": _HEADERS, "partition": "int", "timestamp": "timestamp"}
"""What a topic as a sink takes of a view, beside the topic."""


def dead_letters(rows: DataFrame, pipeline: str, error: Column) -> DataFrame:
    """The records for rows that have failed.

    Args:
        rows: with `value`, or any other columns, which become JSON; `key`, `topic`, `partition` and `offset` where the
            rows have them.
        pipeline: the name of the KafkaPipeline.
        error: a column with what is wrong.
    """
    return rows.select(*(column.alias(name) for name, column in _letter(rows, pipeline, error).items()))


def sorted_rows(rows: DataFrame, pipeline: str, topic: str, dead_topic: str) -> DataFrame:
    """Each row as a record of `topic`, or as a dead letter where ERROR_COLUMN is not null, with a column for the topic.

    One pass over the rows: two filters over them would be two branches of the query, each with a read of the source and
    a state of its own.
    """
    has_failed = F.col(ERROR_COLUMN).isNotNull()
    letter = _letter(rows, pipeline, F.col(ERROR_COLUMN))
    columns = [F.when(has_failed, F.lit(dead_topic)).otherwise(F.lit(topic)).alias("topic")]
    for name, kind in SINK_COLUMNS.items():
        if name in rows.columns or name in letter:
            row = F.col(name) if name in rows.columns else F.lit(None)
            dead = letter.get(name, F.lit(None))
            columns.append(F.when(has_failed, dead.cast(kind)).otherwise(row.cast(kind)).alias(name))
    return rows.select(*columns)


def _letter(rows: DataFrame, pipeline: str, error: Column) -> dict[str, Column]:
    """The columns of a dead letter for each of the rows."""
    columns = set(rows.columns)
    value = F.col("value")
    if "value" not in columns:
        value = F.to_json(F.struct(*(name for name in rows.columns if name != ERROR_COLUMN)))
    elif rows.schema["value"].dataType.typeName() not in ("binary", "string"):
        value = F.to_json(F.struct("value"))
    told = {"pipeline": F.lit(pipeline), "message": error.cast("string")}
    for name in ("topic", "partition", "offset", "file"):
        if name in columns:
            told[name] = F.col(name).cast("string")
    headers = F.array(
        *(
            F.struct(F.lit(PREFIX + name).alias("key"), text.cast("binary").alias("value"))
            for name, text in told.items()
        )
    )
    key = F.col("key") if "key" in columns else F.lit(None)
    return {"key": key.cast("binary"), "value": value.cast("binary"), "headers": headers.cast(_HEADERS)}

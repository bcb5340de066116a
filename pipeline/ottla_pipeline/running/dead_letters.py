"""Rows that cannot be read become records of another topic, and end no batch. Imports pyspark.

A dead letter has the record's own key and value, and says in headers where it comes from and what is wrong. The headers
have the names that Kafka Connect gives them (DeadLetterQueueReporter), with a prefix of our own.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ottla_operator.model.pipeline_steps import ERROR_COLUMN

PREFIX = "__ottla.errors."
_HEADERS = "array<struct<key:string,value:binary>>"


def dead_letters(rows: DataFrame, pipeline: str, error: Any) -> DataFrame:
    """The records for rows that have failed.

    Args:
        rows: with `value`, or any other columns, which become JSON; `key`, `topic`, `partition` and `offset` where the
            rows have them.
        pipeline: the name of the KafkaPipeline.
        error: a column with what is wrong.
    """
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
    key = F.col("key").cast("binary") if "key" in columns else F.lit(None).cast("binary")
    return rows.select(key.alias("key"), value.cast("binary").alias("value"), headers.cast(_HEADERS).alias("headers"))

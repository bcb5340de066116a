"""The table of which a topic is the changelog: python examples/table.py HOST:PORT TOPIC [SQL]

The latest value of each key; a tombstone deletes. SQL makes a text of the value, "cast(value as string)" unless another
one is given.
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import max_by

import pyspark_ottla  # noqa: F401


def read(bootstrap: str, topics: str) -> DataFrame:
    """The committed records of topics."""
    spark = SparkSession.builder.appName("examples").getOrCreate()
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topics, "kafka.isolation.level": "read_committed"}
    return spark.read.format("ottla").options(**options).load()


def table(rows: DataFrame) -> DataFrame:
    """The latest value of each key of one topic."""
    latest = rows.where("key is not null").groupBy("key").agg(max_by("value", "offset").alias("value"))
    return latest.where("value is not null")


def show(rows: DataFrame) -> None:
    """Prints the rows in the order of their columns."""
    rows.orderBy(*rows.columns).show(1000, truncate=False)


if __name__ == "__main__":
    text = sys.argv[3] if len(sys.argv) > 3 else "cast(value as string)"
    show(table(read(*sys.argv[1:3])).selectExpr("cast(key as string) key", f"{text} value"))

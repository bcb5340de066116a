"""Compares the counts of a topic here and there: python examples/audit.py HOST:PORT TOPIC HOST:PORT TOPIC

By the ten minutes of the records' timestamps. The exit code is 1 when any ten minutes differ.
"""

import sys

from pyspark.sql import DataFrame
from pyspark.sql.functions import count, window
from table import read, show


def counts(bootstrap: str, topic: str, name: str) -> DataFrame:
    """How many records a topic has of each ten minutes."""
    start = window("timestamp", "10 minutes").start.alias("since")
    return read(bootstrap, topic).groupBy(start).agg(count("*").alias(name))


both = counts(*sys.argv[1:3], "sent").join(counts(*sys.argv[3:5], "received"), "since", "full").na.fill(0)
both = both.selectExpr("since", "sent", "received", "sent - received missing").cache()
show(both)
sys.exit(both.where("missing != 0").count() > 0)

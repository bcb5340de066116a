"""Loads what is new in topics into dated folders: python examples/dated_folders.py HOST:PORT TOPICS FOLDER

One run reads what is there now. Each batch becomes FOLDER/loaded=DATE/batch=N, with Parquet files by topic and day and
the offsets in _offsets.json, by one rename: a run that is killed leaves all of it or nothing, and the next one goes on.
"""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from table import show

import pyspark_ottla  # noqa: F401

bootstrap, topics, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
spark = SparkSession.builder.appName("dated folders").getOrCreate()


def load(rows: DataFrame, batch_id: int) -> None:
    if any(folder.glob(f"loaded=*/batch={batch_id}")):
        return  # renamed by a run that was killed before Spark wrote it down
    fresh = folder / ".checkpoint" / "fresh"
    days = rows.selectExpr("*", "to_date(timestamp) day")
    days.write.mode("overwrite").partitionBy("topic", "day").parquet(str(fresh))
    ends = spark.read.parquet(str(fresh)).groupBy("topic", "partition").agg({"offset": "max"}).collect()
    (fresh / "_offsets.json").write_text(json.dumps({f"{t}-{p}": end + 1 for t, p, end in ends}))
    loaded = folder / f"loaded={datetime.now(UTC).date()}"
    loaded.mkdir(exist_ok=True)
    fresh.rename(loaded / f"batch={batch_id}")


options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topics, "kafka.isolation.level": "read_committed"}
rows = spark.readStream.format("ottla").options(**options, startingOffsets="earliest").load()
writer = rows.writeStream.foreachBatch(load).option("checkpointLocation", str(folder / ".checkpoint"))
writer.trigger(availableNow=True).start().awaitTermination()
if any(folder.glob("loaded=*/*")):
    show(spark.read.parquet(str(folder)).groupBy("topic", "day").count())

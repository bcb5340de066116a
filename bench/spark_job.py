"""One Spark process for the benchmark: reads and writes topics with one of the two connectors and reports the times.

`bench.spark_read` starts it as its own process, because a session cannot change its jars, and because memory and
compiled code of one connector must not affect the other. It reads one JSON object per line from standard input,
{"bootstrap", "topic"}, and writes {"rows", "bytes", "seconds"}. With {"records", "record_bytes"} in the object it
writes so many rows and answers {"seconds"}. With {"trigger_offsets", "checkpoint"} it reads the topic as a stream, so
many offsets in a micro-batch, and answers {"rows", "batches"}, the times of each batch in ms as Spark reports them. It
exits at the end of the input.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

WRITE_TASKS = 4


def main(connector: str, jars: str) -> None:
    """`connector` is "ottla" or "kafka"; `jars` the stock connector's, separated by commas, or ""."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if connector == "ottla":
        import pyspark_ottla  # noqa: F401
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[2]")
        .appName(f"bench-{connector}")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.streaming.numRecentProgressUpdates", "10000")
    )
    if jars:
        builder = builder.config("spark.jars", jars)
    spark = builder.getOrCreate()
    print(json.dumps({"ready": spark.version}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "records" in request:
            print(json.dumps({"seconds": write(spark, connector, request)}), flush=True)
            continue
        if "trigger_offsets" in request:
            print(json.dumps(stream(spark, connector, request)), flush=True)
            continue
        began = time.monotonic()
        reader = spark.read.format(connector).option("kafka.bootstrap.servers", request["bootstrap"])
        for name, value in request.get("options", {}).items():
            reader = reader.option(name, value)
        rows = reader.option("subscribe", request["topic"]).load()
        found = rows.selectExpr("count(*) AS rows", "sum(length(value)) AS bytes").first()
        assert found is not None
        answer = {"rows": found["rows"], "bytes": found["bytes"], "seconds": time.monotonic() - began}
        print(json.dumps(answer), flush=True)
    spark.stop()


def write(spark: Any, connector: str, request: dict[str, Any]) -> float:
    """The seconds that it takes to write rows with a key, which Spark makes, to a topic."""
    began = time.monotonic()
    value = f"rpad(cast(id as string), {request['record_bytes']}, 'abcdefghijklmnopqrstuvwxyz')"
    rows = spark.range(0, request["records"], 1, WRITE_TASKS).selectExpr("cast(id as string) key", f"{value} value")
    writer = rows.write.format(connector).option("kafka.bootstrap.servers", request["bootstrap"])
    writer.option("topic", request["topic"]).mode("append").save()
    return time.monotonic() - began


def stream(spark: Any, connector: str, request: dict[str, Any]) -> dict[str, Any]:
    """Reads a topic to its end in micro-batches, one right after the other, into a sink that drops the rows."""
    rows = (
        spark.readStream.format(connector)
        .option("kafka.bootstrap.servers", request["bootstrap"])
        .option("subscribe", request["topic"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", request["trigger_offsets"])
        .load()
    )
    query = (
        rows.writeStream.format("noop")
        .option("checkpointLocation", request["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches = [progress for progress in query.recentProgress if progress.numInputRows]
    return {
        "rows": sum(progress.numInputRows for progress in batches),
        "batches": [dict(progress.durationMs) for progress in batches],
    }


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")

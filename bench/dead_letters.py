"""What dead letters cost: `python -m bench.dead_letters`. One broker of ours, Spark in this process.

Four ways to take the values of a topic apart, each in one micro-batch into a sink that drops the rows:

    none        the values are parsed, and none is a dead letter
    marked      a step marks rows with `_error`
    schema      values that are not of the schema are dead letters: two branches of one query
    persisted   the same in `foreachBatch`: the batch is persisted, and both branches read that

`sent` is what the broker sends to consumers. `kept` is what Spark keeps of a persisted batch, in memory or on disk. The
first round pays for what starts up.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import tempfile
import time
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from ottla.testing import RunningCluster, cluster
from ottla_documents.documents import load_documents
from ottla_documents.kafka_pipeline import KafkaPipeline
from ottla_pipeline.running.frames import build_frames
from ottla_pipeline.running.query_options import broker_options, session_settings
from ottla_pipeline.running.session import open_session

ROUNDS = 3
RECORDS = 300_000
VALUE_BYTES = 200
BAD_OF = 1000
"""One of so many values is not of the schema."""
SCHEMA = "id long, name string, amount double"
DOCUMENT = f"""
apiVersion: kafka.ottla.dev/v1alpha1
kind: KafkaPipeline
metadata: {{name: orders}}
spec:
  bootstrapServers: 127.0.0.1:1
  source: {{topics: [orders], value: {{format: json, schema: "{SCHEMA}"}}}}
  steps: [{{name: records, sql: "SELECT key, to_json(value) AS value FROM source WHERE value.amount >= 0"}}]
  sink: {{topic: {{name: records}}}}
  deadLetters: {{topic: dead}}
"""
MARKED = f"""
  SELECT key, value, IF(from_json(value, '{SCHEMA}').amount IS NULL, 'is not of the schema', NULL) AS _error FROM source
"""


def fill(fleet: RunningCluster, records: int) -> None:
    """The topic `orders` of two partitions."""
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(60)
    producer = Producer({"bootstrap.servers": fleet.bootstrap, "linger.ms": 20})
    for number in range(records):
        name = random.randbytes((VALUE_BYTES - 50) // 2).hex()
        value = json.dumps({"id": number, "name": name, "amount": number % 100})
        while True:
            try:
                producer.produce("orders", key=str(number), value=value if number % BAD_OF else "{bad")
                break
            except BufferError:
                producer.poll(1)
    assert producer.flush(120) == 0


def sent(fleet: RunningCluster) -> float:
    """Bytes of `orders` that consumers have fetched."""
    with urllib.request.urlopen(f"http://{fleet.http(fleet.running[0])}/metrics") as answer:
        text = answer.read().decode()
    found = re.search(r'^kafka_server_brokertopicmetrics_bytesout_total\{topic="orders"\} (\S+)$', text, re.MULTILINE)
    return float(found[1]) if found else 0.0


class PersistedBatch:
    """A function of `foreachBatch`: both branches of a batch that is persisted. `kept`: its bytes."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.kept = 0

    def __call__(self, rows: DataFrame, batch: int) -> None:
        parsed = rows.withColumn("parsed", F.from_json(F.col("value").cast("string"), SCHEMA))
        parsed = parsed.persist(StorageLevel.MEMORY_AND_DISK)
        good = parsed.where("parsed.amount >= 0").select("key", F.to_json("parsed").cast("binary").alias("value"))
        bad = parsed.where("parsed.amount IS NULL").select("key", "value")
        good.unionByName(bad).write.format("noop").mode("append").save()
        stored: Any = self._spark.sparkContext._jsc.sc().getRDDStorageInfo()
        self.kept += sum(one.memSize() + one.diskSize() for one in stored)
        parsed.unpersist()


def frame(spark: SparkSession, way: str, pipeline: KafkaPipeline, bootstrap: str) -> DataFrame:
    """What one of the ways writes."""
    if way == "persisted":
        reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap)
        return reader.options(subscribe="orders", startingOffsets="earliest").load()
    brokers = broker_options(bootstrap, {})
    if way == "none":
        return build_frames(spark, replace(pipeline, dead_letters=""), brokers).result
    if way == "marked":
        text = replace(pipeline.source, value=replace(pipeline.source.value, format="text", schema=""))  # type: ignore
        pipeline = replace(pipeline, source=text, steps=(replace(pipeline.steps[0], sql=MARKED),))  # type: ignore
    return build_frames(spark, pipeline, brokers).with_dead_letters("records", "dead")


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    chosen = parser.parse_args()
    (pipeline,) = load_documents([("orders.yaml", DOCUMENT)]).pipelines
    table = Table("round", "way", "seconds", "rows", "sent MB", "kept MB")
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name, cluster() as fleet:
        fill(fleet, chosen.records)
        spark = open_session(session_settings("dead-letters", "local[2]", Path(name)), [])
        for number in range(chosen.rounds):
            for way in ("none", "marked", "schema", "persisted"):
                persisted, before = PersistedBatch(spark), sent(fleet)
                writer = frame(spark, way, pipeline, fleet.bootstrap).writeStream
                writer = writer.foreachBatch(persisted) if way == "persisted" else writer.format("noop")
                writer = writer.option("checkpointLocation", f"{name}/{way}-{number}").trigger(availableNow=True)
                begun = time.monotonic()
                query = writer.start()
                query.awaitTermination()
                seconds = time.monotonic() - begun
                rows = sum(progress.numInputRows for progress in query.recentProgress)
                megabytes = (sent(fleet) - before) / 1e6
                cells = (f"{seconds:.1f}", str(rows), f"{megabytes:.1f}", f"{persisted.kept / 1e6:.1f}")
                table.add_row(str(number), way, *cells)
        spark.stop()
    Console(width=100).print(table)


if __name__ == "__main__":
    main()

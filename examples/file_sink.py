"""Appends the values of topics to a file, each once: python examples/file_sink.py HOST:PORT TOPICS FILE

As Kafka Connect's FileStreamSink: a line for each record, in the order of its partition. It ends when all that is there
is written, and goes on there. FILE.state has Spark's checkpoint, and how long the file was before each batch.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from table import show

import pyspark_ottla  # noqa: F401

bootstrap, topics, file = sys.argv[1], sys.argv[2], Path(sys.argv[3])
state = Path(f"{file}.state")
spark = SparkSession.builder.appName("file sink").getOrCreate()


def append(rows: DataFrame, batch_id: int) -> None:
    begin = state / f"begin-{batch_id}"
    file.touch()
    if not begin.exists():
        (state / "new").write_text(str(file.stat().st_size))
        os.replace(state / "new", begin)
    with file.open("r+b") as lines:
        lines.truncate(int(begin.read_text()))  # what a run has written that was killed
        lines.seek(0, os.SEEK_END)
        for row in rows.orderBy("topic", "partition", "offset").toLocalIterator():
            lines.write((b"null" if row.value is None else row.value) + b"\n")
    (state / f"begin-{batch_id - 1}").unlink(missing_ok=True)


options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topics, "kafka.isolation.level": "read_committed"}
rows = spark.readStream.format("ottla").options(**options, startingOffsets="earliest").load()
writer = rows.writeStream.foreachBatch(append).option("checkpointLocation", str(state))
writer.trigger(availableNow=True).start().awaitTermination()
show(spark.read.text(str(file)).selectExpr("count(*) lines"))

"""Writes the lines of a file to a topic, each once: python examples/file_source.py FILE HOST:PORT TOPIC

As Kafka Connect's FileStreamSource: a record for each line, also for those that are appended later, without a key; a
line without its end waits. It ends when all is written, and goes on there: FILE.position has how far it came.
"""

import json
import os
import sys
import uuid
from pathlib import Path

from pyspark.sql import SparkSession
from table import read, show

CHUNK_BYTES = 16 * 1024 * 1024
file, bootstrap, topic = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
state = Path(f"{file}.position")
spark = SparkSession.builder.appName("file source").getOrCreate()


def save(position: dict[str, int | str]) -> None:
    Path(f"{state}.new").write_text(json.dumps(position))
    os.replace(f"{state}.new", state)


position = {"id": str(uuid.uuid4()), "batch": -1, "begin": 0, "end": 0}
if state.exists():
    position = json.loads(state.read_text())
while True:
    with file.open("rb") as lines:  # what was not written before a kill is written, and what was is skipped
        lines.seek(position["begin"])
        batch = lines.read(position["end"] - position["begin"]).splitlines()
        ahead = lines.read(CHUNK_BYTES)
    if batch:
        writer = spark.createDataFrame([(line,) for line in batch], "value binary").write.format("ottla")
        writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
        writer.options(txnAppId=position["id"], txnVersion=position["batch"]).mode("append").save()
    whole = ahead.rfind(b"\n") + 1
    if whole == 0:
        if file.stat().st_size < position["end"] or len(ahead) == CHUNK_BYTES:
            sys.exit(f"{file} is shorter than before, or has a line of more than {CHUNK_BYTES} bytes")
        break
    begin = position["end"]
    position |= {"batch": position["batch"] + 1, "begin": begin, "end": begin + whole}
    save(position)
show(read(bootstrap, topic).groupBy("partition").count())

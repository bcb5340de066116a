"""The steps of word-count.yaml over what is there now, as a batch: python examples/word_count.py HOST:PORT"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from table import read, show

from ottla_documents.documents import load_documents

document = Path(__file__).with_name("word-count.yaml")
(pipeline,) = load_documents([(document.name, document.read_text())]).pipelines
rows = read(sys.argv[1], "streams-plaintext-input")
rows.withColumn("value", rows.value.cast("string")).createOrReplaceTempView("source")
for step in pipeline.steps:
    rows = SparkSession.builder.getOrCreate().sql(step.sql)
    rows.createOrReplaceTempView(step.name)
show(rows.selectExpr("key", "conv(hex(value), 16, 10) value"))

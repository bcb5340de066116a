"""Spark pipelines over Kafka topics: the data source behind `spark.read.format("ottla")`.

Start with `source`, which Spark calls. `reading` is the source, `sink` the sink, `wire` the client of brokers that both
share. The broker's code decodes wire messages and record batches.
"""

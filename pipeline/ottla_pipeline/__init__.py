"""Spark pipelines over Kafka topics: the data source behind `spark.read.format("ottla")`.

Start with `source`, which Spark calls. `reading` is the source, `sink` the sink, `wire` the client of brokers that both
share. The broker's code decodes wire messages and record batches.
"""

from ottla_pipeline.worker_end import end_quietly_in_daemon

end_quietly_in_daemon()  # whatever of this package a Python process of Spark loads, it loads this first

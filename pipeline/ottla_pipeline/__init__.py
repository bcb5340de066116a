"""Spark pipelines over Kafka topics: the data source behind `spark.read.format("ottla")`.

Start with `source` (what Spark calls), then `options` (what a user may write), `plan` (which offsets, in which tasks),
`cluster` and `fetch` (the brokers, over blocking sockets) and `columns` (record batches to Arrow, the hot path). Spark
is imported by `source` alone. Wire messages and record batches are read by the broker's own code.
"""

"""Spark pipelines over Kafka topics: the data source behind `spark.read.format("ottla")`.

Start with `source` (called by Spark), then `options` (the user's options), `plan` (offsets and tasks), `cluster` and
`fetch` (requests over blocking sockets) and `columns` (record batches to Arrow, the hot path). Only `source` imports
Spark. The broker's code decodes wire messages and record batches.
"""

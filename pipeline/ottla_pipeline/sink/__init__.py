"""The Spark sink: rows become record batches, which are sent to the leaders of their partitions.

`writers` is what Spark calls, `record_encoding` the hot path, `delivery` sends. With exactly-once, tasks spool their
batches and the driver sends them in one transaction: `commit` has its steps, `marker` how a replay is recognised.
"""

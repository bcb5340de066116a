"""Compaction: the log cleaner (docs/internals/compaction.md).

`choice` (what to clean), `key_map` (the last offset of every key), `transactions` and `filtering` (what stays of a
batch) are pure. `job` runs them in a worker process; `cleaner` is the part on the broker's loop. How a cleaned segment
takes the place of others is `storage.replacing`, and what a start finishes of it `storage.swaps`.
"""

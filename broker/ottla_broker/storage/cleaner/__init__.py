"""Compaction: the log cleaner.

`selection` (which log), `key_map` (the last offset of every key), `transaction_view` and `filtering` (which records of
a batch are kept) are pure. `job` runs them in a worker process; `cleaner` runs on the broker's event loop. A cleaned
segment replaces others in `storage.log.segment_replacement`; `storage.files.swaps` finishes that after a crash.
docs/internals/compaction.md explains all of it.
"""

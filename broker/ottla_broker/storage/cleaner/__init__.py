"""Compaction: the log cleaner.

`selection` (which log), `key_map` (the last offset of every key), `transaction_view` and `filtering` (which records of
a batch are kept) are pure. `job` runs them in a worker process; `cleaner` runs on the broker's event loop. A cleaned
segment replaces others in `storage.log.segment_replacement`; `storage.files.swaps` finishes that after a crash.
docs/internals/compaction.md explains all of it.

What others may rely on:

- It is started after the logs are loaded and closed before they are closed; a replacement of segments that has begun
  is finished.
- `replace_segments` returns None when the log has changed since the cleaner looked at it: nothing was replaced.
- A job that agrees its steps with the broker runs as `workers.run(job, directory, ..., answer=)`, and is registered
  as `async def job(disk, ask, ...)`. Cancelling its future ends it at once.
"""

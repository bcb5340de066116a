"""The transaction coordinator (KIP-98): transactional ids, their transactions, and the markers that end them.

Pure: `states`, `decisions`, `machine`, `records`, `replay`, `markers`. Around them `coordinator` and
`marker_sender`.

What others may rely on:

- `coordinator.partitions` as for groups, of `__transaction_state`. A partition is served once all that was
  loaded from it is committed (`await_committed`); a request that awaits its record ends with NOT_COORDINATOR when it
  is unloaded.
- Rules: `transactions.machine`, one transition of a transactional id at a time. Its metadata change when the record
  is committed; the raised epoch of a fence counts at once.
- No marker is sent before the outcome is committed, and each partition comes back exactly once for each time that its
  marker is sent (`transactions.marker_sender`). `write_markers` raises ConnectionError and nothing else.
- A partition that the metadata do not have is deleted: it needs no marker. Before the first UpdateMetadata none is.
"""

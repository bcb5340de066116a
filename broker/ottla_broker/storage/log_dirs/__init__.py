"""The log directories of a broker (JBOD): their states, what lies in them, and all logs over them.

What others may rely on:

- The log manager is started in this order: `inspect`, `claim`, `load`, `start`; and ended with `close`.
- A directory is online, full or offline (`storage.log_dirs.states` has the table). Offline directories are not used,
  except by a probe. When one is reopened its `Disk` is another object: ask the log manager for the `Disk` of a path
  each time, and do not keep it.
- A log that is not assigned to this broker is a stray: its directory is renamed to `-stray`, and nothing deletes it.
  A deleted log is renamed to `-delete` at once and unlinked later.
- Future replicas (KIP-113). `log.state.future` is the future log, `None` almost always. `log.state.successor` is the
  log that has replaced this one: a replaced log refuses appends with NOT_LEADER_OR_FOLLOWER, passes truncations and log
  start offsets on, and serves reads for file.delete.delay.ms. So whoever keeps a `Log` across an await asks
  `partition.log` or the log manager again before it appends. `advance_log_start_offset` is done when the log and its
  future log have it. The cleaner leaves a log with a future log alone.
- Recreated replicas (docs/internals/decisions/0023-recreated-replicas.md). The replica registry (`ottla.directories`
  in every log directory, and a node of the coordination store) knows which replicas were recreated and where. A
  recreated replica that has not caught up answers KAFKA_STORAGE_ERROR when it is to lead.
"""

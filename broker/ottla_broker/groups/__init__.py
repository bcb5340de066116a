"""Classic consumer groups: membership, rebalances, and committed offsets kept in `__consumer_offsets`.

Inside out: `states`, `decisions`, `membership`, `machine`, `offsets`, `records`, `replay` are pure (values in, decision
out); `coordinator` puts timers, the log and waiting requests around them; the wire stands in `server.handlers`.

What others may rely on:

- `coordinator.partitions` (`internal_topics.owned_partitions`): `on_election` loads a partition of
  `__consumer_offsets`, `on_resignation` unloads it; an older leader epoch than the known one is ignored. `close`
  answers whoever waits with NOT_COORDINATOR.
- Whatever maps a group or a transactional id to a partition takes the number of partitions from
  `server.partition_counts`, never from the metadata
  (docs/internals/decisions/0108-the-partition-count-of-an-internal-topic.md).
- The log behind the coordinator (`internal_topics.topic_log`): `append` takes its place in the order during the call,
  never raises, and always completes. `read` returns every batch up to the end of the log.
- Rules need neither a log nor a clock: `groups.machine`, `groups.consumer`.
- A group is classic, or one of the consumer protocol; both kinds stand in one table, and a conversion replaces the
  live group and keeps its offsets. The records of the kind that it was get tombstones in the same batch as the first
  records of the kind that it becomes.
- A heartbeat of the consumer protocol is answered when the log has what it changed, and what was changed before it.
"""

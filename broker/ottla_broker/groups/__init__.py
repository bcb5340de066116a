"""Classic consumer groups: membership, rebalances, and committed offsets kept in `__consumer_offsets`.

Inside out: `states`, `decisions`, `membership`, `machine`, `offsets`, `records`, `replay` are pure (values in, decision
out); `coordinator` puts timers, the log and waiting requests around them; the wire stands in `server.handlers`.
"""

"""Logs on disk in Kafka 3.9's layout: segments, indexes, recovery, producer state, checkpoints, log directories.

Start with `log.Log` (appends) and `log_state` (the three positions). `log_manager.LogManager` holds all logs of a
broker. Nothing here touches a file but through the Disk port, and nothing knows the wire protocol beyond its error
codes; who asks for what stands in docs/internals/contracts.md.
"""

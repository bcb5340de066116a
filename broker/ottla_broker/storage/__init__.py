"""Logs on disk in the layout of Apache Kafka 3.9.

From the bottom up: `files` (formats, no policy), `log` (one partition's log; start with `log.log.Log`), `log_dirs` (all
logs of a broker; `log_manager.LogManager`), `cleaner` (compaction). Files are touched only through the Disk port, and
of the wire protocol only error codes are known here. `storage.log.log` describes the interface.
"""

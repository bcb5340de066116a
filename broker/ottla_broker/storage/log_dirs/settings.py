"""The broker-level configuration values of the log manager."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogManagerSettings:
    """Values named after their configuration keys, with the defaults of Apache Kafka 3.9. Times in ms."""

    log_retention_check_interval_ms: int = 300_000
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000
    num_recovery_threads_per_data_dir: int = 1
    num_replica_alter_log_dirs_threads: int | None = None
    """How many future replicas are copied at a time; None: as many as there are directories."""
    may_format: Collection[str] | None = None
    """`ottla.log.dirs.format`: the directories that may be formatted; None without the key: all."""
    reserve_bytes: int = 0
    """`ottla.log.dir.reserve.bytes`."""
    io_timeout_ms: int = 30_000
    """`ottla.log.dir.io.timeout.ms`."""
    max_partition_replicas: int | None = None
    """`ottla.max.partition.replicas`, or half of the limit of open files; None without a limit."""

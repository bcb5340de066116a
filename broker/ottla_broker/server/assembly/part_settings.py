"""What the parts of a broker get of its configuration, and what a failed start says about it."""

from __future__ import annotations

from ottla_broker.config import BrokerConfig
from ottla_broker.controller.decisions.capacity import max_partition_replicas
from ottla_broker.storage.cleaner.cleaner import CleanerSettings
from ottla_broker.storage.log_dirs.settings import LogManagerSettings


def log_manager_settings(config: BrokerConfig, open_files: int | None) -> LogManagerSettings:
    """`open_files` is how many files the process may hold open, None: unknown."""
    return LogManagerSettings(
        log_retention_check_interval_ms=config["log.retention.check.interval.ms"],
        log_flush_offset_checkpoint_interval_ms=config["log.flush.offset.checkpoint.interval.ms"],
        log_flush_start_offset_checkpoint_interval_ms=config["log.flush.start.offset.checkpoint.interval.ms"],
        num_recovery_threads_per_data_dir=config["num.recovery.threads.per.data.dir"],
        producer_id_expiration_ms=config["producer.id.expiration.ms"],
        producer_id_expiration_check_interval_ms=config["producer.id.expiration.check.interval.ms"],
        num_replica_alter_log_dirs_threads=config["num.replica.alter.log.dirs.threads"],
        may_format=config.formattable_log_dirs,
        reserve_bytes=config["ottla.log.dir.reserve.bytes"],
        io_timeout_ms=config["ottla.log.dir.io.timeout.ms"],
        max_partition_replicas=max_partition_replicas(config["ottla.max.partition.replicas"], open_files),
    )


def cleaner_settings(config: BrokerConfig) -> CleanerSettings:
    """As configured now: the cleaner asks before each run."""
    return CleanerSettings(
        enable=config["log.cleaner.enable"],
        threads=config["log.cleaner.threads"],
        backoff_ms=config["log.cleaner.backoff.ms"],
        dedupe_buffer_size=config["log.cleaner.dedupe.buffer.size"],
        io_buffer_size=config["log.cleaner.io.buffer.size"],
        io_buffer_load_factor=config["log.cleaner.io.buffer.load.factor"],
        io_max_bytes_per_second=config["log.cleaner.io.max.bytes.per.second"],
    )


def start_refusal(error: Exception) -> str:
    """Why a broker cannot start, naming the configuration that a person would look at."""
    if isinstance(error, OSError) and error.strerror:
        if error.filename:
            return f"log.dirs: {error.filename}: {error.strerror}"
        return f"listeners: {error.strerror}" if error.strerror.startswith("cannot listen") else error.strerror
    return str(error) or repr(error)

"""What the parts of a broker get of its configuration, and what a failed start says about it."""

from __future__ import annotations

from ottla_broker.config import BrokerConfig
from ottla_broker.controller.decisions.capacity import max_partition_replicas
from ottla_broker.storage.cleaner.cleaner import CleanerSettings
from ottla_broker.storage.log_dirs.settings import LogManagerSettings


def log_manager_settings(config: BrokerConfig, open_files: int | None) -> LogManagerSettings:
    """`open_files` is how many files the process may hold open, None: unknown."""
    return LogManagerSettings(
        log_retention_check_interval_ms=config.log_retention_check_interval_ms,
        log_flush_offset_checkpoint_interval_ms=config.log_flush_offset_checkpoint_interval_ms,
        log_flush_start_offset_checkpoint_interval_ms=config.log_flush_start_offset_checkpoint_interval_ms,
        num_recovery_threads_per_data_dir=config.num_recovery_threads_per_data_dir,
        producer_id_expiration_ms=config.producer_id_expiration_ms,
        producer_id_expiration_check_interval_ms=config.producer_id_expiration_check_interval_ms,
        num_replica_alter_log_dirs_threads=config.num_replica_alter_log_dirs_threads,
        may_format=config.formattable_log_dirs,
        reserve_bytes=config.ottla_log_dir_reserve_bytes,
        io_timeout_ms=config.ottla_log_dir_io_timeout_ms,
        max_partition_replicas=max_partition_replicas(config.ottla_max_partition_replicas, open_files),
    )


def cleaner_settings(config: BrokerConfig) -> CleanerSettings:
    """As configured now: the cleaner asks before each run."""
    return CleanerSettings(
        enable=config.log_cleaner_enable,
        threads=config.log_cleaner_threads,
        backoff_ms=config.log_cleaner_backoff_ms,
        dedupe_buffer_size=config.log_cleaner_dedupe_buffer_size,
        io_buffer_size=config.log_cleaner_io_buffer_size,
        io_buffer_load_factor=config.log_cleaner_io_buffer_load_factor,
        io_max_bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
    )


def start_refusal(error: Exception) -> str:
    """Why a broker cannot start, naming the configuration that a person would look at."""
    if isinstance(error, OSError) and error.strerror:
        if error.filename:
            return f"log.dirs: {error.filename}: {error.strerror}"
        return f"listeners: {error.strerror}" if error.strerror.startswith("cannot listen") else error.strerror
    return str(error) or repr(error)

"""The metrics of the log cleaner."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla_broker.metrics import Gauge, Metrics
from ottla_broker.storage.cleaner.job import CompactionResult


class CleanerGauges:
    """Kafka's MBeans of kafka.log:type=LogCleaner and LogCleanerManager. `paths`: of the log directories."""

    def __init__(
        self,
        metrics: Metrics,
        paths: Iterable[str],
        uncleanable: Callable[[str], tuple[int, int]],
        since_last_round_s: Callable[[], float],
    ) -> None:
        def gauge(name: str, text: str, function: Callable[[], float] | None = None) -> Gauge:
            return metrics.gauge(f"kafka_log_{name}", text, function)

        for path in paths:
            metrics.gauge(
                "kafka_log_logcleanermanager_uncleanable_partitions_count",
                "Partitions that the cleaner cannot clean because they are damaged.",
                lambda path=path: uncleanable(path)[0],  # type: ignore[misc]
                logDirectory=path,
            )
            metrics.gauge(
                "kafka_log_logcleanermanager_uncleanable_bytes",
                "Bytes of the partitions that the cleaner cannot clean.",
                lambda path=path: uncleanable(path)[1],  # type: ignore[misc]
                logDirectory=path,
            )
        gauge(
            "logcleanermanager_time_since_last_run_seconds",
            "Seconds since the cleaner last selected a log to clean.",
            since_last_round_s,
        )
        self.max_dirty_percent = gauge(
            "logcleanermanager_max_dirty_percent", "The highest dirty ratio of a compacted log, in percent."
        )
        self.max_compaction_delay_s = gauge(
            "logcleaner_max_compaction_delay_secs", "The longest time beyond max.compaction.lag.ms, in seconds."
        )
        self.max_buffer_utilization = gauge(
            "logcleaner_max_buffer_utilization_percent", "Used part of the key map of the last compaction, in percent."
        )
        self.recopy = gauge(
            "logcleaner_cleaner_recopy_percent",
            "Bytes written by the last compaction, in percent of bytes read.",
        )
        self.max_clean_time_s = gauge("logcleaner_max_clean_time_secs", "Duration of the last compaction, in seconds.")
        self.runs = metrics.counter("ottla_log_cleaner_runs", "Compactions of a log.")
        self.bytes_read = metrics.counter("ottla_log_cleaner_read_bytes", "Bytes that the cleaner has read.")
        self.bytes_written = metrics.counter("ottla_log_cleaner_written_bytes", "Bytes that the cleaner has written.")
        self.dropped = metrics.counter("ottla_log_cleaner_dropped_records", "Records that compaction removed.")

    def record(self, cleaned: CompactionResult, seconds: float) -> None:
        """After a compaction that took so many seconds."""
        self.max_buffer_utilization.set(int(cleaned.map_utilization * 100))
        self.recopy.set(int(100 * cleaned.bytes_written / cleaned.bytes_read) if cleaned.bytes_read else 0)
        self.max_clean_time_s.set(int(seconds))
        self.runs.inc()
        self.bytes_read.inc(cleaned.bytes_read)
        self.bytes_written.inc(cleaned.bytes_written)
        self.dropped.inc(cleaned.records_read - cleaned.records_kept)

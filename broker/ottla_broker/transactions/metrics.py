"""Metrics of the transaction coordinator, named after Kafka's MBeans (docs/reference/metrics.md)."""

from __future__ import annotations

from collections.abc import Callable

from ottla_broker.metrics import Metrics

_MARKERS = "kafka_coordinator_transaction_transactionmarkerchannelmanager"
_LOAD_BUCKETS_S = (0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0)


class TransactionMetrics:
    """The coordinator observes loads; gauges are read when somebody looks."""

    def __init__(
        self,
        metrics: Metrics,
        without_leader_count: Callable[[], float],
        append_retry_count: Callable[[], float],
        longest_open_ms: Callable[[], float],
    ) -> None:
        self.partition_load = metrics.histogram(
            "kafka_server_transaction_coordinator_metrics_partition_load_time_seconds",
            "How long loading a partition of __transaction_state took.",
            _LOAD_BUCKETS_S,
        )
        metrics.gauge(
            f"{_MARKERS}_unknowndestinationqueuesize",
            "Markers of transactions whose partition has no leader.",
            without_leader_count,
        )
        metrics.gauge(
            f"{_MARKERS}_logappendretryqueuesize",
            "Transactions whose completion is being appended to __transaction_state again.",
            append_retry_count,
        )
        metrics.gauge(
            "kafka_server_transaction_coordinator_metrics_active_transaction_open_time_max",
            "How long the oldest transaction that has not ended is open, in milliseconds (KIP-939).",
            longest_open_ms,
        )

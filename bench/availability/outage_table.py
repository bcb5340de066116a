"""The availability scenarios: names, functions, metrics and goals."""

from __future__ import annotations

from functools import partial

from bench.availability import outages
from bench.storage.storage_table import StorageScenario

AVAILABILITY: tuple[StorageScenario, ...] = (
    StorageScenario(
        outages.CONTROLLED_SHUTDOWN,
        "SIGTERM to one of three brokers under acks=all: how long its partitions are refused",
        outages.run_controlled_shutdown,
    ),
    *(
        StorageScenario(
            outages.failover(timeout_ms),
            f"kill -9 of one of three brokers under acks=all, sessions of {timeout_ms // 1000} s",
            partial(outages.run_failover, timeout_ms),
        )
        for timeout_ms in outages.SESSION_TIMEOUTS_MS
    ),
)

TITLES = {
    "refused_p50_ms": "First refused to next accepted produce, median over partitions, ms (lower is better)",
    "refused_max_ms": "First refused to next accepted produce, longest, ms (lower is better)",
    "silent_p50_ms": "Longest time between two acknowledgements, median over partitions, ms (lower is better)",
    "silent_max_ms": "Longest time between two acknowledgements, longest, ms (lower is better)",
    "silent_others_ms": "The same of partitions that other brokers lead, longest, ms (lower is better)",
}

RATIO_GOALS = {
    ("failover-18s", "silent_max_ms"): ("at most", 1.1),
    ("controlled-shutdown", "refused_p50_ms"): ("at most", 1.0),
}
"""Of ours to Apache Kafka's."""

VALUE_GOALS = {("failover-6s", "silent_max_ms"): ("at most", 8000.0)}
"""Of our own figure."""

"""The scenarios of transactions and groups: names, functions, metrics and goals."""

from __future__ import annotations

from functools import partial

from bench.coordinators import groups, transactional
from bench.storage.storage_table import StorageScenario

COORDINATORS: tuple[StorageScenario, ...] = (
    *(StorageScenario(load.name, load.description, partial(transactional.run, load)) for load in transactional.LOADS),
    StorageScenario(groups.NAME, "1 000 groups of five members: heartbeats and rebalances", groups.run),
)

TITLES = {
    "transactions_s": "Transactions a second (higher is better)",
    "cpu_us_per_transaction": "Broker CPU, µs per transaction (lower is better)",
    "commit_p50_ms": "commitTransaction, median, ms (lower is better)",
    "commit_p99_ms": "commitTransaction, 99th percentile, ms (lower is better)",
    "consumed_mb_s": "Read by a read_committed consumer, MB/s (higher is better)",
    "end_to_end_p50_ms": "From send to a read_committed consumer, median, ms (lower is better)",
    "end_to_end_p99_ms": "From send to a read_committed consumer, 99th percentile, ms (lower is better)",
    "cpu_us_per_heartbeat": "Broker CPU, µs per heartbeat (lower is better)",
    "heartbeat_p99_ms": "Heartbeat, 99th percentile, ms (lower is better)",
    "rebalance_s": "A rebalance of all groups, s (lower is better)",
    "rebalance_cpu_s": "Broker CPU of a rebalance of all groups, s (lower is better)",
}
"""Metrics of these scenarios, with the titles of their plots."""

RATIO_GOALS = {
    **{
        (load.name, metric): goal
        for load in transactional.LOADS
        for metric, goal in (
            *((("throughput_mb_s", ("at least", 1.0)),) if not load.rate else ()),
            ("commit_p50_ms", ("at most", 1.0)),
            ("commit_p99_ms", ("at most", 1.0)),
            *((("consumed_mb_s", ("at least", 1.0)),) if load.consumers and not load.rate else ()),
            *((("end_to_end_p99_ms", ("at most", 1.0)),) if load.consumers else ()),
        )
    },
    (groups.NAME, "cpu_us_per_heartbeat"): ("at most", 1.0),
    (groups.NAME, "rebalance_s"): ("at most", 1.0),
}
"""Of ours to Apache Kafka's."""

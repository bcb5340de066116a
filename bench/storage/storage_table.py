"""The storage scenarios: names, functions, metrics and the goals of the project."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bench.storage import append_read, append_roll, compaction, growth, partitions, recovery
from bench.storage.surroundings import Surroundings


@dataclass(frozen=True, slots=True)
class StorageScenario:
    """One scenario that starts and fills its own systems."""

    name: str
    description: str
    run: Callable[[Surroundings], None]
    when_named: bool = False
    """Not part of a run of everything: it takes as much of the disk as it finds."""


STORAGE: tuple[StorageScenario, ...] = (
    StorageScenario(
        partitions.MANY, "5 000 idle partitions: memory, descriptors, restart until all lead", partitions.run_many
    ),
    StorageScenario(
        partitions.LIGHT, "1 000 partitions, idle and with one record a second each: CPU", partitions.run_light
    ),
    *(
        StorageScenario(
            append_read.scenario(size),
            f"one log without network, batches of {size}, beside plain files",
            partial(append_read.run, size),
        )
        for size in append_read.SIZES
    ),
    StorageScenario(append_roll.NAME, "one log at 150 MB/s: how long appends wait for a roll", append_roll.run),
    *(
        StorageScenario(recovery.scenario(size), f"10 GiB of {size} batches after kill -9", partial(recovery.run, size))
        for size in ("64k", "1k")
    ),
    *(
        StorageScenario(
            compaction.scenario(size),
            f"compaction of records of {size}, and producing meanwhile",
            partial(compaction.run, size),
        )
        for size in compaction.SIZES
    ),
    StorageScenario(growth.NAME, "a partition that grows, with a consumer that keeps up", growth.run, when_named=True),
)

TITLES = {
    "create_s": "Creating the partitions, s (lower is better)",
    "leading_s": "From exec until all partitions lead, s (lower is better)",
    "leading_cpu_s": "CPU from exec until all partitions lead, s (lower is better)",
    "stop_s": "An orderly stop, s (lower is better)",
    "rss_kib_per_partition": "Resident memory per idle partition, KiB (lower is better)",
    "fds_per_partition": "Open descriptors per idle partition (lower is better)",
    "mappings_per_partition": "Memory mappings per idle partition (lower is better)",
    "cpu_idle_percent": "CPU without clients, % of a core (lower is better)",
    "cpu_light_percent": "CPU under 1 000 small batches a second, % of a core (lower is better)",
    "append_mb_s": "Appended, MB/s (higher is better)",
    "append_cpu_s_per_gb": "CPU of appends, s per GB (lower is better)",
    **{
        f"{kind}_append_{rank}_ms": f"Append, {rank}, ms, {words} (lower is better)"
        for kind, words in (("steady", "no roll"), ("rolling", "with rolls"))
        for rank in ("p50", "p99", "max")
    },
    **{f"{kind}_append_mb_s": f"Rate that was held, {kind}, MB/s" for kind in ("steady", "rolling")},
    "read_mb_s": "Read from the disk, MB/s (higher is better)",
    "clean_start_s": "Start after an orderly stop, s (lower is better)",
    "ready_s": "From exec until everything is recovered and leads, s (lower is better)",
    "recovery_s": "Recovery of 10 GiB, s (lower is better)",
    "recovery_cpu_s": "CPU of start and recovery, s (lower is better)",
    "compaction_s": "Compaction, s (lower is better)",
    "compaction_mb_s": "Compaction, MB of log per second (higher is better)",
    "compaction_cpu_s": "CPU of the broker while it compacts, s (lower is better)",
    "compacted_share": "What is left of the log",
    "produce_p99_before_ms": "Produce p99 without a cleaning, ms (lower is better)",
    "produce_p99_cleaning_ms": "Produce p99 while the cleaner works, ms (lower is better)",
    "produce_p99_growth": "Produce p99 while the cleaner works / without (lower is better)",
    "grown_gb": "Size that the log reached, GB",
    "disk_read_mb": "Read from the disk while consumers kept up, MB (lower is better)",
    **{
        f"{what}_{rank}_{unit}": f"{words}, {rank}, {unit_words} (lower is better)"
        for what, words in (("append", "Append"), ("tail", "Fetch at the end"), ("random", "Fetch at random"))
        for rank in (("p50", "p99") if what != "random" else ("p50",))
        for unit, unit_words in (("ms", "ms at the full size"), ("growth", "last third / first third"))
    },
}
"""Metrics of these scenarios, with the titles of their plots."""

RATIO_GOALS = {
    ("recovery-64k", "recovery_s"): ("at most", 1.0),
    ("compaction-1k", "compaction_s"): ("at most", 2.0),
}
"""Of ours to Apache Kafka's."""

FLOOR_GOALS = {
    ("append-read-1m", "append_mb_s"): ("at least", 0.8),
}
"""Of ours to the plain figure."""

VALUE_GOALS = {
    ("partitions-5000", "rss_kib_per_partition"): ("at most", 20.0),
    ("partitions-5000", "fds_per_partition"): ("at most", 2.0),
    ("partitions-5000", "leading_s"): ("at most", 5.0),
    ("compaction-1k", "produce_p99_growth"): ("at most", 2.0),
    ("compaction-100b", "produce_p99_growth"): ("at most", 2.0),
    ("log-growth", "disk_read_mb"): ("at most", 0.0),
    ("log-growth", "append_p50_growth"): ("at most", 1.25),
    ("log-growth", "tail_p50_growth"): ("at most", 1.25),
}
"""Of our own figure."""

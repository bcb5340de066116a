"""The scenario spark-stream: how long a micro-batch takes, with Ottla's Spark source and with the stock connector.

Here `apache_kafka` is the stock connector. Both read the same topic of an Ottla broker, a few offsets of each partition
in a micro-batch, into a sink that drops the rows: what is measured is what a trigger costs, not what its rows do. The
batches come one right after the other; each figure is the median of `triggerExecution` over the batches of a round.
"""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path

from bench.java import LoadFailed
from bench.scenarios import SPARK_STREAM as NAME
from bench.spark_read import (
    FORMATS,
    PARTITIONS,
    TOPIC,
    UNCOUNTED_ROUNDS,
    SparkJob,
    SparkReadResults,
    fill,
    start_jobs,
)
from bench.systems import OURS, System

RECORD_BYTES = 100
OFFSETS_PER_PARTITION = 100
STEPS = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")
"""What Spark times within a trigger, one after the other."""


def run(work: Path, rounds: int, batches: int, measured: SparkReadResults) -> None:
    """Measures both connectors in alternating rounds of so many micro-batches.

    LoadFailed when a connector does not see exactly the records that were written.
    """
    trigger_offsets = PARTITIONS * OFFSETS_PER_PARTITION
    records = batches * trigger_offsets
    system = System(OURS, work / NAME)
    jobs: dict[str, SparkJob] = {}
    try:
        system.start()
        fill(work, system, records, RECORD_BYTES)
        jobs = start_jobs(work, NAME)
        for number in range(UNCOUNTED_ROUNDS + rounds):
            for name in list(FORMATS)[:: 1 if number % 2 == 0 else -1]:
                checkpoint = work / f"{NAME}-{name}-{number}"
                found = jobs[name].stream(system.bootstrap, TOPIC, trigger_offsets, checkpoint)
                system.check()
                shutil.rmtree(checkpoint)
                if found.rows != records:
                    raise LoadFailed(f"{FORMATS[name]} read {found.rows} rows of {records}")
                if number >= UNCOUNTED_ROUNDS:
                    for metric, step in (("p50_ms", "triggerExecution"), *((f"{step}_ms", step) for step in STEPS)):
                        times = [batch.get(step, 0) for batch in found.batches]
                        measured.add(NAME, metric, name, statistics.median(times))
    finally:
        for job in jobs.values():
            job.close()
        system.stop()

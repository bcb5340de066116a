"""The scenario spark-write: Ottla's Spark sink, exactly once, and the stock connector, both writing to an Ottla broker.

Here `apache_kafka` is the stock connector with its defaults (acks=all, idempotent, at least once: it has no other
guarantee). The same rows, made by Spark, go to a new topic in each round; both connectors run in the same Spark process
for all rounds, and only one writes at a time. Afterwards a reader of committed records counts what is there.
"""

from __future__ import annotations

from pathlib import Path

from bench.java import LoadFailed
from bench.scenarios import SPARK_WRITE as NAME
from bench.spark_read import (
    FORMATS,
    METRIC,
    PARTITIONS,
    RECORD_BYTES,
    SPARK_CPU,
    UNCOUNTED_ROUNDS,
    SparkJob,
    SparkReadResults,
    start_jobs,
)
from bench.systems import OURS, System


def run(work: Path, rounds: int, records: int, measured: SparkReadResults) -> None:
    """Starts our broker and measures both connectors in alternating rounds, each with `records` of 1 kB.

    LoadFailed when a topic does not hold exactly the rows that were written.
    """
    system = System(OURS, work / "spark-write")
    jobs: dict[str, SparkJob] = {}
    try:
        system.start()
        jobs = start_jobs(work, NAME)
        for number in range(UNCOUNTED_ROUNDS + rounds):
            for name in list(FORMATS)[:: 1 if number % 2 == 0 else -1]:
                topic = f"bench-spark-write-{number}-{name.replace('_', '-')}"
                system.create_topic(topic, PARTITIONS, 1)
                before, spark_before = system.cpu_seconds(), jobs[name].cpu_seconds()
                seconds = jobs[name].write(system.bootstrap, topic, records, RECORD_BYTES)
                used, spark_used = system.cpu_seconds() - before, jobs[name].cpu_seconds() - spark_before
                system.check()
                found = jobs[OURS].read(system.bootstrap, topic, **{"kafka.isolation.level": "read_committed"})
                if found.rows != records:
                    raise LoadFailed(f"{FORMATS[name]} wrote {found.rows} rows of {records}")
                system.delete_topic(topic)
                if number >= UNCOUNTED_ROUNDS:
                    measured.add(NAME, METRIC, name, records / seconds)
                    gigabytes = records * RECORD_BYTES / 1e9
                    measured.add(NAME, "cpu_s_per_gb", name, used / gigabytes)
                    measured.add(NAME, SPARK_CPU, name, spark_used / gigabytes)
    finally:
        for job in jobs.values():
            job.close()
        system.stop()

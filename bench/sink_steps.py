"""What the steps of an exactly-once write cost: `python -m bench.sink_steps`. Without Spark, on a broker of ours.

A task makes record batches of rows of 1 kB and spools them; the driver sends them in one transaction. Both run in this
process, one after the other. Times are seconds for a gigabyte: user and system CPU of this process, CPU of the broker.
The first round pays for what starts up.
"""

from __future__ import annotations

import resource
import tempfile
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from bench.systems import OURS, System
from ottla_pipeline.sink.commit import commit_job
from ottla_pipeline.sink.spool import machine, write_name
from ottla_pipeline.sink.task import spool_rows
from ottla_pipeline.sink.write_options import parse_write_options

ROUNDS = 4
ROWS = 200_000
ROW_BYTES = 1000
ROWS_PER_BATCH = 10_000
PARTITIONS = 16


def rows() -> list[pa.RecordBatch]:
    """Rows as Spark hands them over."""
    value = pa.array([str(number).ljust(ROW_BYTES, "v") for number in range(ROWS_PER_BATCH)])
    return [
        pa.record_batch({"key": pa.array([str(first + n) for n in range(ROWS_PER_BATCH)]), "value": value})
        for first in range(0, ROWS, ROWS_PER_BATCH)
    ]


def used() -> tuple[float, float]:
    """User and system seconds of this process so far."""
    found = resource.getrusage(resource.RUSAGE_SELF)
    return found.ru_utime, found.ru_stime


def main() -> None:
    """Prints the table."""
    table = Table("round", "make and spool: user", "system", "send: user", "system", "broker")
    gigabytes = ROWS * ROW_BYTES / 1e9
    batches = rows()
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as work:
        system = System(OURS, Path(work))
        try:
            system.start()
            for number in range(ROUNDS):
                topic = f"bench-sink-{number}"
                system.create_topic(topic, PARTITIONS, 1)
                options = parse_write_options({"kafka.bootstrap.servers": system.bootstrap, "topic": topic})
                times = [used()]
                output = spool_rows(iter(batches), options, machine(), write_name("", 0))
                times.append(used())
                before = system.cpu_seconds()
                commit_job([output], f"bench-{number}", options)
                times.append(used())
                output.delete()
                seconds = [after[kind] - earlier[kind] for earlier, after in pairwise(times) for kind in (0, 1)]
                cells = [*seconds, system.cpu_seconds() - before]
                table.add_row(str(number), *(f"{cell / gigabytes:.2f}" for cell in cells))
                system.delete_topic(topic)
        finally:
            system.stop()
    Console(width=100).print(table)


if __name__ == "__main__":
    main()

"""What it costs to decode and encode records, by numpy and by compiled code: `python -m bench.record_code`.

Without Spark and without a broker: record batches of 64 KB as Arrow columns (checksums included), and rows of Spark
with a key as the record batches of 16 partitions. Times are CPU of this process in ns for a record, the minimum of
several rounds in which both ways alternate: they hold on a machine that does other work too.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from ottla_broker.records.compression import Codec
from ottla_broker.records.record import Record, build_batch
from ottla_pipeline.compiled.library import Functions, description, functions
from ottla_pipeline.reading import compiled_walk, numpy_walk
from ottla_pipeline.reading.columns import Wanted, choose, columns
from ottla_pipeline.sink.batching import Batching, Limits
from ottla_pipeline.sink.row_columns import normalized

ROUNDS = 7
ROUND_S = 0.3
PARTITIONS = 16
BATCH_BYTES = 64 * 1024
TOTAL_BYTES = 8 * 1024 * 1024


def reading(record_bytes: int, compiled: Functions | None) -> Callable[[], int]:
    """Decodes some megabytes of records, and gives how many there were."""
    count, per_batch = TOTAL_BYTES // record_bytes, BATCH_BYTES // record_bytes
    answer = bytearray()
    for first in range(0, count, per_batch):
        answer += build_batch([Record(first + n, n, None, b"v" * record_bytes) for n in range(per_batch)])
    wanted = Wanted("t", 0, 0, 2**62)
    decode = numpy_walk.decode if compiled is None else compiled_walk.decoder(compiled)
    return lambda: sum(len(batch) for batch in columns(answer, choose(answer, wanted, ()), wanted, decode))


def writing(record_bytes: int, compiled: Functions | None) -> Callable[[], int]:
    """Makes record batches of some megabytes of rows, and gives how many rows there were."""
    count = TOTAL_BYTES // record_bytes
    keys = [str(number) for number in range(count)]
    rows = pa.record_batch({"key": pa.array(keys), "value": pa.array([key.ljust(record_bytes, "v") for key in keys])})
    batching = Batching(Limits(1_000_000, 2**20, Codec.NONE, None), lambda _: PARTITIONS, 0, compiled)
    return lambda: sum(batch.records for _, batch in batching.batches(*normalized(rows, "t", 0, 0), 0))


def ns_per_record(act: Callable[[], int]) -> float:
    """CPU of one round."""
    done, began = 0, time.process_time_ns()
    while time.process_time_ns() - began < ROUND_S * 1e9:
        done += act()
    return (time.process_time_ns() - began) / done


def main() -> None:
    """Prints the table."""
    console = Console(width=100)
    compiled = functions()
    if compiled is None:
        console.print(description())
        raise SystemExit(1)
    table = Table("act", "bytes of a record", "numpy, ns", "compiled, ns", "numpy / compiled")
    for name, made in (("decode", reading), ("encode", writing)):
        for record_bytes in (100, 1000):
            ways = [made(record_bytes, None), made(record_bytes, compiled)]
            found = [[ns_per_record(way) for way in ways] for _ in range(ROUNDS)]
            by_numpy, by_compiled = (min(values) for values in zip(*found, strict=True))
            cells = (name, record_bytes, f"{by_numpy:.0f}", f"{by_compiled:.0f}", f"{by_numpy / by_compiled:.2f}")
            table.add_row(*map(str, cells))
    console.print(table)


if __name__ == "__main__":
    main()

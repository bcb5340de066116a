"""`python -m tests.pipeline.compiled.damage LIBRARY CASES SEED`: damaged records, walked by a library with a sanitizer.

Each case has a buffer of just its size, so that a byte read beside it is found. Without pyarrow, whose own memory
management a sanitizer does not follow.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np

from ottla_broker.records.batch import HEADER_BYTES
from ottla_broker.records.record import Record, build_batch
from ottla_pipeline.compiled.library import Functions, load


def walked(functions: Functions, records: bytes, count: int) -> None:
    """Everything that a read does with the records of one batch."""
    data = np.frombuffer(bytearray(records), np.uint8).copy()
    batches = np.array([[0, len(data), count, 0, 0, 0, 0]], np.int64)
    offsets, times = np.empty(count, np.int64), np.empty(count, np.int64)
    types, key_at, key_size, value_at, value_size, headers, ends = (np.empty(count, np.int32) for _ in range(7))
    totals = np.empty(4, np.int64)
    rows = functions.decode(
        data.ctypes.data, batches.ctypes.data, 1, -(2**63), 2**63 - 1, offsets.ctypes.data, times.ctypes.data,
        types.ctypes.data, key_at.ctypes.data, key_size.ctypes.data, value_at.ctypes.data, value_size.ctypes.data,
        headers.ctypes.data, ends.ctypes.data, totals.ctypes.data,
    )  # fmt: skip
    if rows < 0:
        return
    key_total, _, value_total, _ = totals.tolist()
    gathered(functions, data, key_at[:rows], key_size[:rows], key_total)
    gathered(functions, data, value_at[:rows], value_size[:rows], value_total)
    bounds = np.empty(rows + 1, np.int64)
    beginning = (data.ctypes.data, headers.ctypes.data, ends.ctypes.data, rows, bounds.ctypes.data)
    found = functions.decode_headers(*beginning, None, None, None, None, totals.ctypes.data)
    if found < 0:
        return
    fields = [np.empty(found, np.int32) for _ in range(4)]
    functions.decode_headers(*beginning, *(field.ctypes.data for field in fields), totals.ctypes.data)
    gathered(functions, data, fields[0], fields[1], int(totals[0]))
    gathered(functions, data, fields[2], fields[3], int(totals[2]))


def gathered(functions: Functions, data: np.ndarray, begin: np.ndarray, size: np.ndarray, total: int) -> None:
    bounds, target = np.empty(len(begin) + 1, np.int32), np.empty(total, np.uint8)
    validity = np.zeros((len(begin) + 7) // 8, np.uint8)
    functions.gather(
        data.ctypes.data, begin.ctypes.data, size.ctypes.data, len(begin),
        bounds.ctypes.data, target.ctypes.data, validity.ctypes.data,
    )  # fmt: skip
    assert bounds[-1] == total


def main(library: str, cases: int, seed: int) -> None:
    functions = load(Path(library))
    draw = random.Random(seed)
    for _ in range(cases):
        count = draw.randrange(1, 6)
        headers = (("name", b"x"), ("", None))
        fields = (None, b"", b"key", b"v" * 70, b"w" * 9000)
        records = [Record(n, n * 99, draw.choice(fields), draw.choice(fields), headers[: n % 3]) for n in range(count)]
        body = build_batch(records)[HEADER_BYTES:]
        for _ in range(draw.randrange(4)):
            body[draw.randrange(len(body))] = draw.choice((0, 1, 127, 128, 255, draw.randrange(256)))
        if draw.randrange(4) == 0:
            del body[draw.randrange(len(body)) :]
        walked(functions, bytes(body), count)
    print("walked", cases)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

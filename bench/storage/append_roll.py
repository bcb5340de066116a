"""append-roll: how long appends wait while the segment before theirs is written to the disk.

One log in a process of its own (`python -m bench.storage.append_roll '{...}'`), without network and clients, takes
batches of 64 KB at 150 MB/s, which leaves the disk time to spare. The same load goes to a log whose segments are too
large to be rolled, and to one that rolls every gigabyte, as the default is: what the rolls cost is the difference.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from collections import deque

from bench.storage.append_read import as_process, batch_of, new_log
from bench.storage.surroundings import Surroundings
from bench.systems import OURS
from ottla_broker.storage.log.log import Log

NAME = "append-roll"
_BATCH_BYTES = 65_536
_RATE_BYTES_S = 150_000_000
_SEGMENT_BYTES = 1 << 30
_LARGEST_SEGMENT_BYTES = (1 << 31) - 1
_WAITING = 2_000
"""Batches that may wait at once: a producer's memory is limited too."""


def run(given: Surroundings) -> None:
    """Fills append-roll: per round a log that never rolls, then one that does so three times."""
    segment, largest = (20_000_000, 100_000_000) if given.is_quick else (_SEGMENT_BYTES, _LARGEST_SEGMENT_BYTES)
    for number in range(given.rounds):
        for kind, segment_bytes, total in (
            ("steady", largest, segment),
            ("rolling", segment, 3 * segment + segment // 5),
        ):
            folder = given.work / f"{NAME}-{number}-{kind}"
            folder.mkdir()
            try:
                given.step(f"{NAME}: round {number + 1}, {kind}")
                os.sync()
                found = as_process(
                    "bench.storage.append_roll",
                    path=str(folder / "log"), total_bytes=total, segment_bytes=segment_bytes,
                )  # fmt: skip
                for metric, value in found.items():
                    given.measured.add(NAME, f"{kind}_{metric}", OURS, value)
            finally:
                shutil.rmtree(folder)


async def measure(path: str, total_bytes: int, segment_bytes: int) -> dict[str, float]:
    """Milliseconds from a batch's append until it is written, and the rate that was held."""
    async with new_log(path, {"segment.bytes": segment_bytes}) as log:
        return await _append(log, total_bytes)


async def _append(log: Log, total_bytes: int) -> dict[str, float]:
    template = batch_of(_BATCH_BYTES)
    size = len(template)
    # A buffer must not change until it is written: as many as may be on their way, used in turn.
    buffers = [memoryview(bytearray(template)) for _ in range(_WAITING + 1)]
    sent: deque[tuple[int, float]] = deque()
    waited: list[float] = []
    room = asyncio.Event()

    def written() -> None:
        now = time.perf_counter()
        end = log.state.log_end_offset
        while sent and sent[0][0] < end:
            waited.append(now - sent.popleft()[1])
        room.set()

    log.state.on_append = written
    batches = total_bytes // size
    started = time.perf_counter()
    for number in range(batches):
        while len(sent) >= _WAITING:
            room.clear()
            await room.wait()
        sent.append((log.state.assigned_offset, time.perf_counter()))
        log.append_as_leader(buffers[number % len(buffers)], 0)
        await asyncio.sleep(max(0.0, started + (number + 1) * size / _RATE_BYTES_S - time.perf_counter()))
    while sent:
        room.clear()
        await room.wait()
    seconds = time.perf_counter() - started
    waited.sort()
    return {
        "append_mb_s": batches * size / seconds / 1e6,
        "append_p50_ms": waited[len(waited) // 2] * 1000,
        "append_p99_ms": waited[int(len(waited) * 0.99)] * 1000,
        "append_max_ms": waited[-1] * 1000,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(**json.loads(sys.argv[1])))))

"""Space that is allocated ahead of appends: `python -m bench.storage.allocated_ahead`.

fallocate with FALLOC_FL_KEEP_SIZE gives a file blocks beyond its end, so that a write finds them. Logs with and without
it take turns in processes of their own, on the broker's Disk with its lane. The figure is user and system time of the
process for a gigabyte; what the kernel's writeback threads do is counted for neither. No broker allocates ahead
(docs/internals/decisions/0083-no-space-ahead.md): the calls are put around `disk_calls.write_all` here.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench.page_cache import PageCache
from bench.storage.append_read import SIZES, _append, as_process, new_log
from ottla_broker.adapters import disk_calls
from ottla_broker.ports.disk import Buffer

_KEEP_SIZE = 1


def allocate_ahead(ahead_bytes: int) -> None:
    """From now on each file that is written gets `ahead_bytes` of blocks whenever its last ones are used up."""
    libc = ctypes.CDLL(None, use_errno=True)
    allocated: dict[int, int] = {}
    write_all = disk_calls.write_all

    def write(descriptor: int, buffers: Sequence[Buffer]) -> int:
        size = sum(len(buffer) for buffer in buffers)
        if size >= 4096:
            # A descriptor names one segment only: nothing is rolled here.
            end = os.lseek(descriptor, 0, os.SEEK_END) + size
            if end > allocated.get(descriptor, 0):
                if libc.fallocate(
                    descriptor, _KEEP_SIZE, ctypes.c_long(end - size), ctypes.c_long(max(ahead_bytes, size))
                ):
                    raise OSError(ctypes.get_errno(), "fallocate")
                allocated[descriptor] = end - size + max(ahead_bytes, size)
        return write_all(descriptor, buffers)

    disk_calls.write_all = write


def release(log_dir: Path) -> float:
    """Gives back what the segments below a log directory have beyond their ends; seconds."""
    started = time.perf_counter()
    for file in log_dir.glob("*/*.log"):
        os.truncate(file, file.stat().st_size)
    return time.perf_counter() - started


async def measure(path: str, batch_bytes: int, total_bytes: int, ahead_bytes: int) -> dict[str, float]:
    """CPU seconds and seconds of appending `total_bytes` to a new log; it is closed, and what is ahead released."""
    if ahead_bytes:
        allocate_ahead(ahead_bytes)
    async with new_log(path, {"max.message.bytes": 2_000_000, "segment.bytes": (1 << 31) - 1}) as log:
        before = os.times()
        seconds = await _append(log, batch_bytes, total_bytes)
        after = os.times()
        release_s = release(Path(path))
        await log.flusher.flush()
    return {
        "user_s": after.user - before.user, "system_s": after.system - before.system, "seconds": seconds,
        "release_s": release_s,
    }  # fmt: skip


def main(
    rounds: Annotated[int, typer.Option(help="pairs; the first is a warm-up", min=2)] = 6,
    size: Annotated[list[str] | None, typer.Option(help="of a batch: 1m, 64k, 1k; may be repeated")] = None,
    total_mb: Annotated[int, typer.Option(help="per round, below 2 GB: one segment")] = 1_500,
    ahead_mb: Annotated[int, typer.Option(help="allocated at a time")] = 64,
    folder: Annotated[Path, typer.Option(help="on the file system to be measured")] = Path("build/bench"),
) -> None:
    """CPU seconds of a gigabyte, without and with space ahead, in alternating pairs."""
    console = Console()
    folder.mkdir(parents=True, exist_ok=True)
    cache = PageCache(folder)
    table = Table("batch", "without: s/GB [lowest–highest]", "with", "ratio of the pairs' medians", "release ms")
    try:
        for name in size or ["1m", "64k"]:
            found: dict[bool, list[float]] = {False: [], True: []}
            released = 0.0
            for number in range(rounds):
                for is_ahead in (False, True) if number % 2 else (True, False):
                    cache.fill()
                    with tempfile.TemporaryDirectory(dir=folder) as work:
                        os.sync()
                        got = as_process(
                            "bench.storage.allocated_ahead",
                            path=str(Path(work, "log")), batch_bytes=SIZES[name], total_bytes=total_mb * 1_000_000,
                            ahead_bytes=ahead_mb * 1_000_000 * is_ahead,
                        )  # fmt: skip
                        shutil.rmtree(Path(work, "log"))
                    if number:
                        found[is_ahead].append((got["user_s"] + got["system_s"]) / total_mb * 1000)
                        released = max(released, got["release_s"] * 1000 * is_ahead)
            medians = {kind: sorted(values)[len(values) // 2] for kind, values in found.items()}
            cells = [f"{medians[kind]:.2f} [{min(found[kind]):.2f}–{max(found[kind]):.2f}]" for kind in (False, True)]
            table.add_row(name, *cells, f"{medians[True] / medians[False]:.2f}", f"{released:.0f}")
    finally:
        cache.close()
    console.print(table)


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].startswith("{"):
        print(json.dumps(asyncio.run(measure(**json.loads(sys.argv[1])))))
    else:
        typer.run(main)

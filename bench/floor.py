"""The floor: the same number of bytes written to the same disk with plain `write`."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Floor:
    """What plain writes took: wall-clock and CPU seconds (user and system)."""

    bytes: int
    seconds: float
    cpu_seconds: float


def write_plainly(path: Path, total_bytes: int, block_bytes: int) -> Floor:
    """Writes a new file of `total_bytes` in blocks; it stays, because deleting it would free memory."""
    block = memoryview(os.urandom(1024) * (block_bytes // 1024 + 1))[:block_bytes]
    before = resource.getrusage(resource.RUSAGE_SELF)
    started = time.perf_counter()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        written = 0
        while written < total_bytes:
            written += os.write(descriptor, block)
    finally:
        os.close(descriptor)
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Floor(written, seconds, cpu)

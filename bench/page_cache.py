"""Fills the page cache before a measured round.

In a virtual machine a page of free memory costs a fault in the host, ten times the cost of a recycled page, and the
first writer pays for it. A broker that has run for a day has no free memory. Before every round a sparse file larger
than memory is therefore read until hardly any memory is free.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from bench.usage import memory_bytes

_CHUNK_BYTES = 8 * 1024 * 1024


class PageCache:
    """One sparse file and a position in it that goes round."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "pad"
        self._size = 2 * memory_bytes("MemTotal")
        self._position = 0
        # The kernel keeps some memory free whatever is read; below three times its own mark it reclaims.
        minimum = int(Path("/proc/sys/vm/min_free_kbytes").read_text()) * 1024
        self.free_bytes_wanted = max(3 * minimum, memory_bytes("MemTotal") // 50)

    def fill(self, on_progress: Callable[[float], None] = lambda share: None) -> None:
        """Reads until at most `free_bytes_wanted` are free, or the file has been read once (then memory is as full as
        the kernel lets it be)."""
        first_free = free = memory_bytes("MemFree")
        if free <= self.free_bytes_wanted:
            return
        with self._path.open("ab") as pad:
            pad.truncate(self._size)
        buffer = bytearray(_CHUNK_BYTES)
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            read = 0
            while free > self.free_bytes_wanted and read < self._size:
                read += os.preadv(descriptor, [buffer], self._position)
                self._position = (self._position + _CHUNK_BYTES) % self._size
                if read % (16 * _CHUNK_BYTES) == 0:
                    free = memory_bytes("MemFree")
                    on_progress(1 - (free - self.free_bytes_wanted) / max(1, first_free - self.free_bytes_wanted))
        finally:
            os.close(descriptor)

    def close(self) -> None:
        self._path.unlink(missing_ok=True)

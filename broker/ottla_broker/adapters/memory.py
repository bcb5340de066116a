"""The memory of the process: how much it may use, and that freed blocks go back to the system.

The limit is that of its cgroup (a pod's, a container's), else the machine's.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGE_BYTES = 256 * 1024
_KEPT_BYTES = 4 * 1024 * 1024
"""So much free memory at the end of the heap is kept, so that it does not shrink and grow with each answer."""


def limit(root: Path = _ROOT, membership: Path = Path("/proc/self/cgroup")) -> int:
    """Bytes: the smallest limit of the process's cgroup and those around it, at most the memory of the machine."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for folder in _folders(root, membership):
        for name in ("memory.max", "memory.limit_in_bytes"):
            try:
                found.append(int((folder / name).read_text()))
            except (OSError, ValueError):  # "max" is no number
                continue
    return min(found)


def _folders(root: Path, membership: Path) -> list[Path]:
    """The cgroup of the process and those around it, of both versions."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return [root]
    found = [root, root / "memory"]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        base = root / "memory" if controllers else root
        parts = Path(path.lstrip("/")).parts
        found += [base.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)]
    return found


def give_large_blocks_back() -> None:
    """Has the C library give each block of `_LARGE_BYTES` and more back to the system when it is freed.

    By default glibc keeps what it has freed once (it raises the limit by itself, up to 32 MiB), between blocks that are
    still in use: after a peak of large answers a broker kept twice the memory of before. Does nothing elsewhere.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)

"""How much memory the process may use: the limit of its cgroup (a pod's, a container's), else the machine's."""

from __future__ import annotations

import os
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


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

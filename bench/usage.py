"""CPU time and memory of the measured processes and their children, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def descendants(pid: int) -> Iterator[int]:
    """`pid` and every living process below it; nothing for one that is gone."""
    yield pid
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return
    for thread in threads:
        try:
            children = (thread / "children").read_text().split()
        except OSError:
            continue
        for child in children:
            yield from descendants(int(child))


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of the processes so far, ended and waited-for children included."""
    total = 0
    for root in pids:
        for pid in descendants(root):
            try:
                text = Path(f"/proc/{pid}/stat").read_text()
            except OSError:
                continue
            # The name in parentheses may hold blanks: count from behind it.
            fields = text.rpartition(")")[2].split()
            total += sum(int(field) for field in fields[11:15])
    return total / _TICKS


def thread_cpu_seconds(pid: int) -> dict[int, tuple[float, float]]:
    """(user, system) seconds of each thread of a process so far, by thread id; the main thread has the process's."""
    found: dict[int, tuple[float, float]] = {}
    for thread in sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda path: int(path.name)):
        fields = (thread / "stat").read_text().rpartition(")")[2].split()
        found[int(thread.name)] = (int(fields[11]) / _TICKS, int(fields[12]) / _TICKS)
    return found


def resident_bytes(pids: Iterable[int]) -> int:
    """Resident memory, shared pages counted in each process."""
    pages = 0
    for root in pids:
        for pid in descendants(root):
            try:
                pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            except OSError:
                continue
    return pages * os.sysconf("SC_PAGE_SIZE")


def memory_bytes(field: str) -> int:
    """A line of /proc/meminfo ("MemTotal", "MemFree") in bytes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise KeyError(field)

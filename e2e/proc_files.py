"""What /proc tells of a process, from the text of its files: of this machine, or of a container's."""

from __future__ import annotations

import os

from e2e.machine import CommandFailed


def memory_bytes(status: str, name: str = "VmRSS") -> int:
    """A size out of /proc/PID/status: VmRSS is resident memory, VmHWM the highest it has been. Raises CommandFailed.

    >>> memory_bytes("Name:\\tpython\\nVmHWM:\\t    2048 kB\\nVmRSS:\\t    1024 kB\\n")
    1048576
    """
    for line in status.splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) * 1024
    raise CommandFailed(f"/proc/PID/status has no {name}")


def cpu_s(stat: str) -> float:
    """The processor time of a process in seconds, user and system, out of /proc/PID/stat."""
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

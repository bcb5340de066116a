"""Whose the files of tasks are, and when they are deleted.

A file belongs to a write, and a write to the driver that runs it: a task, its Python process, the daemon of these
processes and an executor may all go while the write goes on with what they have left. So the name has the driver,
the write and the attempt, and nothing of the process that made it:

    ottla-sink-DRIVER-WRITE-ATTEMPT    DRIVER: HOST.NAMESPACE.PROCESS.START

A write that has ended, well or not, has all its files deleted by its driver (`delete_left`): those of its attempts that
were killed too, and after a commit those that another driver has left of the same batch. What remains is of drivers
that were killed. Before a task writes, it deletes (`sweep`)

    of this machine     the files of drivers that run no more
    of another one      files of more than a week ago: nobody here can say whether their driver still runs. So it is on
                        a system without /proc

and never one of its own write.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ottla_pipeline.sink.spool import PREFIX, WriteName

LEFT_AFTER_S = 7 * 24 * 60 * 60
"""So long a file of another machine's driver is kept."""

_OF_SPARK = "blockmgr-*"
"""The directories in which Spark's applications keep their blocks, beside each other. Spark deletes that of an
application which ends by itself, and leaves that of a killed one with all that is in it."""


class StartedProcess(NamedTuple):
    """A process by its number and the time of its start, in ticks since the machine booted."""

    number: int
    start: str


def driver_name() -> str:
    """Names the driver that has started this Python process: Spark's JVM, or this process where there is none."""
    number, start = _jvm_above() or StartedProcess(os.getpid(), _start_of(os.getpid()))
    return f"{_machine()}.{number}.{start}"


def delete_left(directories: Iterable[str], write: WriteName, *, of_all_drivers: bool) -> None:
    """Deletes the files of all attempts of a write, once it has ended.

    Args:
        directories: where tasks may have left them.
        write: which has ended.
        of_all_drivers: after a commit: nobody needs them. A write that has failed may go on under another driver.
    """
    driver = "*" if of_all_drivers else write.driver
    for directory in directories:
        for path in Path(directory).glob(f"{PREFIX}-{driver}-{write.batch}-*"):
            _delete(path)


def sweep(directory: str, write: WriteName, now_s: float | None = None) -> None:
    """Deletes what writes of killed drivers have left, before `write` adds its own files. `now_s`: since 1970."""
    now_s = time.time() if now_s is None else now_s
    runs: dict[StartedProcess, bool] = {}
    for path, driver in _files(directory):
        if f"-{write.batch}-" in path.name:
            continue
        process = _process_of(driver)
        if process is None:
            is_garbage = _age_s(path, now_s) > LEFT_AFTER_S
        else:
            if process not in runs:
                runs[process] = _start_of(process.number) == process.start
            is_garbage = not runs[process]
        if is_garbage:
            _delete(path)


def _files(directory: str) -> Iterator[tuple[Path, str]]:
    """The files of tasks, each with the name of its driver."""
    folder = Path(directory)
    folders = folder.parent.glob(_OF_SPARK) if folder.match(_OF_SPARK) else [folder]
    for one in folders:
        for found in one.glob(f"{PREFIX}-*-*-*"):
            yield found, found.name.removeprefix(f"{PREFIX}-").rsplit("-", 2)[0]


def _process_of(driver: str) -> StartedProcess | None:
    """The process of a driver of this machine; None for one of another machine."""
    machine, number, start = driver.rsplit(".", 2) if driver.count(".") > 1 else ("", "", "")
    return StartedProcess(int(number), start) if machine == _machine() and start and number.isdecimal() else None


def _machine() -> str:
    """This machine, or container: where process numbers mean the same."""
    namespace = 0
    with contextlib.suppress(OSError):
        namespace = os.stat("/proc/self/ns/pid").st_ino
    return f"{socket.gethostname()}.{namespace}"


def _jvm_above() -> StartedProcess | None:
    """The nearest JVM among the parents of this process."""
    number = os.getppid()
    while number > 1:
        try:
            fields = _stat(number)
        except OSError:
            return None
        if fields["name"] == "java":
            return StartedProcess(number, fields["start"])
        number = int(fields["parent"])
    return None


def _start_of(process: int) -> str:
    """When a process has started; "" when it does not run, or on a system that does not say."""
    try:
        return _stat(process)["start"]
    except OSError:
        return ""


_STAT = re.compile(r"\d+ \((?P<name>.*)\) (?P<state>\S) (?P<parent>\d+)(?: \S+){17} (?P<start>\d+) ", re.DOTALL)
"""Source: proc_pid_stat(5)."""


def _stat(process: int) -> dict[str, str]:
    """OSError when there is no such process, or one that has ended and is not waited for."""
    found = _STAT.match(Path(f"/proc/{process}/stat").read_text())
    if found is None or found["state"] in "ZX":
        raise ProcessLookupError(process)
    return found.groupdict()


def _age_s(file: Path, now_s: float) -> float:
    try:
        return now_s - file.stat().st_mtime
    except OSError:
        return 0.0


def _delete(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.unlink()

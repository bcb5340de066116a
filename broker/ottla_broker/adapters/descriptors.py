"""The limit of open files of the process, and a reserve of descriptors for short calls.

A broker whose clients or logs use every descriptor must still write its checkpoints and sync directories: such a call
gets the descriptors that are reserved here (open on /dev/null), which are closed for it and reopened after it.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")

_RESERVED = 8
"""Deleting a directory with its contents needs the most at a time."""

_FOR_CLIENTS = 0.9
"""Connections of clients use no number above this part of the limit: the rest is for files and other brokers."""


def limit() -> int | None:
    """How many files the process may have open (RLIMIT_NOFILE); None without a limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def is_for_clients(descriptor: int) -> bool:
    """Whether a client's connection may use this descriptor. The kernel assigns the lowest free number, so a high one
    means that nearly all are in use."""
    count = limit()
    return count is None or descriptor < int(count * _FOR_CLIENTS)


class DescriptorReserve:
    """See the module. One per process; used from any thread."""

    def __init__(self, count: int = _RESERVED) -> None:
        self._count = count
        self._reserved: list[int] = []
        self._lock = threading.Lock()

    def fill(self) -> None:
        """Opens the missing descriptors, as far as there are any."""
        with self._lock:
            self._fill()

    def run(self, call: Callable[[], _T]) -> _T:
        """Makes a call that leaves no descriptor open; repeats it with the reserve when there was no descriptor.
        Raises what the call raises."""
        try:
            return call()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        with self._lock:
            while self._reserved:
                os.close(self._reserved.pop())
            try:
                return call()
            finally:
                self._fill()

    def close(self) -> None:
        """Closes the reserve."""
        with self._lock:
            while self._reserved:
                os.close(self._reserved.pop())

    def _fill(self) -> None:
        try:
            while len(self._reserved) < self._count:
                self._reserved.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            return  # a later call fills it


RESERVE = DescriptorReserve()
"""The reserve of this process; `process.prepare` fills it."""

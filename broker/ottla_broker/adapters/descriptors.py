"""The process's file descriptors: a few kept back for calls that need one for a moment, and where a number stands.

A broker whose clients or readers have taken every descriptor must still write its checkpoints and sync directories:
such a call finds the ones that are kept open here on /dev/null, which are closed for it and opened again after it.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")

_KEPT = 8
"""Deleting a directory with all it holds needs the most at a time."""

_FOR_CLIENTS = 0.9
"""Connections of clients take no number above this part of the limit: the rest is for files and other brokers."""


def limit() -> int | None:
    """How many files the process may have open (RLIMIT_NOFILE), None without a limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def is_for_clients(descriptor: int) -> bool:
    """Whether a client's connection may keep this descriptor. The kernel gives the lowest number that is free, so a
    high one says that nearly all are taken."""
    most = limit()
    return most is None or descriptor < int(most * _FOR_CLIENTS)


class DescriptorReserve:
    """See the module. One per process; used from any thread."""

    def __init__(self, count: int = _KEPT) -> None:
        self._count = count
        self._kept: list[int] = []
        self._lock = threading.Lock()

    def fill(self) -> None:
        """Opens what is missing, as far as there are descriptors."""
        with self._lock:
            self._fill()

    def run(self, call: Callable[[], _T]) -> _T:
        """Makes the call, which leaves no descriptor open; once more with those kept here when there was none left.
        Raises what the call raises."""
        try:
            return call()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        with self._lock:
            while self._kept:
                os.close(self._kept.pop())
            try:
                return call()
            finally:
                self._fill()

    def close(self) -> None:
        with self._lock:
            while self._kept:
                os.close(self._kept.pop())

    def _fill(self) -> None:
        try:
            while len(self._kept) < self._count:
                self._kept.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            return  # filled by a later call


RESERVE = DescriptorReserve()
"""Of this process; `process.prepare` fills it."""

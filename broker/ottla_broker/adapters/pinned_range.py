"""A run of bytes of an open file that stays valid until it is released: the FileRange of both production Disks."""

from __future__ import annotations

import errno
from typing import Protocol

from ottla_broker.adapters import disk_calls


class _Pinned(Protocol):
    def unpin(self) -> None:
        """One range less needs the descriptor."""
        ...


class PinnedRange:
    """`fd` and `position` are what the sockets' sendfile takes. `cuts`: the sizes that the file has been cut to."""

    __slots__ = ("_cuts", "_cuts_before", "_file", "fd", "length", "position")

    def __init__(self, file: _Pinned, fd: int, position: int, length: int, cuts: list[int]) -> None:
        self._file: _Pinned | None = file
        self.fd = fd
        self.position = position
        self.length = length
        self._cuts = cuts
        self._cuts_before = len(cuts)

    @property
    def is_stale(self) -> bool:
        since = self._cuts_before
        return len(self._cuts) > since and min(self._cuts[since:]) < self.position + self.length

    def check(self) -> None:
        """Raises OSError ESTALE when the file has been cut below its end."""
        if self.is_stale:
            raise OSError(errno.ESTALE, "what was to be sent has been cut off")

    def read(self) -> bytes:
        self.check()
        return disk_calls.read_at(self.fd, self.position, self.length)

    def release(self) -> None:
        file = self._file
        if file is not None:
            self._file = None
            file.unpin()

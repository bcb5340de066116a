"""A run of bytes of an open file that stays valid until it is released: the FileRange of both production Disks."""

from __future__ import annotations

from typing import Protocol

from ottla_broker.adapters import disk_calls


class _Pinned(Protocol):
    def unpin(self) -> None:
        """One range less needs the descriptor."""
        ...


class PinnedRange:
    """`fd` and `position` are what the sockets' sendfile takes."""

    __slots__ = ("_file", "fd", "length", "position")

    def __init__(self, file: _Pinned, fd: int, position: int, length: int) -> None:
        self._file: _Pinned | None = file
        self.fd = fd
        self.position = position
        self.length = length

    def read(self) -> bytes:
        return disk_calls.read_at(self.fd, self.position, self.length)

    def release(self) -> None:
        file = self._file
        if file is not None:
            self._file = None
            file.unpin()

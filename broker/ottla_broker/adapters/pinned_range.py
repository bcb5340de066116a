"""The FileRange of both production Disks: a range of an open file that can be read until it is released."""

from __future__ import annotations

import errno
from typing import Protocol
from weakref import WeakValueDictionary

from ottla_broker.adapters import disk_calls


class _Pinned(Protocol):
    def unpin(self) -> None:
        """A range of the descriptor was released."""
        ...


class Truncations:
    """The sizes that one file was truncated to, through any of its descriptors."""

    __slots__ = ("__weakref__", "sizes")

    def __init__(self) -> None:
        self.sizes: list[int] = []


class FileTruncations:
    """The `Truncations` of each open file of one Disk, by (device, inode): a file that is opened again while ranges of
    it wait to be sent gets the same value."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[tuple[int, int], Truncations] = WeakValueDictionary()

    def of(self, file: tuple[int, int]) -> Truncations:
        found = self._known.get(file)
        if found is None:
            found = self._known[file] = Truncations()
        return found


class PinnedRange:
    """See `ottla_broker.ports.disk.FileRange`. `fd` and `position` are for sendfile."""

    __slots__ = ("_file", "_truncations", "_truncations_before", "fd", "length", "position")

    def __init__(self, file: _Pinned, fd: int, position: int, length: int, truncations: Truncations) -> None:
        self._file: _Pinned | None = file
        self.fd = fd
        self.position = position
        self.length = length
        self._truncations = truncations
        self._truncations_before = len(truncations.sizes)

    @property
    def is_stale(self) -> bool:
        since, sizes = self._truncations_before, self._truncations.sizes
        return len(sizes) > since and min(sizes[since:]) < self.position + self.length

    def check(self) -> None:
        """Raises OSError ESTALE when the range is stale."""
        if self.is_stale:
            raise OSError(errno.ESTALE, "the bytes to be sent have been truncated")

    def read(self) -> bytes:
        self.check()
        return disk_calls.read_at(self.fd, self.position, self.length)

    def release(self) -> None:
        file = self._file
        if file is not None:
            self._file = None
            file.unpin()

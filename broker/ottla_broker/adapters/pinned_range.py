"""A run of bytes of an open file that stays valid until it is released: the FileRange of both production Disks."""

from __future__ import annotations

import errno
from typing import Protocol
from weakref import WeakValueDictionary

from ottla_broker.adapters import disk_calls


class _Pinned(Protocol):
    def unpin(self) -> None:
        """One range less needs the descriptor."""
        ...


class Cuts:
    """The sizes that one file has been cut to, through whichever of its descriptors."""

    __slots__ = ("__weakref__", "sizes")

    def __init__(self) -> None:
        self.sizes: list[int] = []


class CutsOfFiles:
    """The `Cuts` of the files of one Disk, for as long as somebody has them open: a file that is opened again while
    ranges of it wait to be sent has the same ones. `file` is (device, inode)."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[tuple[int, int], Cuts] = WeakValueDictionary()

    def of(self, file: tuple[int, int]) -> Cuts:
        found = self._known.get(file)
        if found is None:
            found = self._known[file] = Cuts()
        return found


class PinnedRange:
    """`fd` and `position` are what the sockets' sendfile takes."""

    __slots__ = ("_cuts", "_cuts_before", "_file", "fd", "length", "position")

    def __init__(self, file: _Pinned, fd: int, position: int, length: int, cuts: Cuts) -> None:
        self._file: _Pinned | None = file
        self.fd = fd
        self.position = position
        self.length = length
        self._cuts = cuts
        self._cuts_before = len(cuts.sizes)

    @property
    def is_stale(self) -> bool:
        since, sizes = self._cuts_before, self._cuts.sizes
        return len(sizes) > since and min(sizes[since:]) < self.position + self.length

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

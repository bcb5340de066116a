"""What the partition directories of a log directory hold, read for many of them at once while they are loaded.

A broker with thousands of partitions opens each from half a dozen small files. Asked for one by one, each costs a trip
to the lane's thread and back; here one trip reads those of `BATCH` partitions. Whoever changes a directory calls
`forget`: from then on every question goes to the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ottla_broker.ports.disk import Contents, Disk
from ottla_broker.storage.files.names import (
    LEADER_EPOCHS,
    LOG,
    PARTITION_METADATA,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    OffsetFile,
    parse_offset_file,
)

BATCH = 64
"""Directories that one call reads: enough to make the trip cheap, few enough to keep a slow disk answering."""

_SMALL_BYTES = 64 * 1024
"""Larger files are read when asked for."""

_ENDINGS = (*(suffix for suffix in SEGMENT_SUFFIXES if suffix != LOG), SNAPSHOT, LEADER_EPOCHS, PARTITION_METADATA)


class DirectoryContents:
    """One partition's directory: what was read, or with None, or after `forget`, the directory itself."""

    __slots__ = ("_found", "_offset_files", "directory", "disk")

    def __init__(self, disk: Disk, directory: str, found: Contents | None = None) -> None:
        self.disk = disk
        self.directory = directory
        self._found = found
        self._offset_files: Sequence[tuple[OffsetFile, int]] | None = None

    def forget(self) -> None:
        """The directory has been changed."""
        self._found = self._offset_files = None

    async def list(self) -> Sequence[tuple[str, bool, int]]:
        """As `Disk.list`. Raises OSError."""
        if self._found is None:
            return await self.disk.list(self.directory)
        return [(name, is_directory, size) for name, (is_directory, size, _) in self._found.items()]

    async def offset_files(self) -> Sequence[tuple[OffsetFile, int]]:
        """The files that are named after an offset, with their sizes, in no order. Raises OSError."""
        known = self._offset_files
        if known is None:
            known = [
                (parsed, size)
                for name, is_directory, size in await self.list()
                if not is_directory and (parsed := parse_offset_file(name)) is not None
            ]
            if self._found is not None:
                self._offset_files = known
        return known

    async def read(self, name: str) -> bytes:
        """One small file of the directory, whole. Raises OSError, FileNotFoundError."""
        if self._found is not None:
            entry = self._found.get(name)
            if entry is None:
                raise FileNotFoundError(f"{self.directory}/{name}")
            if entry[2] is not None:
                return entry[2]
        return await self.disk.read_file(f"{self.directory}/{name}")

    async def delete(self, name: str) -> None:
        """A file of the directory, which is read anew from then on. Raises OSError."""
        self.forget()
        await self.disk.delete(f"{self.directory}/{name}")


class ContentsReader:
    """Gives the contents of the directories `names`, one after the other, reading ahead in batches."""

    def __init__(self, disk: Disk, names: Sequence[str]) -> None:
        self._disk = disk
        self._names = names
        self._place = {name: divmod(number, BATCH) for number, name in enumerate(names)}
        self._batches: dict[int, asyncio.Future[Sequence[Contents]]] = {}
        self._left: dict[int, int] = {}

    async def of(self, name: str) -> DirectoryContents:
        """Of each name once. Raises OSError."""
        number, place = self._place[name]
        batch = self._batches.get(number)
        if batch is None:
            names = self._names[number * BATCH : (number + 1) * BATCH]
            batch = self._batches[number] = self._disk.read_directories(names, _ENDINGS, _SMALL_BYTES)
            self._left[number] = len(names)
        self._left[number] -= 1
        if not self._left[number]:
            # All have been asked for; whoever still waits holds on to it.
            del self._batches[number]
        return DirectoryContents(self._disk, name, (await batch)[place])

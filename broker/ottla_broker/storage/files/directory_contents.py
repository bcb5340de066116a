"""Reads the small files of many partition directories with one call, while their logs are loaded.

A broker with thousands of partitions opens each from half a dozen small files. One by one, each costs a trip to the
disk's thread and back; here one trip reads the files of `BATCH` partitions. Code that changes a directory calls
`forget`: from then on every read goes to the disk.
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
"""Directories that one call reads: many enough to make the trip cheap, few enough for a slow disk to answer."""

_SMALL_BYTES = 64 * 1024
"""Larger files are read one by one."""

_ENDINGS = (*(suffix for suffix in SEGMENT_SUFFIXES if suffix != LOG), SNAPSHOT, LEADER_EPOCHS, PARTITION_METADATA)


class DirectoryContents:
    """The content of one partition's directory: as read before, or (without that, or after `forget`) from the disk."""

    __slots__ = ("_found", "_offset_files", "directory", "disk")

    def __init__(self, disk: Disk, directory: str, found: Contents | None = None) -> None:
        self.disk = disk
        self.directory = directory
        self._found = found
        self._offset_files: Sequence[tuple[OffsetFile, int]] | None = None

    def forget(self) -> None:
        """The directory has changed: reads go to the disk from now on."""
        self._found = self._offset_files = None

    async def list(self) -> Sequence[tuple[str, bool, int]]:
        """As `Disk.list`. Raises OSError."""
        if self._found is None:
            return await self.disk.list(self.directory)
        return [(name, is_directory, size) for name, (is_directory, size, _) in self._found.items()]

    async def offset_files(self) -> Sequence[tuple[OffsetFile, int]]:
        """The files whose names begin with an offset, with their sizes, in no order. Raises OSError."""
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
        """Deletes a file of the directory. Raises OSError."""
        self.forget()
        await self.disk.delete(f"{self.directory}/{name}")


class ContentsReader:
    """Reads the contents of the directories `names` in batches."""

    def __init__(self, disk: Disk, names: Sequence[str]) -> None:
        self._disk = disk
        self._names = names
        self._place = {name: divmod(number, BATCH) for number, name in enumerate(names)}
        self._batches: dict[int, asyncio.Future[Sequence[Contents]]] = {}
        self._left: dict[int, int] = {}

    async def of(self, name: str) -> DirectoryContents:
        """The contents of one directory; once for each name. Raises OSError."""
        number, place = self._place[name]
        batch = self._batches.get(number)
        if batch is None:
            names = self._names[number * BATCH : (number + 1) * BATCH]
            batch = self._batches[number] = self._disk.read_directories(names, _ENDINGS, _SMALL_BYTES)
            self._left[number] = len(names)
        self._left[number] -= 1
        if not self._left[number]:
            # The last one of the batch; those that still wait have a reference.
            del self._batches[number]
        return DirectoryContents(self._disk, name, (await batch)[place])

"""Reads the offset checkpoints of log directories, and writes them when they change.

A full log directory keeps its old files: their offsets are too low, and a start scans more than necessary. But offsets
that are too high (of a log that was truncated or deleted) must not stay: then the file of the recovery points is
deleted to make room, and as a last resort the file itself.

Not here: the text of the files (`checkpoints.py`), which offsets are in which file (log manager).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from ottla_broker.ports.disk import Disk
from ottla_broker.ports.os_errors import is_sound
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.checkpoints import CheckpointError, decode_offsets, encode_offsets
from ottla_broker.storage.files.names import RECOVERY_POINTS


class CheckpointFiles:
    """The files of all directories of a broker."""

    def __init__(self, on_lack_of_room: Callable[[Disk, OSError], None]) -> None:
        self._on_lack_of_room = on_lack_of_room
        self._written: dict[tuple[str, str], bytes] = {}
        """The content of each file that is not being written: (path of the log directory, name) to bytes."""
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}

    async def read(self, disk: Disk, name: str) -> dict[TopicPartition, int]:
        """The offsets in a checkpoint, {} without the file. Raises OSError, CheckpointError."""
        if not await disk.exists(name):
            return {}
        return decode_offsets(f"{disk.path}/{name}", await disk.read_file(name))

    async def write(self, disk: Disk, name: str, offsets: Mapping[TopicPartition, int]) -> bool:
        """Replaces the file, unless it has these offsets; one write of it at a time. False when there was no room: then
        the file, if there is one, has lower offsets. Raises OSError, except for lack of room."""
        key = (disk.path, name)
        async with self._locks.setdefault(key, asyncio.Lock()):
            return await self._write(disk, name, offsets, key)

    async def _write(self, disk: Disk, name: str, offsets: Mapping[TopicPartition, int], key: tuple[str, str]) -> bool:
        data = encode_offsets(offsets)
        if self._written.get(key) == data:
            return True
        # Before the write: when it fails, the content is unknown.
        self._written.pop(key, None)
        if not await self._write_if_room(disk, name, data):
            if not await self._is_too_high(disk, name, offsets):
                return False
            # The recovery points only save time: without them a start scans more. The other files are needed.
            if name == RECOVERY_POINTS or not await self._replace_recovery_points(disk, name, data):
                await disk.delete(name)
                await disk.fsync_directory()
                return False
        self._written[key] = data
        return True

    async def _is_too_high(self, disk: Disk, name: str, offsets: Mapping[TopicPartition, int]) -> bool:
        """Whether the file's offsets are too high and must not stay. A start ignores a damaged file."""
        try:
            return exceeds(await self.read(disk, name), offsets)
        except CheckpointError:
            return False

    async def _replace_recovery_points(self, disk: Disk, name: str, data: bytes) -> bool:
        """Writes the file in the room of the recovery points, which have every log and so are no smaller."""
        key = (disk.path, RECOVERY_POINTS)
        async with self._locks.setdefault(key, asyncio.Lock()):
            self._written.pop(key, None)
            await disk.delete(RECOVERY_POINTS)
            return await self._write_if_room(disk, name, data)

    async def _write_if_room(self, disk: Disk, name: str, data: bytes) -> bool:
        """Writes the file; False when there is no room. Raises OSError."""
        try:
            await disk.write_file(name, data)
        except OSError as error:
            if not is_sound(error):
                raise
            self._on_lack_of_room(disk, error)
            return False
        return True

    def forget(self, path: str) -> None:
        """The log directory has failed: the content of its files is unknown."""
        for key in [key for key in self._written if key[0] == path]:
            del self._written[key]


def exceeds(checkpoint: Mapping[TopicPartition, int], offsets: Mapping[TopicPartition, int]) -> bool:
    """Whether an offset of the checkpoint is above that in `offsets`, where a missing partition counts as 0.

    >>> t = TopicPartition("t", 0)
    >>> exceeds({t: 5}, {t: 5}), exceeds({t: 6}, {t: 5}), exceeds({t: 1}, {})
    (False, True, True)
    """
    return any(offset > offsets.get(partition, 0) for partition, offset in checkpoint.items())

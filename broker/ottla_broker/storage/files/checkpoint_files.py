"""The offset checkpoints of log directories as files: read, and written when they would say something new.

A directory that is full keeps its old files, which say less than is true; a start then looks at more than it would
have to. What a file says too much (of a log that was cut or is gone) must not stay: then the recovery points give it
their room, and as a last resort the file goes.
Not here: the text (`checkpoints.py`), and which offsets belong into which file (`log_manager.py`).
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
        """What each file holds, where no write of it is under way: (path, name) to bytes."""
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}

    async def read(self, disk: Disk, name: str) -> dict[TopicPartition, int]:
        """{} without the file. Raises OSError, CheckpointError."""
        if not await disk.exists(name):
            return {}
        return decode_offsets(f"{disk.path}/{name}", await disk.read_file(name))

    async def write(self, disk: Disk, name: str, offsets: Mapping[TopicPartition, int]) -> bool:
        """Replaces the file, unless it holds this already; one write of it at a time. False when there was no room: the
        file then says less, if it is there. Raises OSError, but for lack of room."""
        key = (disk.path, name)
        async with self._locks.setdefault(key, asyncio.Lock()):
            return await self._write(disk, name, offsets, key)

    async def _write(self, disk: Disk, name: str, offsets: Mapping[TopicPartition, int], key: tuple[str, str]) -> bool:
        data = encode_offsets(offsets)
        if self._written.get(key) == data:
            return True
        # Forgotten first: a write that fails is not what the file holds from then on.
        self._written.pop(key, None)
        if not await self._has_room(disk, name, data):
            if not await self._says_too_much(disk, name, offsets):
                return False
            # What the others have in it is wanted, but for the recovery points: without them more is looked at.
            if name == RECOVERY_POINTS or not await self._replace_recovery_points(disk, name, data):
                await disk.delete(name)
                await disk.fsync_directory()
                return False
        self._written[key] = data
        return True

    async def _says_too_much(self, disk: Disk, name: str, offsets: Mapping[TopicPartition, int]) -> bool:
        """Whether what the file holds must not stay. One that cannot be understood says nothing to a start."""
        try:
            return exceeds(await self.read(disk, name), offsets)
        except CheckpointError:
            return False

    async def _replace_recovery_points(self, disk: Disk, name: str, data: bytes) -> bool:
        """The file in the room that the recovery points take up, which name every log and so are no smaller."""
        key = (disk.path, RECOVERY_POINTS)
        async with self._locks.setdefault(key, asyncio.Lock()):
            self._written.pop(key, None)
            await disk.delete(RECOVERY_POINTS)
            return await self._has_room(disk, name, data)

    async def _has_room(self, disk: Disk, name: str, data: bytes) -> bool:
        """Writes the file, if there is room for it."""
        try:
            await disk.write_file(name, data)
        except OSError as error:
            if not is_sound(error):
                raise
            self._on_lack_of_room(disk, error)
            return False
        return True

    def forget(self, path: str) -> None:
        """The directory has failed: what its files hold is not known any more."""
        for key in [key for key in self._written if key[0] == path]:
            del self._written[key]


def exceeds(checkpoint: Mapping[TopicPartition, int], offsets: Mapping[TopicPartition, int]) -> bool:
    """Whether the checkpoint vouches for more than `offsets`; for a partition that is not there, for anything.

    >>> t = TopicPartition("t", 0)
    >>> exceeds({t: 5}, {t: 5}), exceeds({t: 6}, {t: 5}), exceeds({t: 1}, {})
    (False, True, True)
    """
    return any(offset > offsets.get(partition, 0) for partition, offset in checkpoint.items())

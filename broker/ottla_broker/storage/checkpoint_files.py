"""The offset checkpoints of log directories as files: read, and written when they would say something new.

A directory that is full keeps its old files, which say less than is true; a start then looks at more than it would
have to. What a file says too much (of a log that was cut or is gone) must not stay: then the file goes.
Not here: the text (`checkpoints.py`), and which offsets belong into which file (`log_manager.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla_broker.ports.disk import Disk
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.checkpoints import decode_offsets, encode_offsets
from ottla_broker.storage.directories import is_lack_of_room


class CheckpointFiles:
    """The files of all directories of a broker."""

    def __init__(self, on_lack_of_room: Callable[[Disk, OSError], None]) -> None:
        self._on_lack_of_room = on_lack_of_room
        self._written: dict[tuple[str, str], bytes] = {}
        """What each file holds, where no write of it is under way: (path, name) to bytes."""
        self._last_write: dict[tuple[str, str], object] = {}

    async def read(self, disk: Disk, name: str) -> dict[TopicPartition, int]:
        """{} without the file. Raises OSError, CheckpointError."""
        if not await disk.exists(name):
            return {}
        return decode_offsets(f"{disk.path}/{name}", await disk.read_file(name))

    async def write(self, disk: Disk, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replaces the file, unless it holds this already. Raises OSError, but for lack of room."""
        data = encode_offsets(offsets)
        key = (disk.path, name)
        if self._written.get(key) == data:
            return
        # Forgotten first: a write that fails, or that another one follows before it ends, is not what the file holds
        # from then on.
        self._written.pop(key, None)
        write = self._last_write[key] = object()
        try:
            await disk.write_file(name, data)
        except OSError as error:
            if not is_lack_of_room(error):
                raise
            self._on_lack_of_room(disk, error)
            if exceeds(await self.read(disk, name), offsets):
                await disk.delete(name)
                await disk.fsync_directory()
            return
        if self._last_write.get(key) is write:
            self._written[key] = data

    def forget(self, path: str) -> None:
        """The directory has failed: what its files hold is not known any more."""
        for key in [key for key in self._written if key[0] == path]:
            del self._written[key]
        for key in [key for key in self._last_write if key[0] == path]:
            del self._last_write[key]


def exceeds(checkpoint: Mapping[TopicPartition, int], offsets: Mapping[TopicPartition, int]) -> bool:
    """Whether the checkpoint vouches for more than `offsets`; for a partition that is not there, for anything.

    >>> t = TopicPartition("t", 0)
    >>> exceeds({t: 5}, {t: 5}), exceeds({t: 6}, {t: 5}), exceeds({t: 1}, {})
    (False, True, True)
    """
    return any(offset > offsets.get(partition, 0) for partition, offset in checkpoint.items())

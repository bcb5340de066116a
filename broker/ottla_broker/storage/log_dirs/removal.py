"""Removes logs: their directory is renamed first, so that no start opens it; its files are deleted later.

`-delete` directories are deleted after file.delete.delay.ms, so that requests that read the files can finish. `-stray`
directories stay until their partition is deleted or a person removes them. A directory that could not be renamed, for
lack of room, is remembered here and renamed with the next removal of its partition.

Not here: when a log is removed, and which other records of it follow (`log_manager.py`); logs that a future log has
replaced (`future_swap.py`), unless they kept their name.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.disk import Disk
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.names import DELETE_DIRECTORY, STRAY_DIRECTORY, renamed_directory_name
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs.directory_access import DirectoryAccess
from ottla_broker.storage.log_dirs.log_checkpoints import LogCheckpoints


class Leftover(NamedTuple):
    """A directory of a partition that has no log open: its name now, and the suffix that it gets."""

    disk: Disk
    name: str
    suffix: str


class LogRemoval:
    """See the module. On the broker's loop."""

    def __init__(self, access: DirectoryAccess, checkpoints: LogCheckpoints, clock: Clock) -> None:
        self._access = access
        self._checkpoints = checkpoints
        self._clock = clock
        self._leftovers: dict[TopicPartition, list[Leftover]] = {}
        """What the next deletion of a partition removes: strays, and directories that kept their name for lack of room.
        An older log comes before the one that replaced it."""

    def log_created(self, partition: TopicPartition) -> None:
        """The partition has a log again: what is left of an earlier one is not deleted with it."""
        self._leftovers.pop(partition, None)

    def add_leftover(self, partition: TopicPartition, disk: Disk, name: str, suffix: str) -> None:
        """A replaced log kept its name: it is renamed before the log that replaced it is removed."""
        self._leftovers.setdefault(partition, []).append(Leftover(disk, name, suffix))

    async def free_name(self, partition: TopicPartition, delay_ms: int) -> None:
        """Renames the directories that still have the partition's name, before the partition gets another log: a start
        that finds the name twice fails. KafkaError as in `delete`."""
        await self._rename_all(partition, self._leftovers.pop(partition, []), delay_ms, keeps_strays=True)

    async def delete(self, partition: TopicPartition, log: Log | None, delay_ms: int) -> None:
        """Renames the log's directory, and the strays of the partition, to `-delete`.

        Args:
            log: already removed from the table; None when there is none.
            delay_ms: file.delete.delay.ms.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when the directory fails, or has no room for the longer name.
        """
        await self._rename_all(partition, await self._with_log(log, DELETE_DIRECTORY, partition), delay_ms)

    async def make_stray(self, partition: TopicPartition, log: Log) -> None:
        """Renames the directory of a log, already removed from the table, to `-stray`. KafkaError as in `delete`."""
        leftovers = await self._with_log(log, STRAY_DIRECTORY, partition)
        await self._rename_all(partition, leftovers, log.state.config.file_delete_delay_ms, keeps_strays=True)

    async def _with_log(self, log: Log | None, suffix: str, partition: TopicPartition) -> list[Leftover]:
        """The leftovers of the partition, with its log last: the others are older. Closes the log."""
        leftovers = self._leftovers.pop(partition, [])
        if log is not None:
            leftovers = [*leftovers, Leftover(log.state.disk, log.state.directory, suffix)]
            try:
                await self._access.guarded(log.state.disk, self._close(log))
            except KafkaError:
                self._remember(partition, leftovers)
                raise
        return leftovers

    def _remember(self, partition: TopicPartition, leftovers: list[Leftover]) -> None:
        """Not those of an offline directory, which is scanned when it is reopened."""
        self._leftovers[partition] = [one for one in leftovers if self._access.is_in_use(one.disk)]

    async def _rename_all(
        self, partition: TopicPartition, leftovers: list[Leftover], delay_ms: int, *, keeps_strays: bool = False
    ) -> None:
        """In their order. The next removal of the partition renames what has no room for its new name."""
        kept: list[Leftover] = []
        for number, one in enumerate(leftovers):
            if not self._access.is_in_use(one.disk):
                continue
            suffix = one.suffix if keeps_strays else DELETE_DIRECTORY
            name = one.name
            try:
                if not name.endswith(suffix):
                    name = await self.rename(partition, one.disk, name, suffix)
            except KafkaError:
                self._remember(partition, [*kept, *leftovers[number:]])
                raise
            if suffix == STRAY_DIRECTORY:
                kept.append(Leftover(one.disk, name, suffix))
            else:
                self._clock.call_later(delay_ms / 1000, self.delete_files, one.disk, name)
        if kept:
            self._leftovers[partition] = kept

    async def rename(self, partition: TopicPartition, disk: Disk, name: str, suffix: str = DELETE_DIRECTORY) -> str:
        """Renames a directory that no log is open in, durably. Returns the new name. KafkaError."""
        new_name = renamed_directory_name(partition, self._clock.uuid4().hex, suffix)
        await self._access.guarded(disk, _rename(disk, name, new_name))
        self._access.note_renamed(disk, name, new_name)
        return new_name

    async def delete_future(self, log: Log) -> None:
        """Closes and deletes a future log that replaces nothing any more. KafkaError when its directory fails."""
        await self._access.guarded(log.state.disk, self._close(log))
        try:
            name = await self.rename(log.state.topic_partition, log.state.disk, log.state.directory)
        except KafkaError:
            if not self._access.is_in_use(log.state.disk):
                raise
            # No room for the other name. To delete the files now takes longer, and needs none.
            await self._access.guarded(log.state.disk, _delete(log.state.disk, log.state.directory))
        else:
            self.delete_files(log.state.disk, name)

    async def _close(self, log: Log) -> None:
        await log.closer.abandon()
        # Before the name is free: a new log of this name must not be loaded with the positions of the old one.
        await self._checkpoints.write_all(log.state.disk)

    def delete_files(self, disk: Disk, name: str) -> None:
        """Deletes a directory in the background, unless it is offline or the broker stops."""
        if self._access.is_in_use(disk) and not self._access.is_closed:
            self._clock.spawn(self._access.guarded(disk, disk.delete(name)), name=f"delete {name}")


async def _delete(disk: Disk, name: str) -> None:
    await disk.delete(name)
    await disk.fsync_directory()


async def _rename(disk: Disk, name: str, new_name: str) -> None:
    await disk.rename(name, new_name)
    await disk.fsync_directory()

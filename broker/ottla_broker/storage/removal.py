"""Logs that go: their directory gets another name first, in which nobody looks for records; its files follow later.

`-delete` is emptied after file.delete.delay.ms, so that whoever reads the files now can finish; `-stray` is kept until
a `delete` of its partition, or a person, removes it. Not here: when a log goes, and what else of it is forgotten then
(`log_manager.py`); the logs that moves leave behind (`moves.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.disk import Disk
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.log import Log
from ottla_broker.storage.names import DELETE_DIRECTORY, STRAY_DIRECTORY, set_aside_name


class RemovalKeeper(Protocol):
    """What removals ask of the log manager."""

    @property
    def is_closed(self) -> bool: ...

    def is_in_use(self, disk: Disk) -> bool:
        """Whether the directory is live, and this is the Disk by which it is."""
        ...

    async def forget_positions(self, disk: Disk) -> None:
        """Writes the checkpoints of a directory as its logs are now. OSError."""
        ...

    async def guarded(self, disk: Disk, work: Awaitable[Any]) -> Any:
        """Awaits calls on a directory; an OSError takes it offline and becomes KAFKA_STORAGE_ERROR."""
        ...


class LogRemoval:
    """See the module. All on the broker's loop."""

    def __init__(self, keeper: RemovalKeeper, clock: Clock) -> None:
        self._keeper = keeper
        self._clock = clock
        self._strays: dict[TopicPartition, tuple[Disk, str]] = {}
        """What is left of a partition, under a name that the next deletion finds: the directory and the name in it."""

    def succeeded(self, partition: TopicPartition) -> None:
        """The partition has a log again: what is left of one before it is not deleted with it."""
        self._strays.pop(partition, None)

    async def delete(self, partition: TopicPartition, log: Log | None, delay_ms: int) -> None:
        """Renames the log's directory to `-delete`; without a log, what was set aside of the partition since the start.

        `log` is one that nobody finds any more. KafkaError KAFKA_STORAGE_ERROR when the directory fails, or has no
        room for the longer name.
        """
        disk, name = self._strays.pop(partition, (None, "")) if log is None else (log.disk, log.directory)
        if disk is not None:
            renamed = self.put_aside(partition, disk, name) if log is None else self.rename_away(log, DELETE_DIRECTORY)
            aside = await self._or_later(partition, disk, name, renamed)
            self._clock.call_later(delay_ms / 1000, self.unlink, disk, aside)

    async def set_aside(self, partition: TopicPartition, log: Log) -> None:
        """Renames the directory of a log that nobody finds any more to `-stray`. KafkaError as in `delete`."""
        renamed = self.rename_away(log, STRAY_DIRECTORY)
        self._strays[partition] = (log.disk, await self._or_later(partition, log.disk, log.directory, renamed))

    async def _or_later(self, partition: TopicPartition, disk: Disk, name: str, renamed: Awaitable[str]) -> str:
        """What keeps its name, for lack of room, goes with the next deletion."""
        try:
            return await renamed
        except KafkaError:
            if self._keeper.is_in_use(disk):
                self._strays[partition] = (disk, name)
            raise

    async def put_aside(self, partition: TopicPartition, disk: Disk, name: str) -> str:
        """Renames a directory that no log is open in, to be deleted; gives the new name. KafkaError."""
        aside = set_aside_name(partition, self._clock.uuid4().hex, DELETE_DIRECTORY)
        await self._keeper.guarded(disk, _rename(disk, name, aside))
        return aside

    async def rename_away(self, log: Log, suffix: str) -> str:
        """Ends a log that nobody finds any more and renames its directory, durably; gives the new name. KafkaError."""
        aside: str = await self._keeper.guarded(log.disk, self._rename_away(log, suffix))
        return aside

    async def _rename_away(self, log: Log, suffix: str) -> str:
        await log.abandon()
        # Before the name is free: a new log of this name must not be read with the old one's positions.
        await self._keeper.forget_positions(log.disk)
        aside = set_aside_name(log.topic_partition, self._clock.uuid4().hex, suffix)
        await _rename(log.disk, log.directory, aside)
        return aside

    def unlink(self, disk: Disk, name: str) -> None:
        """Deletes a directory in the background; not once it is offline, or the broker stops."""
        if self._keeper.is_in_use(disk) and not self._keeper.is_closed:
            self._clock.spawn(self._keeper.guarded(disk, disk.delete(name)), name=f"delete {name}")


async def _rename(disk: Disk, name: str, new_name: str) -> None:
    await disk.rename(name, new_name)
    await disk.fsync_directory()

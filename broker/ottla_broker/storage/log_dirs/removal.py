"""Logs that go: their directory gets another name first, in which nobody looks for records; its files follow later.

`-delete` is emptied after file.delete.delay.ms, so that whoever reads the files now can finish; `-stray` is kept until
a `delete` of its partition, or a person, removes it. Not here: when a log goes, and what else of it is forgotten then
(`log_manager.py`); the logs that moves leave behind (`moves.py`), but for those that keep their name.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, NamedTuple, Protocol

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.disk import Disk
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.names import DELETE_DIRECTORY, STRAY_DIRECTORY, set_aside_name
from ottla_broker.storage.log.log import Log


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


class Leftover(NamedTuple):
    """What is left of a partition in a directory, with the name it has there and the suffix that it is to get."""

    disk: Disk
    name: str
    suffix: str


class LogRemoval:
    """See the module. All on the broker's loop."""

    def __init__(self, keeper: RemovalKeeper, clock: Clock) -> None:
        self._keeper = keeper
        self._clock = clock
        self._left: dict[TopicPartition, list[Leftover]] = {}
        """What the next deletion of a partition has to find: strays, and what has kept its name for lack of room. An
        older copy comes before the log that has taken its place."""

    def succeeded(self, partition: TopicPartition) -> None:
        """The partition has a log again: what is left of one before it is not deleted with it."""
        self._left.pop(partition, None)

    def left_behind(self, partition: TopicPartition, disk: Disk, name: str, suffix: str) -> None:
        """A move could not put the older copy away: it goes before the log that has taken its place does."""
        self._left.setdefault(partition, []).append(Leftover(disk, name, suffix))

    async def make_way(self, partition: TopicPartition, delay_ms: int) -> None:
        """Before the partition gets another log: what has kept its name is renamed, since a start that finds the name
        twice is refused. KafkaError as in `delete`."""
        await self._put_all_aside(partition, self._left.pop(partition, []), delay_ms, keeps_strays=True)

    async def delete(self, partition: TopicPartition, log: Log | None, delay_ms: int) -> None:
        """Renames the log's directory to `-delete`, and what was set aside of the partition since the start.

        `log` is one that nobody finds any more. KafkaError KAFKA_STORAGE_ERROR when the directory fails, or has no
        room for the longer name.
        """
        await self._put_all_aside(partition, await self._with(log, DELETE_DIRECTORY, partition), delay_ms)

    async def set_aside(self, partition: TopicPartition, log: Log) -> None:
        """Renames the directory of a log that nobody finds any more to `-stray`. KafkaError as in `delete`."""
        left = await self._with(log, STRAY_DIRECTORY, partition)
        await self._put_all_aside(partition, left, log.config.file_delete_delay_ms, keeps_strays=True)

    async def _with(self, log: Log | None, suffix: str, partition: TopicPartition) -> list[Leftover]:
        """All that is left of the partition, its log behind it: what else has its name is an older copy."""
        left = self._left.pop(partition, [])
        if log is not None:
            left = [*left, Leftover(log.disk, log.directory, suffix)]
            try:
                await self._keeper.guarded(log.disk, self._end(log))
            except KafkaError:
                self._keep(partition, left)
                raise
        return left

    def _keep(self, partition: TopicPartition, left: list[Leftover]) -> None:
        """What an offline directory holds is looked at when it is back."""
        self._left[partition] = [one for one in left if self._keeper.is_in_use(one.disk)]

    async def _put_all_aside(
        self, partition: TopicPartition, left: list[Leftover], delay_ms: int, *, keeps_strays: bool = False
    ) -> None:
        """In their order. What keeps its name, for lack of room, goes with the next deletion."""
        kept: list[Leftover] = []
        for number, one in enumerate(left):
            if not self._keeper.is_in_use(one.disk):
                continue
            suffix = one.suffix if keeps_strays else DELETE_DIRECTORY
            name = one.name
            try:
                if not name.endswith(suffix):
                    name = await self.put_aside(partition, one.disk, name, suffix)
            except KafkaError:
                self._keep(partition, [*kept, *left[number:]])
                raise
            if suffix == STRAY_DIRECTORY:
                kept.append(Leftover(one.disk, name, suffix))
            else:
                self._clock.call_later(delay_ms / 1000, self.unlink, one.disk, name)
        if kept:
            self._left[partition] = kept

    async def put_aside(self, partition: TopicPartition, disk: Disk, name: str, suffix: str = DELETE_DIRECTORY) -> str:
        """Renames a directory that no log is open in, durably; gives the new name. KafkaError."""
        aside = set_aside_name(partition, self._clock.uuid4().hex, suffix)
        await self._keeper.guarded(disk, _rename(disk, name, aside))
        return aside

    async def discard(self, log: Log) -> None:
        """Ends and deletes a copy that no move goes on with, and that no start finds any more. KafkaError when its
        directory fails."""
        await self._keeper.guarded(log.disk, self._end(log))
        try:
            aside = await self.put_aside(log.topic_partition, log.disk, log.directory)
        except KafkaError:
            if not self._keeper.is_in_use(log.disk):
                raise
            # No room for the other name. To delete it at once takes longer, and needs none.
            await self._keeper.guarded(log.disk, _delete(log.disk, log.directory))
        else:
            self.unlink(log.disk, aside)

    async def _end(self, log: Log) -> None:
        await log.abandon()
        # Before the name is free: a new log of this name must not be read with the old one's positions.
        await self._keeper.forget_positions(log.disk)

    def unlink(self, disk: Disk, name: str) -> None:
        """Deletes a directory in the background; not once it is offline, or the broker stops."""
        if self._keeper.is_in_use(disk) and not self._keeper.is_closed:
            self._clock.spawn(self._keeper.guarded(disk, disk.delete(name)), name=f"delete {name}")


async def _delete(disk: Disk, name: str) -> None:
    await disk.delete(name)
    await disk.fsync_directory()


async def _rename(disk: Disk, name: str, new_name: str) -> None:
    await disk.rename(name, new_name)
    await disk.fsync_directory()

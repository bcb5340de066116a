"""The return of a log directory that was offline, while the broker runs: whose it is, what counts of it, its logs.

Not here: when it is tried (`directory_watch.py`), and what becomes of its replicas (`replication/offline.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla_broker.ports.disk import LogDisk
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.names import POWER_LOST, STRAY_DIRECTORY, parse_partition_directory, set_aside_name
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs.log_directory import (
    LogDirectory,
    LogDirectoryError,
    check,
    claim,
    inspect,
    lacks_leave,
)

if TYPE_CHECKING:
    from ottla_broker.storage.log_dirs.log_manager import LogManager, OfflineLog


class DirectoryReturns:
    """Of one broker: `logs` and `offline` are the manager's, which changes with a return."""

    def __init__(
        self,
        manager: LogManager,
        disks: dict[str, LogDisk],
        logs: dict[TopicPartition, Log],
        offline: dict[TopicPartition, OfflineLog],
    ) -> None:
        self._manager = manager
        self._disks = disks
        self._logs = logs
        self._offline = offline
        self._under_way: dict[str, None] = {}
        self._deleted: dict[str, dict[TopicPartition, None]] = {}
        """By directory that is offline: what was deleted meanwhile, of which it may hold a copy."""

    def deleted(self, partition: TopicPartition) -> None:
        """A copy of it in a directory that is offline now does not count any more."""
        for path in self._disks:
            if not self._manager.states.is_live(path):
                self._deleted.setdefault(path, {})[partition] = None

    def is_returning(self, partition: TopicPartition) -> bool:
        """It is on a directory that is being loaded: it must not be made elsewhere."""
        known = self._offline.get(partition)
        return known is not None and known.path in self._under_way

    async def bring_back(
        self, path: str, disk: LogDisk, tell: Callable[[dict[TopicPartition, bool]], None] = lambda logs: None
    ) -> None:
        """Loads an offline directory from `disk`, as after an unclean end; it is live when this returns.

        `tell` takes its logs, and whether each holds all that it did, in the moment in which they can be found: no
        command may come before one that lacks something is known for that. Copies of partitions that live elsewhere by
        now, or were made anew elsewhere, are renamed `-stray` first. It stays offline with LogDirectoryError (it is not
        the directory that failed), CheckpointError, OSError.
        """
        self._under_way[path] = None
        try:
            await self._bring_back(path, disk, tell)
        finally:
            del self._under_way[path]

    async def _bring_back(self, path: str, disk: LogDisk, tell: Callable[[dict[TopicPartition, bool]], None]) -> None:
        manager = self._manager
        directory = await inspect(disk)
        directory.has_failed = True
        status = manager.states[path]
        without_leave = lacks_leave([directory], manager.settings.may_format)
        directory_id = None if directory.meta is None else directory.meta.directory_id
        if path in without_leave:
            raise LogDirectoryError(without_leave[path])
        if status.directory_id is not None and directory_id != status.directory_id:
            raise LogDirectoryError(
                f"log directory {path} has directory.id {directory_id}, the one that failed has {status.directory_id}"
            )
        check([*(one for one in manager.directories if manager.states.is_live(one.path)), directory], *manager.identity)
        await manager.record_files.look(disk)
        await claim(directory, *manager.identity, manager.clock)
        self._disks[path] = disk
        try:
            for name, is_directory, _ in await disk.list():
                partition = parse_partition_directory(name) if is_directory else None
                if partition is not None and not self._counts(partition, path):
                    manager.notice(
                        f"{partition} lives elsewhere by now or was deleted: its copy in {path} is set aside"
                    )
                    await disk.rename(name, set_aside_name(partition, manager.clock.uuid4().hex, STRAY_DIRECTORY))
            await manager.loader.begin_life(directory)
            await manager.loader.load(directory)
        except BaseException:
            for partition in [partition for partition, log in self._logs.items() if log.disk is disk]:
                del self._logs[partition]
            raise
        tell(self._admit(directory))
        try:
            await manager.record_files.seen(directory)
        except KafkaError as error:
            # Told by the manager. What is set aside stays so, and a directory's id is noted at the next start.
            manager.notice(error.message)

    async def settled(self) -> None:
        """Every replica that came back has been held against its partition's state: nobody takes it for what it was
        before the power was lost, and a start that finds that written down would wait for nothing."""
        # One that was live at the start waits for the registration (`LogManager.doubts_are_over`); one that comes back
        # while the others are written is not settled yet.
        back = [directory for directory in self._manager.directories if directory.is_doubtful and directory.has_failed]
        for directory in back:
            directory.is_doubtful = False
            await self._manager.on_live(directory.path, lambda disk: disk.delete(POWER_LOST))

    def _counts(self, partition: TopicPartition, path: str) -> bool:
        """Whether the copy at `path` is still the replica. If so, it is not to be found, nor made elsewhere, before all
        of the directory is loaded."""
        manager = self._manager
        if partition in self._deleted.get(path, ()):
            return False
        remade = manager.record.remade.get(partition)
        if partition in self._logs or partition in manager.creation.under_way:
            return False
        if remade is not None and path in remade.replaces:
            return False
        return self._offline.setdefault(partition, manager.unknown_log(path)).path == path

    def _admit(self, directory: LogDirectory) -> dict[TopicPartition, bool]:
        manager = self._manager
        path = directory.path
        had = {partition: one for partition, one in self._offline.items() if one.path == path}
        for partition in had:
            del self._offline[partition]
        manager.directories = [one for one in manager.directories if one.path != path] + [directory]
        manager.states[path].directory_id = None if directory.meta is None else directory.meta.directory_id
        manager.states.returned(path, manager.clock.now_ms())
        self._deleted.pop(path, None)
        unknown = manager.unknown_log(path)
        logs: dict[TopicPartition, bool] = {}
        for log in manager.all_logs_in(directory.disk):
            partition = log.topic_partition
            before = had.get(partition, unknown)
            # Consumers have seen it; the checkpoint may be older.
            log.maybe_advance_high_watermark(before.high_watermark)
            is_filling = manager.creation.is_filling(partition)
            # After a loss of power its end may be gone, and of one that was away since the start nobody knows.
            has_its_end = log.log_end_offset >= before.log_end_offset and not directory.is_doubtful
            logs[partition] = has_its_end and not is_filling
        manager.notice(f"log directory {path} is back with {len(logs)} logs")
        return logs

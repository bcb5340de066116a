"""Reopens a log directory that was offline, while the broker runs: checks that it is the same one and loads its logs.

A replica may have been recreated or deleted while the directory was offline; its log there is stale and is renamed to
`-stray`. Not here: when a directory is reopened (`monitor.py`), what the replicas do then (`replication`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ottla_broker.ports.disk import LogDisk
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.names import STRAY_DIRECTORY, parse_partition_directory, renamed_directory_name
from ottla_broker.storage.log_dirs.loading import DirectoryLoader
from ottla_broker.storage.log_dirs.log_directory import (
    DirectoryOwner,
    LogDirectory,
    LogDirectoryError,
    check,
    claim,
    inspect,
    without_format_permission,
)
from ottla_broker.storage.log_dirs.log_table import OfflineLog
from ottla_broker.storage.log_dirs.shared_parts import SharedParts


class DirectoryReopening:
    """See the module. On the broker's loop.

    Args:
        directories: the live directories; one that is reopened is added.
        identity: the broker that the directories belong to.
        creating: the partitions whose logs are being created.
        may_format: `ottla.log.dirs.format`, None without the key.
        on_reopened: notifies the broker: the directory, its logs, and whether each has every record that it had. In the
            turn of the loop in which the logs can be found: no command may come first.
        notice: writes a line to the broker's log.
    """

    def __init__(
        self,
        directories: list[LogDirectory],
        identity: DirectoryOwner,
        shared: SharedParts,
        *,
        loader: DirectoryLoader,
        creating: Collection[TopicPartition],
        may_format: Collection[str] | None,
        on_reopened: Callable[[str, Mapping[TopicPartition, bool]], None],
    ) -> None:
        self._directories = directories
        self._identity = identity
        self._access = shared.access
        self._states = shared.states
        self._table = shared.table
        self._registry = shared.registry
        self._loader = loader
        self._clock = shared.clock
        self._creating = creating
        self._may_format = may_format
        self._on_reopened = on_reopened
        self._notice = shared.notice
        self._in_progress: dict[str, None] = {}
        self._deleted: dict[str, dict[TopicPartition, None]] = {}
        """By path of an offline directory: the partitions that were deleted since, of which it may hold a log."""

    def record_deletion(self, partition: TopicPartition) -> None:
        """A log of the partition in a directory that is offline now is stale."""
        for path in self._states.offline:
            self._deleted.setdefault(path, {})[partition] = None

    def is_reopening(self, partition: TopicPartition) -> bool:
        """Whether the directory of the partition is being loaded: then it must not be recreated elsewhere."""
        known = self._table.offline.get(partition)
        return known is not None and known.path in self._in_progress

    async def reopen(self, path: str, disk: LogDisk) -> None:
        """Loads an offline directory from `disk`, as after an unclean shutdown; it is live when this returns.

        Raises:
            LogDirectoryError: it is not the directory that failed.
            CheckpointError, OSError: its files are damaged, or a call failed.
            In all cases the directory stays offline.
        """
        self._in_progress[path] = None
        try:
            directory = await self._inspect(path, disk)
            self._access.replace_disk(path, disk)
            try:
                await self._load(directory)
            except BaseException:
                for partition in [tp for tp, log in self._table.current.items() if log.state.disk is disk]:
                    self._table.take(partition)
                raise
            self._on_reopened(path, self._admit(directory))
            try:
                await self._registry.directory_reopened(directory)
            except KafkaError as error:
                # The directory is offline or full again. The renamed logs stay strays; the next start records its id.
                self._notice(error.message)
        finally:
            del self._in_progress[path]

    async def _inspect(self, path: str, disk: LogDisk) -> LogDirectory:
        """Raises as `reopen`."""
        directory = await inspect(disk)
        directory.has_failed = True
        known_id = self._states[path].directory_id
        not_permitted = without_format_permission([directory], self._may_format)
        directory_id = None if directory.meta is None else directory.meta.directory_id
        if path in not_permitted:
            raise LogDirectoryError(not_permitted[path])
        if known_id is not None and directory_id != known_id:
            raise LogDirectoryError(
                f"log directory {path} has directory.id {directory_id}, the one that failed has {known_id}"
            )
        others = [one for one in self._directories if self._states.is_live(one.path)]
        check([*others, directory], self._identity.broker_id, self._identity.cluster_id)
        await self._registry.read(disk)  # a damaged one keeps the directory offline
        await claim(directory, self._identity.broker_id, self._identity.cluster_id, self._clock)
        return directory

    async def _load(self, directory: LogDirectory) -> None:
        """Renames the stale logs, then loads the others. Raises as `reopen`."""
        disk = directory.disk
        for name, is_directory, _ in await disk.list():
            partition = parse_partition_directory(name) if is_directory else None
            if partition is not None and self._is_stale(partition, directory.path):
                self._notice(
                    f"{partition} was deleted, or is in another log directory now: its log in {directory.path} is "
                    "stale and becomes a stray"
                )
                await disk.rename(name, renamed_directory_name(partition, self._clock.uuid4().hex, STRAY_DIRECTORY))
        await self._loader.prepare(directory)
        await self._loader.load(directory)

    def _is_stale(self, partition: TopicPartition, path: str) -> bool:
        """Whether the log at `path` is not the replica any more. One that is the replica is recorded as offline there:
        it is not found, nor created elsewhere, until the whole directory is loaded."""
        if partition in self._deleted.get(path, ()):
            return True
        recreated = self._registry.registry.recreated.get(partition)
        if partition in self._table.current or partition in self._creating:
            return True
        if recreated is not None and path in recreated.replaces:
            return True
        return self._table.find_offline(partition, path).path != path

    def _admit(self, directory: LogDirectory) -> dict[TopicPartition, bool]:
        """Makes the directory live. Returns its logs, and whether each has every record that it had."""
        path = directory.path
        offline = self._table.offline
        known = {partition: log for partition, log in offline.items() if log.path == path}
        for partition in known:
            del offline[partition]
        self._directories[:] = [one for one in self._directories if one.path != path] + [directory]
        self._states[path].directory_id = None if directory.meta is None else directory.meta.directory_id
        self._states.reopened(path, self._clock.now_ms())
        self._deleted.pop(path, None)
        logs: dict[TopicPartition, bool] = {}
        for log in self._table.checkpointed_logs_in(directory.disk):
            partition = log.state.topic_partition
            before = known.get(partition, OfflineLog(path))
            # Consumers have seen this high watermark; the checkpoint may be older.
            log.state.maybe_advance_high_watermark(before.high_watermark)
            # After a power loss its last records may be gone; of a log that was offline since the start nobody knows.
            has_its_end = log.state.log_end_offset >= before.log_end_offset and not directory.is_power_loss_suspected
            logs[partition] = has_its_end and not self._registry.is_catching_up(partition)
        self._notice(f"log directory {path} is reopened with {len(logs)} logs")
        return logs

"""Cleans up future replicas (KIP-113) that the last broker left unfinished, at a start, before any log is opened.

    t-0.<uuid>-future, and t-0 in another directory   copying was in progress: it resumes once the logs are loaded
    t-0 in two directories, one with the marker       the one with the marker has replaced the other, which is deleted
    t-0 in two, none or both with the marker          not done by a broker: left, and the broker refuses to start
    -future and no t-0 at all                         the partition was deleted: the future log is deleted too. It is
                                                      left while a directory is offline, which may hold t-0
    -future beside t-0, or a second one               no crash leaves that: deleted
    -future of a replica that was recreated since     deleted

Each step runs on all directories before the next one starts; a directory that fails in a step takes no part in the
following ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ottla_broker.ports.clock import Clock
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.names import (
    DELETE_DIRECTORY,
    FUTURE_REPLICA_MARKER,
    parse_future_directory,
    parse_partition_directory,
    renamed_directory_name,
)
from ottla_broker.storage.log_dirs.log_directory import LogDirectory


class InterruptedFutureReplicas:
    """One start. Directories are named by their paths. All steps raise OSError."""

    def __init__(self, clock: Clock, notice: Callable[[str], None]) -> None:
        self._clock = clock
        self._notice = notice
        self._paths: dict[TopicPartition, list[str]] = {}
        """The directories with a log of each partition."""
        self._futures: dict[TopicPartition, list[tuple[str, str]]] = {}
        """The future logs of each partition, (path, name)."""
        self._marked: dict[TopicPartition, list[str]] = {}
        """Of partitions in several directories: those whose log has the marker."""
        self.swapped: dict[TopicPartition, str] = {}
        """The directory of each log that has the marker, while no other directory shows an older one."""

    async def scan(self, directory: LogDirectory) -> None:
        """Step 1: finds the logs and the future logs."""
        for name, is_directory, _ in await directory.disk.list():
            if not is_directory:
                continue
            if (partition := parse_partition_directory(name)) is not None:
                self._paths.setdefault(partition, []).append(directory.path)
            elif (partition := parse_future_directory(name)) is not None:
                self._futures.setdefault(partition, []).append((directory.path, name))

    async def scan_markers(self, directory: LogDirectory) -> None:
        """Step 2: finds out which of two logs of one partition is the newer."""
        for partition, paths in self._paths.items():
            is_one_of_several = len(paths) > 1 and directory.path in paths
            if is_one_of_several and await directory.disk.exists(f"{partition}/{FUTURE_REPLICA_MARKER}"):
                self._marked.setdefault(partition, []).append(directory.path)

    async def delete_replaced(self, directory: LogDirectory) -> None:
        """Step 3: renames the older one to `-delete`."""
        for partition, newer in self._newer().items():
            if newer == directory.path or directory.path not in self._paths[partition]:
                continue
            self._notice(
                f"{partition} had moved from {directory.path} to {newer} when the broker ended; the old log is deleted"
            )
            name = renamed_directory_name(partition, self._clock.uuid4().hex, DELETE_DIRECTORY)
            await directory.disk.rename(str(partition), name)
            await directory.disk.fsync_directory()
            self._paths[partition].remove(directory.path)

    async def delete_markers(self, directory: LogDirectory) -> None:
        """Step 4: only where the older log is gone durably; until then the marker tells which one is newer."""
        for partition, newer in self._newer().items():
            if newer == directory.path and self._paths[partition] == [newer]:
                await directory.disk.delete(f"{partition}/{FUTURE_REPLICA_MARKER}")
                await directory.disk.fsync_directory(str(partition))

    async def scan_swapped(self, directory: LogDirectory) -> None:
        """While a directory is offline, which may hold the older log: fills `swapped`."""
        for partition, paths in self._paths.items():
            if paths == [directory.path] and await directory.disk.exists(f"{partition}/{FUTURE_REPLICA_MARKER}"):
                self.swapped[partition] = directory.path

    def future_logs(
        self, *, is_complete: bool, recreated: Collection[TopicPartition] = ()
    ) -> dict[tuple[str, str], TopicPartition | None]:
        """Every future log, by (path, name): its partition when copying resumes, None when it is to be deleted. One
        that is left as it is, is not included.

        Args:
            is_complete: no configured directory is offline.
            recreated: the partitions in the replica registry; a future log of an earlier replica is of no use.
        """
        found: dict[tuple[str, str], TopicPartition | None] = {}
        for partition, futures in self._futures.items():
            paths = self._paths.get(partition, [])
            if not paths and not is_complete:
                continue
            resumed = [one for one in futures if paths and one[0] not in paths and partition not in recreated][:1]
            for one in futures:
                found[one] = partition if one in resumed else None
        return found

    def _newer(self) -> dict[TopicPartition, str]:
        return {partition: marked[0] for partition, marked in self._marked.items() if len(marked) == 1}

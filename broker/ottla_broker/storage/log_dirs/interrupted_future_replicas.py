"""What moves between log directories have left on the disks when the last broker ended, put in order before any log
is opened.

    t-0.<uuid>-future, and t-0 in another directory   the copy was being made: it goes on once the replica is served
    t-0 in two directories, one with the marker       the copy had taken over and keeps every promise: the other goes
    t-0 in two, none or both with the marker          somebody else's doing: left, and the broker refuses to start
    -future and no t-0 at all                         the partition was deleted: the copy goes too. It is left while
                                                      a directory is offline, which may hold t-0
    -future beside t-0, or a second one               no crash leaves that: it goes
    -future of a replica that was made anew since     it goes

Each step is done on all directories before the next begins; one that fails over it is out of the following ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ottla_broker.ports.clock import Clock
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.names import (
    DELETE_DIRECTORY,
    MOVE_MARKER,
    parse_future_directory,
    parse_partition_directory,
    set_aside_name,
)
from ottla_broker.storage.log_dirs.log_directory import LogDirectory


class InterruptedMoves:
    """Directories are named by their paths. All steps raise OSError."""

    def __init__(self, clock: Clock, notice: Callable[[str], None]) -> None:
        self._clock = clock
        self._notice = notice
        self._homes: dict[TopicPartition, list[str]] = {}
        self._futures: dict[TopicPartition, list[tuple[str, str]]] = {}
        self._marked: dict[TopicPartition, list[str]] = {}
        self.arrived: dict[TopicPartition, str] = {}
        """The directory of each log that has the marker and no other copy in sight."""

    async def look(self, directory: LogDirectory) -> None:
        """First: what is there."""
        for name, is_directory, _ in await directory.disk.list():
            if not is_directory:
                continue
            if (partition := parse_partition_directory(name)) is not None:
                self._homes.setdefault(partition, []).append(directory.path)
            elif (partition := parse_future_directory(name)) is not None:
                self._futures.setdefault(partition, []).append((directory.path, name))

    async def look_for_markers(self, directory: LogDirectory) -> None:
        """Second: which of two directories of one partition is the newer."""
        for partition, homes in self._homes.items():
            is_one_of_several = len(homes) > 1 and directory.path in homes
            if is_one_of_several and await directory.disk.exists(f"{partition}/{MOVE_MARKER}"):
                self._marked.setdefault(partition, []).append(directory.path)

    async def put_away(self, directory: LogDirectory) -> None:
        """Third: the older one."""
        for partition, newer in self._settled().items():
            if newer == directory.path or directory.path not in self._homes[partition]:
                continue
            self._notice(
                f"{partition} had moved from {directory.path} to {newer} when the broker ended; the old copy is deleted"
            )
            aside = set_aside_name(partition, self._clock.uuid4().hex, DELETE_DIRECTORY)
            await directory.disk.rename(str(partition), aside)
            await directory.disk.fsync_directory()
            self._homes[partition].remove(directory.path)

    async def unmark(self, directory: LogDirectory) -> None:
        """Last, and only where the other one is gone durably: the marker settles which is the newer."""
        for partition, newer in self._settled().items():
            if newer == directory.path and self._homes[partition] == [newer]:
                await directory.disk.delete(f"{partition}/{MOVE_MARKER}")
                await directory.disk.fsync_directory(str(partition))

    async def look_for_arrivals(self, directory: LogDirectory) -> None:
        """While a directory is offline, which may hold the older copy: see `arrived`."""
        for partition, homes in self._homes.items():
            if homes == [directory.path] and await directory.disk.exists(f"{partition}/{MOVE_MARKER}"):
                self.arrived[partition] = directory.path

    def copies(
        self, *, is_complete: bool, remade: Collection[TopicPartition] = ()
    ) -> dict[tuple[str, str], TopicPartition | None]:
        """Every copy, by (log directory, name): with the partition whose move goes on, None when it is to be deleted.

        `is_complete`: no configured directory is offline. A copy that is to be left is not in the answer. `remade` are
        those of which the directories remember what is their home: a copy of what they were before is no move of them.
        """
        copies: dict[tuple[str, str], TopicPartition | None] = {}
        for partition, futures in self._futures.items():
            homes = self._homes.get(partition, [])
            if not homes and not is_complete:
                continue
            wanted = [place for place in futures if homes and place[0] not in homes and partition not in remade][:1]
            for place in futures:
                copies[place] = partition if place in wanted else None
        return copies

    def _settled(self) -> dict[TopicPartition, str]:
        return {partition: marked[0] for partition, marked in self._marked.items() if len(marked) == 1}

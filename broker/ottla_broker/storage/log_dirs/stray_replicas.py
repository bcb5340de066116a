"""At a start, before any log is opened: copies of replicas that were made anew elsewhere while their directory was
offline are set aside (`-stray`); what the record of the directories says no longer is taken out of it.

Which they are is `directory_record.settle`; a directory that returns while the broker runs is `directory_return.py`.
Both steps are done on all directories before the next begins, and each raises OSError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla_broker.ports.clock import Clock
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.names import MOVE_MARKER, STRAY_DIRECTORY, parse_partition_directory, set_aside_name
from ottla_broker.storage.log_dirs.log_directory import LogDirectory
from ottla_broker.storage.log_dirs.replica_registry import NOWHERE, DirectoryRecordFiles, Settled, settle


class ReplacedCopies:
    """`configured` are the paths of log.dirs; `notice` takes a line for the broker's log."""

    def __init__(
        self, files: DirectoryRecordFiles, configured: Sequence[str], clock: Clock, notice: Callable[[str], None]
    ) -> None:
        self._files = files
        self._configured = configured
        self._clock = clock
        self._notice = notice
        self._present: dict[str, dict[TopicPartition, None]] = {}
        self._unfilled: dict[str, list[TopicPartition]] = {}
        """Copies that were never filled, and of which the newest record does not know."""

    async def look(self, directory: LogDirectory) -> None:
        """First: what is there."""
        found = [
            parse_partition_directory(name) for name, is_directory, _ in await directory.disk.list() if is_directory
        ]
        self._present[directory.path] = {partition: None for partition in found if partition is not None}
        for partition in self._files.unfilled.get(directory.path, []):
            is_known = partition in self._files.record.remade or partition not in self._present[directory.path]
            if not is_known and not await directory.disk.exists(f"{partition}/{MOVE_MARKER}"):
                self._unfilled.setdefault(directory.path, []).append(partition)

    async def put_aside(self, directory: LogDirectory) -> None:
        """Second: the older copies, durably."""
        aside = [partition for path, partition in self._settled().aside if path == directory.path]
        for partition in aside:
            home = self._files.record.remade[partition].home
            since = "deleted" if home == NOWHERE else f"made anew on {home}"
            self._notice(f"{partition} was {since}; its older copy in {directory.path} is set aside")
        for partition in self._unfilled.get(directory.path, []):
            homes = [
                path
                for path, found in self._present.items()
                if partition in found and partition not in self._unfilled.get(path, ())
            ]
            if homes:
                self._notice(f"{partition} in {directory.path} was never filled and is set aside: {homes[0]} has it")
                aside.append(partition)
        for partition in aside:
            name = set_aside_name(partition, self._clock.uuid4().hex, STRAY_DIRECTORY)
            await directory.disk.rename(str(partition), name)
        if aside:
            await directory.disk.fsync_directory()

    def finish(self, live: Sequence[str]) -> None:
        """Last: takes out of the record what both steps have settled on the `live` ones; not saved yet."""
        self._present = {path: found for path, found in self._present.items() if path in live}
        left = self._settled().remade
        for partition in list(self._files.record.remade):
            self._files.take_down(partition, left.get(partition))

    def _settled(self) -> Settled:
        return settle(self._files.record.remade, self._present, self._configured)

"""Loading one log directory at a start or after its repair: what lies in it, the logs opened, checkpoints put right.

Several directories are loaded at once, and of each several logs. Not here: whose directory it is (`log_directory.py`),
one log (`loading.py`), where a recovery runs (`log_recovery.py`), and what a failure means (`log_manager.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Protocol

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.disk import Disk
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.checkpoint_files import CheckpointFiles, exceeds
from ottla_broker.storage.files.checkpoints import CheckpointError
from ottla_broker.storage.files.directory_contents import BATCH, ContentsReader
from ottla_broker.storage.files.names import (
    CLEAN_OFFSETS,
    CLEAN_SHUTDOWN,
    DELETE_DIRECTORY,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    STRAY_DIRECTORY,
    is_set_aside,
    parse_partition_directory,
)
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.loading import open_log
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.recovery import gaps_of
from ottla_broker.storage.log.state import LogOwner
from ottla_broker.storage.log_dirs.log_directory import LogDirectory, mark_recovered
from ottla_broker.storage.log_dirs.recovery_threads import LogRecovery

_LOADS_PER_DIRECTORY = 4


class LoadingKeeper(LogOwner, Protocol):
    """What the loader asks of the log manager, beside what each log asks of it."""

    def adopt(self, log: Log) -> None:
        """A log has been opened. LogDirectoryError when there is another one of its partition."""
        ...

    def all_logs_in(self, disk: Disk) -> list[Log]:
        """Those of one directory so far, copies that are being made there included."""
        ...


class DirectoryLoader:
    """See the module. `config_of` gives a topic's log configuration."""

    def __init__(
        self,
        keeper: LoadingKeeper,
        clock: Clock,
        checkpoints: CheckpointFiles,
        recovery: LogRecovery,
        config_of: Callable[[str], LogConfig],
        threads: int,
    ) -> None:
        """`threads` is num.recovery.threads.per.data.dir."""
        self._keeper = keeper
        self._clock = clock
        self._checkpoints = checkpoints
        self._recovery = recovery
        self._progress = recovery.progress
        self._config_of = config_of
        self._threads = threads
        self._configs: dict[str, LogConfig] = {}
        """Of the topics of the logs being loaded, as long as nothing changes."""
        self.copies: dict[tuple[str, str], TopicPartition | None] = {}
        """(path, name) of copies of interrupted moves to the partition; None for those of no use."""
        self.futures: dict[TopicPartition, Log] = {}
        """Those copies, loaded, until the moves take them back."""

    def forget_configs(self) -> None:
        """A topic's configuration has changed, or all is loaded."""
        self._configs.clear()

    async def begin_life(self, directory: LogDirectory) -> None:
        """Before anything is loaded. Raises OSError."""
        if directory.was_clean:
            # Gone before anything is touched: a crash from here on is an unclean one.
            await directory.disk.delete(CLEAN_SHUTDOWN)
        # Where it was not clean, a partition whose creation was interrupted may hold records from here on: it must be
        # found again.
        await directory.disk.fsync_directory()

    async def load(self, directory: LogDirectory) -> None:
        """Opens the directory's logs and hands them over. Raises LogDirectoryError, OSError."""
        disk = directory.disk
        recovery_points, is_point_known = await self._read_recovery_points(directory)
        start_offsets = await self._read_or_forget(disk, LOG_START_OFFSETS, "every log begins with its first segment")
        high_watermarks = await self._read_or_forget(disk, HIGH_WATERMARKS, "they are agreed with the other replicas")
        clean_offsets = await self._read_or_forget(disk, CLEAN_OFFSETS, "compaction looks at every log as a whole")
        found: list[tuple[TopicPartition, str]] = []
        strays: list[str] = []
        for name, is_directory, _ in await disk.list():
            if is_directory and is_set_aside(name, DELETE_DIRECTORY):
                await disk.delete(name)
            elif is_directory and is_set_aside(name, STRAY_DIRECTORY):
                strays.append(name)
            elif is_directory and (partition := parse_partition_directory(name)) is not None:
                found.append((partition, name))
            elif (disk.path, name) in self.copies:
                copied = self.copies[disk.path, name]
                if copied is not None:
                    found.append((copied, name))
                else:
                    self._keeper.notice(f"{name} in {disk.path} is of no use any more and is deleted")
                    await disk.delete(name)
        if strays:
            self._keeper.notice(
                f"log directory {disk.path} holds {len(strays)} partition directories that were set aside and nobody "
                f"reads: {', '.join(strays)}; look whether the records are wanted, then delete them"
            )
        self._progress.total += len(found)
        if not directory.was_clean:
            await self._recovery.survey(disk, [(name, recovery_points.get(tp, 0)) for tp, name in found])
        may_have_holes = directory.lost_power or directory.has_failed
        remaining: Iterator[tuple[TopicPartition, str]] = iter(found)
        reader = ContentsReader(disk, [name for _, name in found]) if directory.was_clean else None

        async def load_some() -> None:
            for partition, name in remaining:
                self._progress.current.append(name)
                # One configuration for all partitions of a topic: there may be thousands.
                config = self._configs.get(partition.topic) or self._config_of(partition.topic)
                self._configs[partition.topic] = config
                try:
                    log = await open_log(
                        topic_partition=partition,
                        directory=name,
                        disk=disk,
                        clock=self._clock,
                        owner=self._keeper,
                        config=config,
                        recovery_point=recovery_points.get(partition, 0),
                        log_start_offset=start_offsets.get(partition, 0),
                        high_watermark=high_watermarks.get(partition, 0),
                        is_clean=directory.was_clean,
                        recover=partial(
                            self._recovery.run,
                            *(disk, name, config),
                            gaps_of(config.is_compacted, may_have_holes, is_point_known=is_point_known),
                        ),
                        contents=None if reader is None else await reader.of(name),
                        notice=self._keeper.notice,
                    )
                finally:
                    self._progress.current.remove(name)  # also of one that is tried again later
                log.state.clean_offset = min(clean_offsets.get(partition, 0), log.log_end_offset)
                self._progress.loaded += 1
                if (disk.path, name) in self.copies:
                    self.futures[partition] = log
                    continue
                self._keeper.adopt(log)

        # After an orderly end hardly any log waits for the disk: as many at once as one read brings.
        at_once = BATCH if directory.was_clean else max(_LOADS_PER_DIRECTORY, self._threads)
        await all_or_first_error(self._clock, [load_some] * at_once, f"load {disk.path}")
        await self._take_back(disk, recovery_points, start_offsets, high_watermarks, clean_offsets)
        await mark_recovered(directory)

    async def _take_back(
        self,
        disk: Disk,
        recovery_points: dict[TopicPartition, int],
        start_offsets: dict[TopicPartition, int],
        high_watermarks: dict[TopicPartition, int],
        clean_offsets: dict[TopicPartition, int],
    ) -> None:
        """Writes anew the checkpoints that say more than the logs hold, before anything is appended. Raises OSError.

        A log may end below them: its truncation was interrupted, or its directory was removed. What is written from
        here on at those offsets would, after a crash, be taken for durable (and not be scanned), for committed, or for
        deleted.
        """
        logs = self._keeper.all_logs_in(disk)
        if exceeds(recovery_points, {log.topic_partition: log.recovery_point for log in logs}):
            await self._keeper.checkpoint_recovery_points(disk)
        if exceeds(start_offsets, {log.topic_partition: log.log_start_offset for log in logs}):
            await self._keeper.checkpoint_log_start_offsets(disk)
        if exceeds(high_watermarks, {log.topic_partition: log.high_watermark for log in logs}):
            await self._keeper.checkpoint_high_watermarks_in(disk)
        if exceeds(clean_offsets, {log.topic_partition: log.clean_offset for log in logs}):
            await self._keeper.checkpoint_clean_offsets(disk)

    async def _read_or_forget(self, disk: Disk, name: str, what_follows: str) -> dict[TopicPartition, int]:
        """One of the offset checkpoints; of one that is damaged nothing is known, as with Apache Kafka."""
        try:
            return await self._checkpoints.read(disk, name)
        except CheckpointError as error:
            self._keeper.notice(f"{error}: the file goes and is written anew; {what_follows}")
            await disk.delete(name)
            return {}

    async def _read_recovery_points(self, directory: LogDirectory) -> tuple[dict[TopicPartition, int], bool]:
        """And whether there is such a checkpoint. Without a readable one every log is scanned from its start."""
        try:
            is_there = await directory.disk.exists(RECOVERY_POINTS)
            return await self._checkpoints.read(directory.disk, RECOVERY_POINTS), is_there
        except CheckpointError as error:
            self._keeper.notice(f"{error}: every log of {directory.path} is recovered from its start")
            directory.was_clean = False
            return {}, False


async def all_or_first_error(clock: Clock, works: list[Callable[[], Coroutine[Any, Any, None]]], name: str) -> None:
    """All at once; the first exception ends the others and is raised."""
    tasks = [clock.spawn(_outcome(work), name=name) for work in works]
    try:
        for task in asyncio.as_completed(tasks):
            error = await task
            if error is not None:
                raise error
    finally:
        for one in tasks:
            one.cancel()


async def _outcome(work: Callable[[], Coroutine[Any, Any, None]]) -> Exception | None:
    """The exception as a value, so that it is raised where it is awaited and reported nowhere else."""
    try:
        await work()
    except Exception as error:
        return error
    return None

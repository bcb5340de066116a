"""Loads all logs of one log directory, at a start or when the directory is reopened, and corrects its checkpoints.

Several directories load at the same time, and several logs of each. Not here: who owns the directory
(`log_directory.py`), opening one log (`storage/log/loading.py`), where a recovery runs (`recovery_threads.py`), what
follows from a failure (`startup.py`, `reopening.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.disk import Disk
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.checkpoint_files import exceeds
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
    is_renamed_directory,
    parse_partition_directory,
)
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.loading import open_log
from ottla_broker.storage.log.recovery import gap_limit_of
from ottla_broker.storage.log.state import LogOwner
from ottla_broker.storage.log_dirs.log_checkpoints import LogCheckpoints
from ottla_broker.storage.log_dirs.log_directory import LogDirectory, mark_recovered
from ottla_broker.storage.log_dirs.log_table import LogTable
from ottla_broker.storage.log_dirs.recovery_threads import RecoveryThreads
from ottla_broker.storage.log_dirs.states import DirectoryStates

_LOADS_PER_DIRECTORY = 4


class DirectoryLoader:
    """See the module. Adds the logs that it opens to the table.

    Args:
        owner: what the logs call.
        config_of: the configuration of a topic's logs.
        threads: num.recovery.threads.per.data.dir.
    """

    def __init__(
        self,
        owner: LogOwner,
        table: LogTable,
        states: DirectoryStates,
        clock: Clock,
        checkpoints: LogCheckpoints,
        recovery: RecoveryThreads,
        config_of: Callable[[str], LogConfig],
        threads: int,
    ) -> None:
        self._owner = owner
        self._table = table
        self._states = states
        self._clock = clock
        self._checkpoints = checkpoints
        self._recovery = recovery
        self._progress = recovery.progress
        self._config_of = config_of
        self._threads = threads
        self._configs: dict[str, LogConfig] = {}
        """By topic, until a configuration changes or all logs are loaded."""
        self.future_logs: dict[tuple[str, str], TopicPartition | None] = {}
        """(path, name) of each future log that the last broker left, with its partition; None: delete it."""

    def forget_configs(self) -> None:
        """Reads the configuration of every topic again from now on."""
        self._configs.clear()

    async def prepare(self, directory: LogDirectory) -> None:
        """Deletes the clean-shutdown file, before anything is loaded. Raises OSError."""
        if directory.was_clean:
            # First of all: a crash from here on is an unclean shutdown.
            await directory.disk.delete(CLEAN_SHUTDOWN)
        # After an unclean shutdown the name of a partition directory may not be durable, and the log in it gets records
        # from now on: the next start must find it.
        await directory.disk.fsync_directory()

    async def load(self, directory: LogDirectory) -> None:
        """Opens the logs of the directory. Raises LogDirectoryError, OSError."""
        disk = directory.disk
        recovery_points = await self._read_recovery_points(directory)
        start_offsets = await self._read_or_delete(disk, LOG_START_OFFSETS, "every log starts with its first segment")
        high_watermarks = await self._read_or_delete(disk, HIGH_WATERMARKS, "the leaders report them again")
        clean_offsets = await self._read_or_delete(disk, CLEAN_OFFSETS, "compaction reads every log from its start")
        found: list[tuple[TopicPartition, str]] = []
        strays: list[str] = []
        for name, is_directory, _ in await disk.list():
            if is_directory and is_renamed_directory(name, DELETE_DIRECTORY):
                await disk.delete(name)
            elif is_directory and is_renamed_directory(name, STRAY_DIRECTORY):
                strays.append(name)
            elif is_directory and (partition := parse_partition_directory(name)) is not None:
                found.append((partition, name))
            elif (disk.path, name) in self.future_logs:
                future_of = self.future_logs[disk.path, name]
                if future_of is not None:
                    found.append((future_of, name))
                else:
                    self._owner.notice(f"{name} in {disk.path} is of no use any more and is deleted")
                    await disk.delete(name)
        self._states[disk.path].strays = set(strays)
        if strays:
            self._owner.notice(
                f"log directory {disk.path} holds {len(strays)} stray partition directories that nobody reads: "
                f"{', '.join(strays)}; check whether the records are needed, then delete them"
            )
        self._progress.total += len(found)
        if not directory.was_clean:
            await self._recovery.measure(disk, [(name, recovery_points.get(tp, 0)) for tp, name in found])
        may_have_holes = directory.lost_power or directory.has_failed or directory.has_failed_before
        remaining: Iterator[tuple[TopicPartition, str]] = iter(found)
        reader = ContentsReader(disk, [name for _, name in found]) if directory.was_clean else None

        async def load_some() -> None:
            for partition, name in remaining:
                self._progress.current.append(name)
                # One value for all partitions of a topic: there may be thousands.
                config = self._configs.get(partition.topic) or self._config_of(partition.topic)
                self._configs[partition.topic] = config
                try:
                    log = await open_log(
                        topic_partition=partition,
                        directory=name,
                        disk=disk,
                        clock=self._clock,
                        owner=self._owner,
                        config=config,
                        recovery_point=recovery_points.get(partition, 0),
                        log_start_offset=start_offsets.get(partition, 0),
                        high_watermark=high_watermarks.get(partition, 0),
                        is_clean=directory.was_clean,
                        recover=partial(
                            self._recovery.run,
                            *(disk, name, config),
                            gap_limit_of(clean_offsets.get(partition, 0), lost_power=may_have_holes),
                        ),
                        contents=None if reader is None else await reader.of(name),
                    )
                finally:
                    self._progress.current.remove(name)  # also after a failure
                log.state.cleaned_to(min(clean_offsets.get(partition, 0), log.state.log_end_offset))
                self._progress.loaded += 1
                if (disk.path, name) in self.future_logs:
                    self._table.loaded_future[partition] = log
                    continue
                self._table.add(log)

        # After a clean shutdown hardly any log waits for the disk: as many at once as one read brings.
        at_once = BATCH if directory.was_clean else max(_LOADS_PER_DIRECTORY, self._threads)
        await all_or_first_error(self._clock, [load_some] * at_once, f"load {disk.path}")
        await self._correct_checkpoints(disk, recovery_points, start_offsets, high_watermarks, clean_offsets)
        await mark_recovered(directory)

    async def _correct_checkpoints(
        self,
        disk: Disk,
        recovery_points: dict[TopicPartition, int],
        start_offsets: dict[TopicPartition, int],
        high_watermarks: dict[TopicPartition, int],
        clean_offsets: dict[TopicPartition, int],
    ) -> None:
        """Rewrites the checkpoints whose offsets are beyond the logs, before anything is appended. Raises OSError.

        A log may end below its checkpointed offsets: its truncation was interrupted, or its directory was removed.
        Records that are appended at those offsets would count as durable (and not be scanned), as committed, or as
        deleted after a crash.
        """
        logs = self._table.checkpointed_logs_in(disk)
        if exceeds(recovery_points, {log.state.topic_partition: log.state.recovery_point for log in logs}):
            await self._checkpoints.write_recovery_points(disk)
        if exceeds(start_offsets, {log.state.topic_partition: log.state.log_start_offset for log in logs}):
            await self._checkpoints.write_log_start_offsets(disk)
        if exceeds(high_watermarks, {log.state.topic_partition: log.state.high_watermark for log in logs}):
            await self._checkpoints.write_high_watermarks(disk)
        if exceeds(clean_offsets, {log.state.topic_partition: log.state.clean_offset for log in logs}):
            await self._checkpoints.write_clean_offsets(disk)

    async def _read_or_delete(self, disk: Disk, name: str, consequence: str) -> dict[TopicPartition, int]:
        """One offset checkpoint; a damaged file is deleted and counts as empty, as with Apache Kafka."""
        try:
            return await self._checkpoints.read(disk, name)
        except CheckpointError as error:
            self._owner.notice(f"{error}: the file is deleted and will be rewritten; {consequence}")
            await disk.delete(name)
            return {}

    async def _read_recovery_points(self, directory: LogDirectory) -> dict[TopicPartition, int]:
        """The recovery points. Without such a file every log is scanned from its start."""
        try:
            return await self._checkpoints.read(directory.disk, RECOVERY_POINTS)
        except CheckpointError as error:
            self._owner.notice(f"{error}: every log of {directory.path} is recovered from its start")
            directory.was_clean = False
            return {}


async def all_or_first_error(clock: Clock, works: list[Callable[[], Coroutine[Any, Any, None]]], name: str) -> None:
    """Runs all at the same time; the first exception cancels the others and is raised."""
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

"""All logs of a broker, over its log directories: loading, creation, deletion, checkpoints, the regular chores.

    manager = LogManager(disks, clock, workers, settings, config_of, on_directory_failure=tell)
    directories = await manager.inspect()          # locks, whose directories these are; the ones that answer
    await manager.claim(broker_id, cluster_id)     # refuses, formats
    await manager.load()                           # all directories at once; `progress` tells how far
    manager.start()                                # flushes, checkpoints, retention
    ...
    await manager.close(broker_epoch)              # flush, checkpoints, clean-shutdown markers

A directory that fails is offline (`directories.py`): its logs are failed, `on_directory_failure` is told once, and
every other directory goes on; so is one that cannot be opened at the start. It comes back by itself
(`directory_watch.py`). What follows for the broker, which halts when none is left, is decided by whom
`on_directory_failure` tells.
"""

from __future__ import annotations

import asyncio
import errno
import posixpath
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.disk import Disk, LogDisk
from ottla_broker.ports.os_errors import is_shortage, is_sound
from ottla_broker.ports.workers import Workers
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.checkpoint_files import CheckpointFiles
from ottla_broker.storage.files.checkpoints import encode_clean_shutdown, encode_partition_metadata
from ottla_broker.storage.files.names import (
    CLEAN_OFFSETS,
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    NEW_DIRECTORY,
    PARTITION_METADATA,
    POWER_LOST,
    RECOVERY_POINTS,
)
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs.background_tasks import LogChores
from ottla_broker.storage.log_dirs.creation import NO_TOPIC_ID, LogCreation
from ottla_broker.storage.log_dirs.future_replicas import Moves, marker_text
from ottla_broker.storage.log_dirs.interrupted_future_replicas import InterruptedMoves
from ottla_broker.storage.log_dirs.loading import DirectoryLoader, all_or_first_error
from ottla_broker.storage.log_dirs.log_directory import (
    LogDirectory,
    LogDirectoryError,
    check,
    claim,
    inspect,
    lacks_leave,
)
from ottla_broker.storage.log_dirs.monitor import DirectoryWatch
from ottla_broker.storage.log_dirs.recovery_threads import LoadProgress, LogRecovery
from ottla_broker.storage.log_dirs.removal import LogRemoval
from ottla_broker.storage.log_dirs.reopening import DirectoryReturns
from ottla_broker.storage.log_dirs.replica_registry import DirectoryRecord, DirectoryRecordFiles, Remade, foreign
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from ottla_broker.storage.log_dirs.states import DirectoryState, DirectoryStates, Verdict, after_failure, reason_of
from ottla_broker.storage.log_dirs.stray_replicas import ReplacedCopies

_SHORTAGE_NOTICE_S = 10.0


class OfflineLog(NamedTuple):
    """A log whose directory is offline: the directory, the end that it was written to, its high watermark, its bytes;
    -1 when not known."""

    path: str
    log_end_offset: int = -1
    high_watermark: int = -1
    size_bytes: int = -1


class LogManager:
    """See the module. All on the broker's loop. Implements `log_state.LogOwner`."""

    def __init__(
        self,
        disks: Mapping[str, LogDisk],
        clock: Clock,
        workers: Workers,
        settings: LogManagerSettings,
        config_of: Callable[[str], LogConfig],
        *,
        on_directory_failure: Callable[[str, OSError], None],
        on_directory_change: Callable[[str], None] = lambda path: None,
        on_directory_return: Callable[[str, Mapping[TopicPartition, bool]], None] = lambda path, logs: None,
        on_notice: Callable[[str], None] = lambda message: None,
    ) -> None:
        """`config_of` gives the log configuration of a topic; `on_notice` takes one line for the broker's log.

        `on_directory_change` is told of a directory that is full, or online again; `on_directory_failure` of one that
        goes offline; `on_directory_return` of one that is live again, with its logs and whether each is as long as it
        was.
        """
        self._disks = dict(disks)
        self.states = DirectoryStates(list(disks), settings.reserve_bytes)
        self.clock = clock
        self._workers = workers
        self.settings = settings
        self._config_of = config_of
        self._on_directory_failure = on_directory_failure
        self._on_directory_change = on_directory_change
        self._on_directory_return = on_directory_return
        self._watch = DirectoryWatch(
            self.states,
            clock,
            disk_of=self._disks.__getitem__,
            judged=self.judged,
            bring_back=self._bring_back,
            notice=on_notice,
            timeout_s=settings.io_timeout_ms / 1000,
        )
        self._notice = on_notice
        self._logs: dict[TopicPartition, Log] = {}
        self._offline_partitions: dict[TopicPartition, OfflineLog] = {}
        self.identity: tuple[int, str] = (-1, "")
        self.removal = LogRemoval(self, clock)
        self._checkpoints = CheckpointFiles(self.directory_full)
        self._is_loaded = False
        self._is_closed = False
        self._next_shortage_notice = float("-inf")
        threads = settings.num_replica_alter_log_dirs_threads or len(disks)
        self.moves = Moves(clock, self, self.removal, self._logs, threads)
        self.cordoned: Sequence[str] = ()
        """Paths of the directories that take no new log (cordoned.log.dirs, KIP-1066)."""
        self.directories: list[LogDirectory] = []
        self.progress = LoadProgress()
        threads = settings.num_recovery_threads_per_data_dir
        self._recovery = LogRecovery(workers, clock, on_notice, self.progress, threads)
        self.loader = DirectoryLoader(self, clock, self._checkpoints, self._recovery, config_of, threads)
        self.record_files = DirectoryRecordFiles(
            list(disks), lambda: [self._disks[path] for path in self.states.live], self.guarded
        )
        self.creation = LogCreation(
            self, clock, self._logs, self._recovery, config_of, self.record_files, settings.max_partition_replicas
        )
        self.returns = DirectoryReturns(self, self._disks, self._logs, self._offline_partitions)
        self.chores = LogChores(self, clock, settings)

    # -- start --------------------------------------------------------------------------------------------------

    async def inspect(self) -> list[LogDirectory]:
        """Locks and reads every directory; gives those that answer, the others are offline.

        Raises LogDirectoryError, and OSError when none answers.
        """
        errors: list[OSError] = []

        async def inspect_one(path: str) -> None:
            try:
                self.directories.append(await self._watch.guard(path, partial(inspect, self._disks[path])))
            except OSError as error:
                _refuse_shortage(error)
                errors.append(error)
                self._take_offline(path, error)

        await all_or_first_error(self.clock, [partial(inspect_one, path) for path in self._disks], "inspect")
        if not self.directories:
            raise errors[0]
        order = list(self._disks)
        self.directories.sort(key=lambda directory: order.index(directory.path))
        return self.directories

    async def claim(self, broker_id: int, cluster_id: str) -> None:
        """Makes the directories this broker's. Raises LogDirectoryError before anything is written.

        One that is not formatted, without leave to be, or another one than was at its path, is offline when one is left
        that can be used.
        """
        check(self.directories, broker_id, cluster_id)
        await self._each_live(self.record_files.read)
        may_format = self.settings.may_format
        not_ours = lacks_leave(self.directories, may_format) | foreign(self.record.ids, self.directories, may_format)
        if len(not_ours) == len(self.directories):
            raise LogDirectoryError(next(iter(not_ours.values())))
        for path, reason in not_ours.items():
            self._take_offline(path, OSError(errno.ENODEV, reason))
        self.directories = [one for one in self.directories if one.path not in not_ours]
        for path in self.states.offline:
            if may_format is not None and path not in may_format:
                self.states[path].directory_id = self.record.ids.get(path)
        self.identity = (broker_id, cluster_id)

        async def claim_one(directory: LogDirectory) -> None:
            if directory.lost_power:
                self._notice(
                    f"log directory {directory.path}: no clean shutdown and the kernel has started anew since: records "
                    "that were not flushed may be gone"
                )
            await claim(directory, broker_id, cluster_id, self.clock)
            if directory.meta is not None:
                self.states[directory.path].directory_id = directory.meta.directory_id

        await self._each_live(claim_one)
        await self._each_live(self.record_files.note)
        await self._save_record()

    async def _save_record(self) -> None:
        """At a start a directory without room is no reason to stay away: it is written when there is some."""
        try:
            await self.record_files.save_if_changed()
        except KafkaError as error:
            self._notice(error.message)

    async def load(self) -> None:
        """Opens every log, recovering those of directories without a clean-shutdown marker.

        Raises LogDirectoryError when a partition is found twice or a file is not what it should be, OSError when no
        directory is left.
        """
        await self._each_live(self.loader.begin_life)
        if self.record.remade or any(self.record_files.unfilled.values()):
            replaced = ReplacedCopies(self.record_files, self.paths, self.clock, self._notice)
            await self._each_live(replaced.look)
            await self._each_live(replaced.put_aside)
            replaced.finish(self.states.live)
        if self.states.offline:
            self.record_files.go_on_without_some(self.clock.now_ms())
        await self._save_record()
        interrupted = InterruptedMoves(self.clock, self._notice)
        for step in (interrupted.look, interrupted.look_for_markers, interrupted.put_away, interrupted.unmark):
            await self._each_live(step)
        await self._note_arrivals(interrupted)
        self.loader.copies = interrupted.copies(is_complete=not self.states.offline, remade=self.record.remade)
        await self._each_live(self.loader.load)
        await self._take_moves_back()
        self.progress.current.clear()
        self.loader.forget_configs()
        self._is_loaded = True

    async def _note_arrivals(self, interrupted: InterruptedMoves) -> None:
        """Logs that had just moved when the broker ended: a directory that is offline may hold the older copy."""
        if self.states.offline:
            await self._each_live(interrupted.look_for_arrivals)
            for partition, home in interrupted.arrived.items():
                if self.states.is_live(home) and partition not in self.record.remade:
                    self.record_files.take_down(partition, Remade(home, False, tuple(self.states.offline)))
            await self._save_record()

    async def _each_live(self, work: Callable[[LogDirectory], Coroutine[Any, Any, None]]) -> None:
        """The work on all directories at once; one that fails over it is offline. OSError when none is left."""
        errors: list[OSError] = []

        async def guarded(directory: LogDirectory) -> None:
            try:
                await self._watch.guard(directory.path, partial(work, directory))
            except OSError as error:
                _refuse_shortage(error)
                errors.append(error)
                self._take_offline(directory.path, error)

        await all_or_first_error(
            self.clock, [partial(guarded, directory) for directory in self.directories], "log directories"
        )
        for directory in self.directories:
            if not self.states.is_live(directory.path):
                self._lose_logs(directory.disk)  # those that were loaded before it failed
        self.directories = [directory for directory in self.directories if self.states.is_live(directory.path)]
        if errors and not self.states.live:
            raise errors[0]

    async def _take_moves_back(self) -> None:
        for partition, future in self.loader.futures.items():
            current = self._logs.get(partition)
            try:
                if current is None:
                    await future.abandon()  # its directory has failed meanwhile: the copy is left for a later start
                else:
                    await self.moves.take_back(current, future)
            except KafkaError:
                await future.abandon()  # told: a directory has failed, or has no room; the next start tries again
        self.loader.futures.clear()
        self.loader.copies.clear()

    @property
    def is_doubtful(self) -> bool:
        """Power was lost, and since then this broker has not been registered: see `doubts_are_over`."""
        return any(directory.is_doubtful for directory in self.directories)

    @property
    def has_new_directory(self) -> bool:
        """A directory was empty, and since then this broker has not been registered: see `doubts_are_over`."""
        return any(directory.is_new for directory in self.directories)

    async def doubts_are_over(self) -> None:
        """Nobody takes the replicas for what they were before the power was lost, or the directory was empty."""
        for directory in self.directories:
            if directory.is_doubtful:
                directory.is_doubtful = False
                await self.on_live(directory.path, lambda disk: disk.delete(POWER_LOST))
            if directory.is_new:
                directory.is_new = False
                await self.on_live(directory.path, lambda disk: disk.delete(NEW_DIRECTORY))

    # -- lookup -------------------------------------------------------------------------------------------------

    def get(self, partition: TopicPartition) -> Log | None:
        return self._logs.get(partition)

    def adopt(self, log: Log) -> None:
        """See `directory_loading.LoadingKeeper`."""
        other = self._logs.get(log.topic_partition)
        if other is not None:
            raise LogDirectoryError(
                f"partition {log.topic_partition} is in two log directories, {other.disk.path} and {log.disk.path}; "
                "one of them must be moved away"
            )
        self._logs[log.topic_partition] = log

    @property
    def record(self) -> DirectoryRecord:
        """What is known of the directories as a whole."""
        return self.record_files.record

    def unknown_log(self, path: str) -> OfflineLog:
        """One on an offline directory of which nothing else is known."""
        return OfflineLog(path)

    @property
    def offline_logs(self) -> Mapping[TopicPartition, OfflineLog]:
        """What is known of logs whose directory is offline."""
        return self._offline_partitions

    @property
    def is_closed(self) -> bool:
        """The broker stops: nothing is begun any more."""
        return self._is_closed

    @property
    def logs(self) -> list[Log]:
        """All logs, in the order in which they were loaded or created."""
        return list(self._logs.values())

    def is_on_offline_directory(self, partition: TopicPartition) -> bool:
        return partition in self._offline_partitions

    @property
    def offline_replica_count(self) -> int:
        """Logs that were open when their directory went offline."""
        return len(self._offline_partitions)

    @property
    def live_paths(self) -> list[str]:
        """Log directories whose logs are open (online or full), in log.dirs order."""
        return self.states.live

    @property
    def offline_paths(self) -> list[str]:
        return self.states.offline

    def is_in_use(self, disk: Disk) -> bool:
        """See `removal.RemovalKeeper`."""
        return self._disks[disk.path] is disk and self.states.is_live(disk.path)

    def disk(self, path: str) -> LogDisk:
        return self._disks[path]

    @property
    def disks(self) -> list[LogDisk]:
        """Of every directory, in log.dirs order; what is called on an offline one fails."""
        return list(self._disks.values())

    @property
    def paths(self) -> list[str]:
        """Every log directory, in the order of log.dirs."""
        return list(self._disks)

    def configured_path(self, normal: str) -> str | None:
        """The log directory that a normalised path names, as log.dirs spells it."""
        return next((path for path in self._disks if posixpath.normpath(path) == normal), None)

    def logs_in(self, disk: Disk) -> list[Log]:
        """The logs of one directory, the copies that are being made there too."""
        current = [log for log in self._logs.values() if log.disk is disk]
        return current + [move.future for move in self.moves.under_way if move.future.disk is disk]

    # -- creation and deletion ----------------------------------------------------------------------------------

    async def get_or_create(self, partition: TopicPartition, topic_id: bytes, is_new: bool) -> Log:
        """The partition's log, created on the directory with the fewest partitions, then most free bytes.

        `topic_id`: 16 bytes, zeros when there is none. Raises KafkaError KAFKA_STORAGE_ERROR when the log is on an
        offline directory, or might be (not `is_new` while one is offline), or no directory takes it;
        INCONSISTENT_TOPIC_ID when the log on disk is another topic's of that name.
        """
        while True:
            if partition in self._offline_partitions:
                path = self._offline_partitions[partition].path
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} is on the offline directory {path}")
            log = self._logs.get(partition)
            if log is not None:
                return await self._with_topic_id(log, topic_id)
            pending = self.creation.under_way.get(partition)
            if pending is None:
                break
            await asyncio.wait([pending])
        if self.states.offline and not is_new:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{partition} is not found and may be on an offline directory: {', '.join(self.states.offline)}",
            )
        return await self.creation.make(partition, topic_id)

    def may_be_lost_with(self, partition: TopicPartition, paths: Collection[str]) -> bool:
        """Whether one of these directories, which are offline, held the partition: known, or not excluded by where else
        it could be."""
        if partition in self._logs or partition in self.creation.under_way:
            return False
        known = self._offline_partitions.get(partition)
        if known is not None:
            return known.path in paths and not self.states.is_live(known.path)
        return bool(self.states.offline) and all(path in paths for path in self.states.offline)

    async def begin_anew(
        self, partition: TopicPartition, topic_id: bytes, path: str | None = None, *, is_filling: bool = False
    ) -> Log:
        """An empty log, on `path` or wherever a new one goes, in place of one that an offline directory holds.

        `is_filling`: others have its records, and it must not lead before `creation.filled`. KafkaError
        KAFKA_STORAGE_ERROR: it is here, or on a directory that is just coming back, or no directory takes it.
        """
        if partition in self._logs or partition in self.creation.under_way or self.returns.is_returning(partition):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} is here, or just coming back")
        log = await self.creation.make(partition, topic_id, path, is_filling=is_filling)
        self._offline_partitions.pop(partition, None)
        return log

    async def _with_topic_id(self, log: Log, topic_id: bytes) -> Log:
        if topic_id == NO_TOPIC_ID or log.topic_id == topic_id:
            return log
        if log.topic_id is not None and log.topic_id != NO_TOPIC_ID:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{log.topic_partition} in {log.disk.path} belongs to topic id {log.topic_id.hex()}, "
                f"asked for {topic_id.hex()}",
            )
        log.state.topic_id = topic_id
        await self.guarded(
            log.disk,
            log.disk.write_file(f"{log.directory}/{PARTITION_METADATA}", encode_partition_metadata(topic_id)),
        )
        return log

    async def check_move(self, log: Log) -> None:
        """See `moves.Keeper`."""
        partition = log.topic_partition
        self._check_move(partition)
        await self.removal.make_way(partition, log.config.file_delete_delay_ms)
        for path in self.states.live:
            disk = self._disks[path]
            if disk is not log.disk and await self.guarded(disk, disk.exists(str(partition))):
                # Of a move before, which could not put it away.
                self.removal.unlink(disk, await self.removal.put_aside(partition, disk, str(partition)))

    async def outlived(self, partition: TopicPartition, home: str, path: str) -> None:
        """See `moves.Keeper`."""
        if not self.states.is_live(path):
            await self.creation.outlived(partition, home, (path,))

    def _check_move(self, partition: TopicPartition) -> None:
        if self.states.offline:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{partition} cannot be moved while a log directory is offline: {', '.join(self.states.offline)}",
            )
        if self.creation.is_filling(partition):
            # The record of the directories names its home: a start that finds it elsewhere would let it lead.
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{partition} was made anew and does not have every record yet: it can be moved when it has",
            )

    async def open_future(self, disk: Disk, partition: TopicPartition, name: str, source: Log) -> Log:
        """See `moves.Keeper`."""
        self._check_move(partition)
        work = self.creation.on(disk, partition, name, source.topic_id or NO_TOPIC_ID, marker_text(source))
        future: Log = await self.guarded(disk, work)
        return future

    @property
    def homes(self) -> list[str]:
        """See `creation.CreationKeeper`."""
        return [log.disk.path for log in self._logs.values()] + [move.future.disk.path for move in self.moves.under_way]

    def prefer(self, partition: TopicPartition, path: str) -> None:
        """See `LogCreation.prefer`."""
        self.creation.prefer(partition, path)

    async def delete(self, partition: TopicPartition) -> None:
        """Forgets the log and renames its directory to `-delete`; the files go after file.delete.delay.ms.

        One that was set aside since the start, and has had no successor, goes too. KafkaError KAFKA_STORAGE_ERROR when
        the directory fails.
        """
        await self.moves.cancel(partition)
        log = self._logs.pop(partition, None)
        config = self._config_of(partition.topic) if log is None else log.config
        await self.removal.delete(partition, log, config.file_delete_delay_ms)
        self.returns.deleted(partition)
        # Behind the rename: a start that finds the log and an older copy must be able to tell them apart.
        await self.creation.forget(partition)

    async def set_aside(self, partition: TopicPartition) -> None:
        """Forgets the log and renames its directory to `-stray`, which nobody reads and nothing but a `delete` of this
        partition, or a person, removes. KafkaError KAFKA_STORAGE_ERROR when the directory fails."""
        await self.moves.cancel(partition)
        log = self._logs.pop(partition, None)
        if log is not None:
            await self.removal.set_aside(partition, log)
        self.returns.deleted(partition)
        await self.creation.forget(partition)  # behind the rename, as in `delete`

    async def forget_positions(self, disk: Disk) -> None:
        """See `removal.RemovalKeeper`."""
        await self.checkpoint_recovery_points(disk)
        await self.checkpoint_log_start_offsets(disk)
        await self.checkpoint_high_watermarks_in(disk)
        await self.checkpoint_clean_offsets(disk)

    def reconfigure(self, topic: str) -> None:
        """The topic's configuration has changed: its logs take it from the next append on."""
        config = self._config_of(topic)
        self.loader.forget_configs()
        for partition, log in self._logs.items():
            if partition.topic == topic:
                log.configure(config)
        for move in self.moves.under_way:
            if move.current.topic_partition.topic == topic:
                move.future.configure(config)

    # -- checkpoints (LogOwner) ---------------------------------------------------------------------------------

    async def checkpoint_recovery_points(self, disk: Disk) -> bool:
        """Of one directory; False when there is no room. Raises OSError."""
        offsets = {log.topic_partition: log.recovery_point for log in self.all_logs_in(disk)}
        return await self._checkpoints.write(disk, RECOVERY_POINTS, offsets)

    async def checkpoint_log_start_offsets(self, disk: Disk) -> bool:
        """Of one directory; False when there is no room. Raises OSError.

        Also those that the first segment's name tells: the segments before it may come back after a power loss.
        """
        return await self._checkpoints.write(
            disk,
            LOG_START_OFFSETS,
            {log.topic_partition: log.log_start_offset for log in self.all_logs_in(disk) if log.log_start_offset > 0},
        )

    async def checkpoint_high_watermarks(self) -> None:
        """Of every live directory, all at once. A directory that fails over it is offline."""
        await self._per_directory(self.checkpoint_high_watermarks_in)

    async def checkpoint_high_watermarks_in(self, disk: Disk) -> bool:
        """Of one directory; False when there is no room. Raises OSError."""
        offsets = {log.topic_partition: log.high_watermark for log in self.all_logs_in(disk)}
        return await self._checkpoints.write(disk, HIGH_WATERMARKS, offsets)

    async def checkpoint_clean_offsets(self, disk: Disk) -> None:
        """Of one directory, those of logs that have been compacted. Raises OSError."""
        offsets = {log.topic_partition: log.clean_offset for log in self.all_logs_in(disk) if log.clean_offset > 0}
        if offsets or await disk.exists(CLEAN_OFFSETS):
            await self._checkpoints.write(disk, CLEAN_OFFSETS, offsets)

    def all_logs_in(self, disk: Disk) -> list[Log]:
        """Every log whose positions the directory's checkpoints hold, the copies that are being made there too."""
        logs = [log for log in self._logs.values() if log.disk is disk] + self.moves.on(disk)
        return logs + [log for log in self.loader.futures.values() if log.disk is disk]

    # -- failure and notices (LogOwner) -------------------------------------------------------------------------

    def notice(self, message: str) -> None:
        self._notice(message)

    def directory_failed(self, disk: Disk, error: OSError) -> None:
        """The directory is offline from now on; told once. A shortage of descriptors or memory is no failure of it."""
        if is_shortage(error):
            self.shortage(disk, error)
            return
        if self._is_closed or self._disks[disk.path] is not disk or not self._take_offline(disk.path, error):
            return
        self._lose_logs(disk)
        self._on_directory_failure(disk.path, error)

    def _lose_logs(self, disk: Disk) -> None:
        """Nobody finds the logs of a directory that is offline."""
        failed = self.all_logs_in(disk)
        for log in failed:
            if self._logs.get(log.topic_partition) is log:
                self._offline_partitions[log.topic_partition] = OfflineLog(
                    disk.path, log.log_end_offset, log.high_watermark, log.size_bytes
                )
                del self._logs[log.topic_partition]
        self._checkpoints.forget(disk.path)
        given_up = [log for log in failed if log.mark_offline()]
        self.moves.directory_failed(disk)
        for log in given_up:  # nobody is told before all of them are
            log.notify_failure()

    def directory_full(self, disk: Disk, error: OSError) -> None:
        """A call found no room: the directory's logs take no appends until there is some again. A shortage of
        descriptors or memory says nothing of the directory: only the log that met it waits, until the next look."""
        verdict = after_failure(error)
        if verdict is None:
            self.shortage(disk, error)
        elif not self._is_closed and self._disks[disk.path] is disk:
            self.judged(disk.path, verdict)

    def shortage(self, disk: Disk, error: OSError) -> None:
        """A call failed for lack of descriptors or memory: a line for the broker's log, once in a while, and files that
        nobody reads are closed."""
        now = self.clock.monotonic()
        if self._is_closed or now < self._next_shortage_notice:
            return
        self._next_shortage_notice = now + _SHORTAGE_NOTICE_S
        self._notice(
            f"log directory {disk.path}: a call failed and is made again later, no directory is taken offline: "
            f"{reason_of(error)}; where descriptors are short, raise the limit of open files (ulimit -n, LimitNOFILE)"
        )
        for path in self.live_paths:
            work = self.on_live(path, self.chores.close_idle_segments)
            self.clock.spawn(work, name=f"close idle segments of {path}")

    def judged(self, path: str, verdict: Verdict) -> None:
        """Takes a decision about a live directory down, and what follows from it for its logs."""
        disk = self._disks[path]
        if verdict.state is DirectoryState.OFFLINE:
            self.directory_failed(disk, OSError(errno.ETIMEDOUT, verdict.reason))
            return
        is_change = self.states.apply(path, verdict, self.clock.now_ms())
        is_full = self.states[path].state is DirectoryState.FULL
        for log in self.all_logs_in(disk):
            if is_full:
                log.mark_full()
            elif log.is_full:
                log.resume_appends()
        if is_change:
            self._notice(f"log directory {path} is {verdict.state.value}" + (f": {verdict.reason}" * is_full))
            self._on_directory_change(path)

    async def _bring_back(self, path: str, disk: LogDisk) -> None:
        await self.returns.bring_back(path, disk, partial(self._on_directory_return, path))

    def _take_offline(self, path: str, error: OSError) -> bool:
        """False when it was offline already. One without room to be loaded is offline as well: no log of it is open."""
        verdict = Verdict(DirectoryState.OFFLINE, reason_of(error))
        if not self.states.apply(path, verdict, self.clock.now_ms()):
            return False
        self._disks[path].give_up(error)
        return True

    async def guarded(self, disk: Disk, work: Awaitable[Any]) -> Any:
        """Awaits a call on a directory; an OSError takes it offline, lack of room makes it full, a shortage of
        descriptors or memory leaves it as it is. All become KAFKA_STORAGE_ERROR."""
        try:
            return await work
        except OSError as error:
            if is_sound(error):
                self.directory_full(disk, error)
            else:
                self.directory_failed(disk, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {disk.path}: {error}") from error

    # -- chores -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins the regular chores and the watch over the directories; they end with the clock."""
        self._watch.start()
        self.chores.start()

    async def on_live(self, path: str, work: Callable[[Disk], Awaitable[object]]) -> None:
        """The work on one directory, when it is live; a failure takes it offline, which `directory_failed` tells."""
        if self.states.is_live(path):
            try:
                await self.guarded(self._disks[path], work(self._disks[path]))
            except KafkaError:
                return

    async def on_first_live(self, work: Callable[[Disk], Awaitable[object]]) -> None:
        """The work on the first live directory; see `on_live`."""
        for path in self.live_paths[:1]:
            await self.on_live(path, work)

    async def _per_directory(self, work: Callable[[Disk], Coroutine[Any, Any, object]]) -> None:
        await asyncio.gather(*[self.on_live(path, work) for path in self.live_paths])

    # -- the end ------------------------------------------------------------------------------------------------

    async def close(self, broker_epoch: int = -1) -> None:
        """An orderly end: every log flushed and closed, checkpoints, then the clean-shutdown markers.

        The Disks stay open, and locked, for whoever made them. A directory that fails over it gets no marker. Before
        `load` has come to its end nothing is written: what has not been looked at is not vouched for, and checkpoints
        of the logs that happen to be loaded would forget the others.
        """
        self._is_closed = True
        if not self._is_loaded:
            return
        await self.moves.stop()
        await asyncio.gather(*[self._close_directory(path, broker_epoch) for path in self.live_paths])

    async def _close_directory(self, path: str, broker_epoch: int) -> None:
        disk = self._disks[path]
        try:
            for result in await asyncio.gather(
                *[log.close() for log in self.all_logs_in(disk)], return_exceptions=True
            ):
                if isinstance(result, BaseException):
                    raise result
            await self.checkpoint_recovery_points(disk)
            if not await self.checkpoint_log_start_offsets(disk):
                raise OSError(errno.EAGAIN, "the log start offsets could not be written", path)
            await self.checkpoint_high_watermarks_in(disk)
            await disk.write_file(CLEAN_SHUTDOWN, encode_clean_shutdown(broker_epoch))
        except (OSError, KafkaError) as error:
            self._notice(f"log directory {path} could not be closed in order: {error}")


def _refuse_shortage(error: OSError) -> None:
    """At a start: no directory is offline because the process may open too few files; it has to be given more."""
    if is_shortage(error):
        raise OSError(
            error.errno,
            f"{error.strerror}: this says nothing of the log directories, the broker needs more: a file for each "
            "partition replica beside its connections; raise the limit (ulimit -n, LimitNOFILE)",
        ) from error

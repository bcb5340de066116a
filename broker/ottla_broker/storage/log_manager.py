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
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.disk import Disk, LogDisk
from ottla_broker.ports.workers import Workers
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.checkpoint_files import CheckpointFiles
from ottla_broker.storage.checkpoints import encode_clean_shutdown, encode_partition_metadata
from ottla_broker.storage.chores import LogChores
from ottla_broker.storage.config import LogConfig
from ottla_broker.storage.directories import DirectoryState, DirectoryStates, Verdict, after_failure, is_lack_of_room
from ottla_broker.storage.directory_loading import DirectoryLoader, all_or_first_error
from ottla_broker.storage.directory_watch import DirectoryWatch
from ottla_broker.storage.interrupted_moves import InterruptedMoves
from ottla_broker.storage.loading import open_log
from ottla_broker.storage.log import Log
from ottla_broker.storage.log_directory import (
    LogDirectory,
    LogDirectoryError,
    check,
    claim,
    inspect,
    lacks_leave,
)
from ottla_broker.storage.log_recovery import LoadProgress, LogRecovery
from ottla_broker.storage.moves import Moves, marker_text
from ottla_broker.storage.names import (
    CLEAN_OFFSETS,
    CLEAN_SHUTDOWN,
    DELETE_DIRECTORY,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    MOVE_MARKER,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    STRAY_DIRECTORY,
    parse_partition_directory,
    set_aside_name,
)
from ottla_broker.storage.placement import candidates, place
from ottla_broker.storage.settings import LogManagerSettings

_MOST_PREFERRED = 65_536
"""Directories remembered for replicas that do not exist yet."""


NO_TOPIC_ID = bytes(16)


class OfflineLog(NamedTuple):
    """A log whose directory is offline: the directory, the end that it was written to, its high watermark; -1 when not
    known."""

    path: str
    log_end_offset: int
    high_watermark: int


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
        self._clock = clock
        self._workers = workers
        self._settings = settings
        self._config_of = config_of
        self._on_directory_failure = on_directory_failure
        self._on_directory_change = on_directory_change
        self._on_directory_return = on_directory_return
        self._watch = DirectoryWatch(
            self.states,
            clock,
            disk_of=self._disks.__getitem__,
            judged=self.judged,
            bring_back=self.bring_back,
            notice=on_notice,
            timeout_s=settings.io_timeout_ms / 1000,
        )
        self._notice = on_notice
        self._logs: dict[TopicPartition, Log] = {}
        self._creating: dict[TopicPartition, asyncio.Future[Log]] = {}
        self._reserved: dict[TopicPartition, str] = {}
        self._offline_partitions: dict[TopicPartition, OfflineLog] = {}
        self._identity: tuple[int, str] = (-1, "")
        self._strays: dict[TopicPartition, tuple[Disk, str]] = {}
        self._checkpoints = CheckpointFiles(self.directory_full)
        self._is_loaded = False
        self._is_closed = False
        self.moves = Moves(clock, self, self._logs, settings.num_replica_alter_log_dirs_threads or len(disks))
        self.cordoned: Sequence[str] = ()
        """Paths of the directories that take no new log (cordoned.log.dirs, KIP-1066)."""
        self._preferred: dict[TopicPartition, str] = {}
        self.directories: list[LogDirectory] = []
        self.progress = LoadProgress()
        threads = settings.num_recovery_threads_per_data_dir
        self._recovery = LogRecovery(workers, clock, on_notice, self.progress, threads)
        self._loader = DirectoryLoader(self, clock, self._checkpoints, self._recovery, config_of, threads)
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
                errors.append(error)
                self._take_offline(path, error)

        await all_or_first_error(self._clock, [partial(inspect_one, path) for path in self._disks], "inspect")
        if not self.directories:
            raise errors[0]
        order = list(self._disks)
        self.directories.sort(key=lambda directory: order.index(directory.path))
        return self.directories

    async def claim(self, broker_id: int, cluster_id: str) -> None:
        """Makes the directories this broker's. Raises LogDirectoryError before anything is written.

        One that is not formatted, without leave to be, is offline when another one can be used.
        """
        without_leave = lacks_leave(self.directories, self._settings.may_format)
        if len(without_leave) == len(self.directories):
            raise LogDirectoryError(next(iter(without_leave.values())))
        for path, reason in without_leave.items():
            self._take_offline(path, OSError(errno.ENODEV, reason))
        self.directories = [one for one in self.directories if one.path not in without_leave]
        check(self.directories, broker_id, cluster_id)
        self._identity = (broker_id, cluster_id)

        async def claim_one(directory: LogDirectory) -> None:
            if directory.lost_power:
                self._notice(
                    f"log directory {directory.path}: no clean shutdown and the kernel has started anew since: records "
                    "that were not flushed may be gone"
                )
            await claim(directory, broker_id, cluster_id, self._clock)
            if directory.meta is not None:
                self.states[directory.path].directory_id = directory.meta.directory_id

        await self._each_live(claim_one)

    async def load(self) -> None:
        """Opens every log, recovering those of directories without a clean-shutdown marker.

        Raises LogDirectoryError when a partition is found twice or a file is not what it should be, OSError when no
        directory is left.
        """
        await self._each_live(self._loader.begin_life)
        interrupted = InterruptedMoves(self._clock, self._notice)
        for step in (interrupted.look, interrupted.look_for_markers, interrupted.put_away, interrupted.unmark):
            await self._each_live(step)
        self._loader.copies = interrupted.copies(is_complete=not self.states.offline)
        await self._each_live(self._loader.load)
        await self._take_moves_back()
        self.progress.current.clear()
        self._loader.forget_configs()
        self._is_loaded = True

    async def _each_live(self, work: Callable[[LogDirectory], Coroutine[Any, Any, None]]) -> None:
        """The work on all directories at once; one that fails over it is offline. OSError when none is left."""
        errors: list[OSError] = []

        async def guarded(directory: LogDirectory) -> None:
            try:
                await self._watch.guard(directory.path, partial(work, directory))
            except OSError as error:
                errors.append(error)
                self._take_offline(directory.path, error)

        await all_or_first_error(
            self._clock, [partial(guarded, directory) for directory in self.directories], "log directories"
        )
        self.directories = [directory for directory in self.directories if self.states.is_live(directory.path)]
        if errors and not self.states.live:
            raise errors[0]

    async def _take_moves_back(self) -> None:
        for partition, future in self._loader.futures.items():
            current = self._logs.get(partition)
            try:
                if current is None:
                    await future.abandon()  # its directory has failed meanwhile: the copy is left for a later start
                else:
                    await self.moves.take_back(current, future)
            except KafkaError:
                continue  # told by `directory_failed`
        self._loader.futures.clear()
        self._loader.copies.clear()

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
        offline directory, or might be (not `is_new` while one is offline), or no directory is left;
        INCONSISTENT_TOPIC_ID when the log on disk is another topic's of that name.
        """
        while True:
            if partition in self._offline_partitions:
                path = self._offline_partitions[partition].path
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} is on the offline directory {path}")
            log = self._logs.get(partition)
            if log is not None:
                return await self._with_topic_id(log, topic_id)
            pending = self._creating.get(partition)
            if pending is None:
                break
            await asyncio.wait([pending])
        if self.states.offline and not is_new:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{partition} is not found and may be on an offline directory: {', '.join(self.states.offline)}",
            )
        creation: asyncio.Future[Log] = self._clock.create_future()
        self._creating[partition] = creation
        try:
            log = await self._create(partition, topic_id)
            self._logs[partition] = log
            self._preferred.pop(partition, None)
            self._strays.pop(partition, None)
            return log
        finally:
            del self._creating[partition]
            creation.cancel()

    def may_be_lost_with(self, partition: TopicPartition, path: str) -> bool:
        """Whether the offline directory held the partition: known, or not excluded by where else it could be."""
        if self.states.is_live(path) or partition in self._logs or partition in self._creating:
            return False
        known = self._offline_partitions.get(partition)
        return known.path == path if known is not None else self.states.offline == [path]

    async def begin_anew(self, partition: TopicPartition, topic_id: bytes) -> Log:
        """A person has given up what an offline directory held of it: an empty log on another one. KafkaError."""
        self._offline_partitions.pop(partition, None)
        return await self.get_or_create(partition, topic_id, is_new=True)

    async def _with_topic_id(self, log: Log, topic_id: bytes) -> Log:
        if topic_id == NO_TOPIC_ID or log.topic_id == topic_id:
            return log
        if log.topic_id is not None and log.topic_id != NO_TOPIC_ID:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{log.topic_partition} in {log.disk.path} belongs to topic id {log.topic_id.hex()}, "
                f"asked for {topic_id.hex()}",
            )
        log.topic_id = topic_id
        await self._on_directory(
            log.disk,
            log.disk.write_file(f"{log.directory}/{PARTITION_METADATA}", encode_partition_metadata(topic_id)),
        )
        return log

    async def _create(self, partition: TopicPartition, topic_id: bytes) -> Log:
        while True:
            disk = await self._place(partition)
            try:
                log: Log = await self._on_directory(disk, self._create_on(disk, partition, str(partition), topic_id))
                return log
            except KafkaError:
                # The directory has failed over it, or is full: another one takes the log, as long as there is one.
                if disk.path in self.states.placeable or not self.states.placeable:
                    raise
            finally:
                del self._reserved[partition]

    async def open_future(self, disk: Disk, partition: TopicPartition, name: str, source: Log) -> Log:
        """See `moves.Keeper`."""
        if self.states.offline:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{partition} cannot be moved while a log directory is offline: {', '.join(self.states.offline)}",
            )
        work = self._create_on(disk, partition, name, source.topic_id or NO_TOPIC_ID, marker_text(source))
        future: Log = await self._on_directory(disk, work)
        return future

    async def _create_on(
        self, disk: Disk, partition: TopicPartition, name: str, topic_id: bytes, marker: bytes | None = None
    ) -> Log:
        config = self._config_of(partition.topic)
        await disk.make_directory(name)
        if marker is not None:
            await disk.write_file(f"{name}/{MOVE_MARKER}", marker)
        log = await open_log(
            topic_partition=partition,
            directory=name,
            disk=disk,
            clock=self._clock,
            owner=self,
            config=config,
            recover=partial(self._recovery.run, disk, name, config, True),
            notice=self._notice,
        )
        if topic_id != NO_TOPIC_ID and log.topic_id is None:
            log.topic_id = topic_id
            await disk.write_file(f"{name}/{PARTITION_METADATA}", encode_partition_metadata(topic_id))
        # A flushed record is in a directory that is found again.
        await disk.fsync_directory()
        return log

    async def _place(self, partition: TopicPartition) -> Disk:
        """The directory for a new log, reserved for it: logs being created count, so that fifty at once are spread."""
        live = self.states.placeable
        # Asked before counting, so that no other creation comes between the count and the reservation.
        free = {path: await self._free_bytes(path) for path in live}
        homes = [log.disk.path for log in self._logs.values()] + list(self._reserved.values())
        homes += [move.future.disk.path for move in self.moves.under_way]
        placement = place(candidates(live, homes, free, self.cordoned), self._preferred.get(partition))
        if placement.path is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} cannot be created: {placement.reason}")
        self._reserved[partition] = placement.path
        return self._disks[placement.path]

    async def _free_bytes(self, path: str) -> int:
        """As last looked at: one that hangs keeps no creation in another one waiting."""
        known = self.states[path].free_bytes
        if known >= 0:
            return known
        found: int = await self._on_directory(self._disks[path], self._disks[path].free_bytes())
        return found

    def prefer(self, partition: TopicPartition, path: str) -> None:
        """AlterReplicaLogDirs before the replica exists: it is to be created in this directory. Kept in memory only."""
        self._preferred.pop(partition, None)
        while len(self._preferred) >= _MOST_PREFERRED:
            del self._preferred[next(iter(self._preferred))]
        self._preferred[partition] = path

    async def delete(self, partition: TopicPartition) -> None:
        """Forgets the log and renames its directory to `-delete`; the files go after file.delete.delay.ms.

        One that was set aside since the start, and has had no successor, goes too. KafkaError KAFKA_STORAGE_ERROR when
        the directory fails.
        """
        await self.moves.cancel(partition)
        log = self._logs.pop(partition, None)
        if log is not None:
            aside = await self.rename_away(log, DELETE_DIRECTORY)
            self._clock.call_later(log.config.file_delete_delay_ms / 1000, self.unlink, log.disk, aside)
            return
        disk, name = self._strays.pop(partition, (None, ""))
        if disk is not None:
            aside = set_aside_name(partition, self._clock.uuid4().hex, DELETE_DIRECTORY)
            await self._on_directory(disk, disk.rename(name, aside))
            delay_ms = self._config_of(partition.topic).file_delete_delay_ms
            self._clock.call_later(delay_ms / 1000, self.unlink, disk, aside)

    async def set_aside(self, partition: TopicPartition) -> None:
        """Forgets the log and renames its directory to `-stray`, which nobody reads and nothing but a `delete` of this
        partition, or a person, removes. KafkaError KAFKA_STORAGE_ERROR when the directory fails."""
        await self.moves.cancel(partition)
        log = self._logs.pop(partition, None)
        if log is not None:
            name = await self.rename_away(log, STRAY_DIRECTORY)
            self._strays[partition] = (log.disk, name)

    async def rename_away(self, log: Log, suffix: str) -> str:
        """See `moves.Keeper`; nobody finds the log any more."""
        aside: str = await self._on_directory(log.disk, self._rename_away(log, suffix))
        return aside

    async def forget_positions(self, disk: Disk) -> None:
        """See `moves.Keeper`."""
        await self.checkpoint_recovery_points(disk)
        await self.checkpoint_log_start_offsets(disk)
        await self.checkpoint_high_watermarks_in(disk)
        await self.checkpoint_clean_offsets(disk)

    async def guarded(self, disk: Disk, work: Awaitable[Any]) -> Any:
        """See `moves.Keeper`."""
        return await self._on_directory(disk, work)

    async def _rename_away(self, log: Log, suffix: str) -> str:
        disk = log.disk
        await log.abandon()
        # Before the name is free: a new log of this name must not be read with the old one's positions.
        await self.forget_positions(disk)
        aside = set_aside_name(log.topic_partition, self._clock.uuid4().hex, suffix)
        await disk.rename(log.directory, aside)
        await disk.fsync_directory()
        return aside

    def unlink(self, disk: Disk, name: str) -> None:
        """See `moves.Keeper`; nothing happens once the directory is offline or the broker stops."""
        if self.states.is_live(disk.path) and not self._is_closed:
            self._clock.spawn(self._on_directory(disk, disk.delete(name)), name=f"delete {name}")

    def reconfigure(self, topic: str) -> None:
        """The topic's configuration has changed: its logs take it from the next append on."""
        config = self._config_of(topic)
        self._loader.forget_configs()
        for partition, log in self._logs.items():
            if partition.topic == topic:
                log.configure(config)
        for move in self.moves.under_way:
            if move.current.topic_partition.topic == topic:
                move.future.configure(config)

    # -- checkpoints (LogOwner) ---------------------------------------------------------------------------------

    async def checkpoint_recovery_points(self, disk: Disk) -> None:
        """Of one directory. Raises OSError."""
        offsets = {log.topic_partition: log.recovery_point for log in self.all_logs_in(disk)}
        await self._checkpoints.write(disk, RECOVERY_POINTS, offsets)

    async def checkpoint_log_start_offsets(self, disk: Disk) -> None:
        """Of one directory. Raises OSError.

        Also those that the first segment's name tells: the segments before it may come back after a power loss.
        """
        await self._checkpoints.write(
            disk,
            LOG_START_OFFSETS,
            {log.topic_partition: log.log_start_offset for log in self.all_logs_in(disk) if log.log_start_offset > 0},
        )

    async def checkpoint_high_watermarks(self) -> None:
        """Of every live directory, all at once. A directory that fails over it is offline."""
        await self._per_directory(self.checkpoint_high_watermarks_in)

    async def checkpoint_high_watermarks_in(self, disk: Disk) -> None:
        offsets = {log.topic_partition: log.high_watermark for log in self.all_logs_in(disk)}
        await self._checkpoints.write(disk, HIGH_WATERMARKS, offsets)

    async def checkpoint_clean_offsets(self, disk: Disk) -> None:
        """Of one directory, those of logs that have been compacted. Raises OSError."""
        offsets = {log.topic_partition: log.clean_offset for log in self.all_logs_in(disk) if log.clean_offset > 0}
        if offsets or await disk.exists(CLEAN_OFFSETS):
            await self._checkpoints.write(disk, CLEAN_OFFSETS, offsets)

    def all_logs_in(self, disk: Disk) -> list[Log]:
        """Every log whose positions the directory's checkpoints hold, the copies that are being made there too."""
        logs = [log for log in self._logs.values() if log.disk is disk] + self.moves.on(disk)
        return logs + [log for log in self._loader.futures.values() if log.disk is disk]

    # -- failure and notices (LogOwner) -------------------------------------------------------------------------

    def notice(self, message: str) -> None:
        self._notice(message)

    def directory_failed(self, disk: Disk, error: OSError) -> None:
        """The directory is offline from now on; told once."""
        if self._is_closed or self._disks[disk.path] is not disk or not self._take_offline(disk.path, error):
            return
        failed = self.all_logs_in(disk)
        for log in failed:
            if self._logs.get(log.topic_partition) is log:
                self._offline_partitions[log.topic_partition] = OfflineLog(
                    disk.path, log.log_end_offset, log.high_watermark
                )
                del self._logs[log.topic_partition]
        self._checkpoints.forget(disk.path)
        for log in failed:
            log.fail()
        self._on_directory_failure(disk.path, error)

    def directory_full(self, disk: Disk, error: OSError) -> None:
        """A call found no room: the directory's logs take no appends until there is some again."""
        if not self._is_closed and self._disks[disk.path] is disk:
            self.judged(disk.path, after_failure(error))

    def judged(self, path: str, verdict: Verdict) -> None:
        """Takes a decision about a live directory down, and what follows from it for its logs."""
        disk = self._disks[path]
        if verdict.state is DirectoryState.OFFLINE:
            self.directory_failed(disk, OSError(errno.ETIMEDOUT, verdict.reason))
            return
        is_change = self.states.apply(path, verdict, self._clock.now_ms())
        is_full = self.states[path].state is DirectoryState.FULL
        for log in self.all_logs_in(disk):
            if is_full:
                log.fill_up()
            elif log.is_full:
                log.make_room()
        if is_change:
            self._notice(f"log directory {path} is {verdict.state.value}" + (f": {verdict.reason}" * is_full))
            self._on_directory_change(path)

    async def bring_back(self, path: str, disk: LogDisk) -> None:
        """Loads an offline directory from `disk`, as after an unclean end; it is live when this returns.

        Copies of partitions that live elsewhere by now are renamed `-stray` first. It stays offline with
        LogDirectoryError (it is not the directory that failed), CheckpointError, OSError.
        """
        directory = await inspect(disk)
        status = self.states[path]
        without_leave = lacks_leave([directory], self._settings.may_format)
        directory_id = None if directory.meta is None else directory.meta.directory_id
        if path in without_leave:
            raise LogDirectoryError(without_leave[path])
        if status.directory_id is not None and directory_id != status.directory_id:
            raise LogDirectoryError(
                f"log directory {path} has directory.id {directory_id}, the one that failed has {status.directory_id}"
            )
        check([*(one for one in self.directories if self.states.is_live(one.path)), directory], *self._identity)
        await claim(directory, *self._identity, self._clock)
        self._disks[path] = disk
        try:
            for name, is_directory, _ in await disk.list():
                partition = parse_partition_directory(name) if is_directory else None
                if partition is None:
                    continue
                if partition in self._logs or partition in self._creating:
                    self._notice(f"{partition} lives elsewhere by now: its copy in {path} is set aside")
                    await disk.rename(name, set_aside_name(partition, self._clock.uuid4().hex, STRAY_DIRECTORY))
                else:
                    # Not to be found, nor made elsewhere, before all of the directory is loaded.
                    self._offline_partitions.setdefault(partition, OfflineLog(path, -1, -1))
            await self._loader.begin_life(directory)
            await self._loader.load(directory)
        except BaseException:
            for partition in [partition for partition, log in self._logs.items() if log.disk is disk]:
                del self._logs[partition]
            raise
        had = {partition: one for partition, one in self._offline_partitions.items() if one.path == path}
        for partition in had:
            del self._offline_partitions[partition]
        self.directories = [one for one in self.directories if one.path != path] + [directory]
        status.directory_id = None if directory.meta is None else directory.meta.directory_id
        self.states.returned(path, self._clock.now_ms())
        logs = self.all_logs_in(disk)
        self._notice(f"log directory {path} is back with {len(logs)} logs")
        unknown = OfflineLog(path, -1, -1)
        for log in logs:
            # Consumers have seen it; the checkpoint may be older.
            log.maybe_advance_high_watermark(had.get(log.topic_partition, unknown).high_watermark)
        self._on_directory_return(
            path,
            {
                log.topic_partition: log.log_end_offset >= had.get(log.topic_partition, unknown).log_end_offset
                for log in logs
            },
        )

    def _take_offline(self, path: str, error: OSError) -> bool:
        """False when it was offline already."""
        if not self.states.apply(path, after_failure(error), self._clock.now_ms()):
            return False
        self._disks[path].give_up(error)
        return True

    async def _on_directory(self, disk: Disk, work: Any) -> Any:
        """Awaits a call on a directory; an OSError takes it offline, lack of room makes it full. Both become
        KAFKA_STORAGE_ERROR."""
        try:
            return await work
        except OSError as error:
            if is_lack_of_room(error):
                self.directory_full(disk, error)
            else:
                self.directory_failed(disk, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {disk.path}: {error}") from error

    # -- chores -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins the regular chores and the watch over the directories; they end with the clock."""
        self._watch.start()
        self.chores.start()

    async def on_live(self, path: str, work: Callable[[Disk], Coroutine[Any, Any, object]]) -> None:
        """The work on one directory, when it is live; a failure takes it offline, which `directory_failed` tells."""
        if self.states.is_live(path):
            try:
                await self._on_directory(self._disks[path], work(self._disks[path]))
            except KafkaError:
                return

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
            await self.checkpoint_log_start_offsets(disk)
            await self.checkpoint_high_watermarks_in(disk)
            await disk.write_file(CLEAN_SHUTDOWN, encode_clean_shutdown(broker_epoch))
        except (OSError, KafkaError) as error:
            self._notice(f"log directory {path} could not be closed in order: {error}")

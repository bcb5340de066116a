"""All logs of a broker, over its log directories: loading, creation, deletion, checkpoints, the regular chores.

    manager = LogManager(disks, clock, workers, settings, config_of, on_directory_failure=halt)
    directories = await manager.inspect()          # locks, whose directories these are
    await manager.claim(broker_id, cluster_id)     # refuses, formats
    await manager.load()                           # all directories at once; `progress` tells how far
    manager.start()                                # flushes, checkpoints, retention
    ...
    await manager.close(broker_epoch)              # flush, checkpoints, clean-shutdown markers

A directory on which a write or sync failed is offline: its logs are failed, `on_directory_failure` is told once. What
then happens (halting, for now) is decided there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.disk import Disk
from ottla_broker.ports.workers import Workers
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.checkpoints import (
    decode_offsets,
    encode_clean_shutdown,
    encode_offsets,
    encode_partition_metadata,
)
from ottla_broker.storage.config import LogConfig
from ottla_broker.storage.loading import open_log
from ottla_broker.storage.log import Log
from ottla_broker.storage.log_directory import LogDirectory, LogDirectoryError, check, claim, inspect
from ottla_broker.storage.names import (
    CLEAN_SHUTDOWN,
    DELETE_DIRECTORY,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    STRAY_DIRECTORY,
    is_set_aside,
    parse_partition_directory,
    set_aside_name,
)
from ottla_broker.storage.recovery import Recovered, recover_log, tail_bytes

RECOVERY_JOB = "recover-log"
_WORKER_RECOVERY_BYTES = 64 * 1024 * 1024
"""Longer tails are scanned in a worker process, so that the loop keeps answering."""

_LOADS_PER_DIRECTORY = 4
_FIRST_RETENTION_S = 30.0
_FLUSH_CHECK_S = 1.0

NO_TOPIC_ID = bytes(16)


@dataclass(frozen=True, slots=True)
class LogManagerSettings:
    """Broker-level values, named after their keys; defaults are Kafka 3.9's. Times in ms."""

    log_retention_check_interval_ms: int = 300_000
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    log_flush_scheduler_interval_ms: int = 2**63 - 1
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000
    may_format: Collection[str] | None = None
    """`ottla.log.dirs.format`; None without the key."""


@dataclass(slots=True)
class LoadProgress:
    """How far loading is, for /status. Counts of logs; bytes that recoveries have read, cut and dropped."""

    total: int = 0
    loaded: int = 0
    recovered: int = 0
    scanned_bytes: int = 0
    cut_bytes: int = 0
    current: list[str] = field(default_factory=list)
    """Directories of the partitions being loaded."""


class LogManager:
    """See the module. All on the broker's loop. Implements `log_state.LogOwner`."""

    def __init__(
        self,
        disks: Mapping[str, Disk],
        clock: Clock,
        workers: Workers,
        settings: LogManagerSettings,
        config_of: Callable[[str], LogConfig],
        *,
        on_directory_failure: Callable[[str, OSError], None],
        on_notice: Callable[[str], None] = lambda message: None,
    ) -> None:
        """`config_of` gives the log configuration of a topic; `on_notice` takes one line for the broker's log."""
        self._disks = disks
        self._clock = clock
        self._workers = workers
        self._settings = settings
        self._config_of = config_of
        self._on_directory_failure = on_directory_failure
        self._notice = on_notice
        self._logs: dict[TopicPartition, Log] = {}
        self._creating: dict[TopicPartition, asyncio.Future[Log]] = {}
        self._reserved: dict[TopicPartition, str] = {}
        self._offline: dict[str, OSError] = {}
        self._offline_partitions: dict[TopicPartition, str] = {}
        self._strays: dict[TopicPartition, tuple[Disk, str]] = {}
        self._written: dict[tuple[str, str], bytes] = {}
        """What each checkpoint file holds, where no write of it is under way: (path, name) to bytes."""
        self._last_write: dict[tuple[str, str], object] = {}
        self._is_loaded = False
        self._is_closed = False
        self.directories: list[LogDirectory] = []
        self.progress = LoadProgress()

    # -- start --------------------------------------------------------------------------------------------------

    async def inspect(self) -> list[LogDirectory]:
        """Locks and reads every directory. Raises LogDirectoryError, OSError."""
        self.directories = [await inspect(disk) for disk in self._disks.values()]
        return self.directories

    async def claim(self, broker_id: int, cluster_id: str) -> None:
        """Makes the directories this broker's. Raises LogDirectoryError before anything is written, OSError."""
        check(self.directories, broker_id, cluster_id, self._settings.may_format)
        for directory in self.directories:
            if directory.lost_power:
                self._notice(
                    f"log directory {directory.path}: no clean shutdown and the kernel has started anew since: records "
                    "that were not flushed may be gone"
                )
            await claim(directory, broker_id, cluster_id, self._clock)

    async def load(self) -> None:
        """Opens every log, recovering those of directories without a clean-shutdown marker.

        Raises LogDirectoryError when a partition is found twice or a file is not what it should be, OSError.
        """
        for directory in self.directories:
            if directory.was_clean:
                # Gone before anything is touched: a crash from here on is an unclean one.
                await directory.disk.delete(CLEAN_SHUTDOWN)
                await directory.disk.fsync_directory()
            else:
                # A partition whose creation was interrupted may hold records from here on: it must be found again.
                await directory.disk.fsync_directory()
        await self._gather([self._load_directory(directory) for directory in self.directories], "load")
        self.progress.current.clear()
        self._is_loaded = True

    async def _load_directory(self, directory: LogDirectory) -> None:
        disk = directory.disk
        recovery_points = await self._read_offsets(disk, RECOVERY_POINTS)
        start_offsets = await self._read_offsets(disk, LOG_START_OFFSETS)
        high_watermarks = await self._read_offsets(disk, HIGH_WATERMARKS)
        found: list[tuple[TopicPartition, str]] = []
        for name, is_directory, _ in await disk.list():
            if is_directory and is_set_aside(name, DELETE_DIRECTORY):
                await disk.delete(name)
            elif is_directory and (partition := parse_partition_directory(name)) is not None:
                found.append((partition, name))
        self.progress.total += len(found)
        remaining: Iterator[tuple[TopicPartition, str]] = iter(found)

        async def load_some() -> None:
            for partition, name in remaining:
                self.progress.current.append(name)
                config = self._config_of(partition.topic)
                log = await open_log(
                    topic_partition=partition,
                    directory=name,
                    disk=disk,
                    clock=self._clock,
                    owner=self,
                    config=config,
                    recovery_point=recovery_points.get(partition, 0),
                    log_start_offset=start_offsets.get(partition, 0),
                    high_watermark=high_watermarks.get(partition, 0),
                    is_clean=directory.was_clean,
                    recover=partial(self._recover, disk, name, config),
                )
                self.progress.current.remove(name)
                self.progress.loaded += 1
                other = self._logs.get(partition)
                if other is not None:
                    raise LogDirectoryError(
                        f"partition {partition} is in two log directories, {other.disk.path} and {disk.path}; "
                        "one of them must be moved away"
                    )
                self._logs[partition] = log

        await self._gather([load_some() for _ in range(_LOADS_PER_DIRECTORY)], f"load {disk.path}")
        await self._take_back(disk, recovery_points, start_offsets, high_watermarks)

    async def _take_back(
        self,
        disk: Disk,
        recovery_points: dict[TopicPartition, int],
        start_offsets: dict[TopicPartition, int],
        high_watermarks: dict[TopicPartition, int],
    ) -> None:
        """Writes anew the checkpoints that say more than the logs hold, before anything is appended. Raises OSError.

        A log may end below them: its truncation was interrupted, or its directory was removed. What is written from
        here on at those offsets would, after a crash, be taken for durable (and not be scanned), for committed, or for
        deleted.
        """
        logs = self._on(disk)
        if _exceeds(recovery_points, {log.topic_partition: log.recovery_point for log in logs}):
            await self.checkpoint_recovery_points(disk)
        if _exceeds(start_offsets, {log.topic_partition: log.log_start_offset for log in logs}):
            await self.checkpoint_log_start_offsets(disk)
        if _exceeds(high_watermarks, {log.topic_partition: log.high_watermark for log in logs}):
            await self._checkpoint_high_watermarks(disk)

    async def _recover(self, disk: Disk, name: str, config: LogConfig, recovery_point: int) -> Recovered:
        arguments = (name, recovery_point, config.index_interval_bytes, config.is_compacted)
        if await tail_bytes(disk, name, recovery_point) < _WORKER_RECOVERY_BYTES:
            found = await recover_log(disk, *arguments)
        else:
            found = await self._workers.run(RECOVERY_JOB, disk.path, *arguments)
        self.progress.recovered += 1
        self.progress.scanned_bytes += found.scanned_bytes
        self.progress.cut_bytes += found.cut_bytes
        if found.cut_bytes:
            self._notice(
                f"recovery of {name} in {disk.path}: {found.cut_bytes} bytes after offset {found.next_offset} were not "
                f"whole and have been cut off, {found.dropped_segments} segments with them"
            )
        return found

    async def _read_offsets(self, disk: Disk, name: str) -> dict[TopicPartition, int]:
        if not await disk.exists(name):
            return {}
        return decode_offsets(f"{disk.path}/{name}", await disk.read_file(name))

    async def _gather(self, works: list[Coroutine[Any, Any, None]], name: str) -> None:
        """All at once; the first exception ends the others and is raised."""
        tasks = [self._clock.spawn(_outcome(work), name=name) for work in works]
        try:
            for task in asyncio.as_completed(tasks):
                error = await task
                if error is not None:
                    raise error
        finally:
            for one in tasks:
                one.cancel()

    # -- lookup -------------------------------------------------------------------------------------------------

    def get(self, partition: TopicPartition) -> Log | None:
        return self._logs.get(partition)

    @property
    def logs(self) -> list[Log]:
        """All logs, in the order in which they were loaded or created."""
        return list(self._logs.values())

    def is_on_offline_directory(self, partition: TopicPartition) -> bool:
        return partition in self._offline_partitions

    @property
    def live_paths(self) -> list[str]:
        """Log directories that are online, in log.dirs order."""
        return [path for path in self._disks if path not in self._offline]

    @property
    def offline_paths(self) -> list[str]:
        return list(self._offline)

    def disk(self, path: str) -> Disk:
        return self._disks[path]

    # -- creation and deletion ----------------------------------------------------------------------------------

    async def get_or_create(self, partition: TopicPartition, topic_id: bytes, is_new: bool) -> Log:
        """The partition's log, created on the directory with the fewest partitions, then most free bytes.

        `topic_id`: 16 bytes, zeros when there is none. Raises KafkaError KAFKA_STORAGE_ERROR when the log is on an
        offline directory, or might be (not `is_new` while one is offline), or no directory is left;
        INCONSISTENT_TOPIC_ID when the log on disk is another topic's of that name.
        """
        while True:
            if partition in self._offline_partitions:
                path = self._offline_partitions[partition]
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} is on the offline directory {path}")
            log = self._logs.get(partition)
            if log is not None:
                return await self._with_topic_id(log, topic_id)
            pending = self._creating.get(partition)
            if pending is None:
                break
            await asyncio.wait([pending])
        if self._offline and not is_new:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{partition} is not found and may be on an offline directory: {', '.join(self._offline)}",
            )
        creation: asyncio.Future[Log] = self._clock.create_future()
        self._creating[partition] = creation
        try:
            log = await self._create(partition, topic_id)
            self._logs[partition] = log
            self._strays.pop(partition, None)
            return log
        finally:
            del self._creating[partition]
            creation.cancel()

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
        disk = await self._place(partition)
        try:
            log: Log = await self._on_directory(disk, self._create_on(disk, partition, topic_id))
            return log
        finally:
            del self._reserved[partition]

    async def _create_on(self, disk: Disk, partition: TopicPartition, topic_id: bytes) -> Log:
        name = str(partition)
        config = self._config_of(partition.topic)
        await disk.make_directory(name)
        log = await open_log(
            topic_partition=partition,
            directory=name,
            disk=disk,
            clock=self._clock,
            owner=self,
            config=config,
            recover=partial(self._recover, disk, name, config),
        )
        if topic_id != NO_TOPIC_ID and log.topic_id is None:
            log.topic_id = topic_id
            await disk.write_file(f"{name}/{PARTITION_METADATA}", encode_partition_metadata(topic_id))
        # A flushed record is in a directory that is found again.
        await disk.fsync_directory()
        return log

    async def _place(self, partition: TopicPartition) -> Disk:
        """The directory for a new log, reserved for it: logs being created count, so that fifty at once are spread."""
        live = self.live_paths
        if not live:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no log directory is online")
        # Asked before counting, so that no other creation comes between the count and the reservation.
        free = {path: await self._on_directory(self._disks[path], self._disks[path].free_bytes()) for path in live}
        counts = dict.fromkeys(live, 0)
        for log in self._logs.values():
            if log.disk.path in counts:
                counts[log.disk.path] += 1
        for path in self._reserved.values():
            if path in counts:
                counts[path] += 1
        best = min(live, key=lambda path: (counts[path], -free[path]))
        self._reserved[partition] = best
        return self._disks[best]

    async def delete(self, partition: TopicPartition) -> None:
        """Forgets the log and renames its directory to `-delete`; the files go after file.delete.delay.ms.

        One that was set aside since the start, and has had no successor, goes too. KafkaError KAFKA_STORAGE_ERROR when
        the directory fails.
        """
        log = self._logs.pop(partition, None)
        if log is not None:
            aside = await self._on_directory(log.disk, self._rename_away(log, DELETE_DIRECTORY))
            self._clock.call_later(log.config.file_delete_delay_ms / 1000, self._unlink, log.disk, aside)
            return
        disk, name = self._strays.pop(partition, (None, ""))
        if disk is not None:
            aside = set_aside_name(partition, self._clock.uuid4().hex, DELETE_DIRECTORY)
            await self._on_directory(disk, disk.rename(name, aside))
            delay_ms = self._config_of(partition.topic).file_delete_delay_ms
            self._clock.call_later(delay_ms / 1000, self._unlink, disk, aside)

    async def set_aside(self, partition: TopicPartition) -> None:
        """Forgets the log and renames its directory to `-stray`, which nobody reads and nothing but a `delete` of this
        partition, or a person, removes. KafkaError KAFKA_STORAGE_ERROR when the directory fails."""
        log = self._logs.pop(partition, None)
        if log is not None:
            name = await self._on_directory(log.disk, self._rename_away(log, STRAY_DIRECTORY))
            self._strays[partition] = (log.disk, name)

    async def _rename_away(self, log: Log, suffix: str) -> str:
        disk = log.disk
        await log.abandon()
        # Before the name is free: a new log of this name must not be read with the old one's positions.
        await self.checkpoint_recovery_points(disk)
        await self.checkpoint_log_start_offsets(disk)
        await self._checkpoint_high_watermarks(disk)
        aside = set_aside_name(log.topic_partition, self._clock.uuid4().hex, suffix)
        await disk.rename(log.directory, aside)
        await disk.fsync_directory()
        return aside

    def _unlink(self, disk: Disk, name: str) -> None:
        if disk.path not in self._offline and not self._is_closed:
            self._clock.spawn(self._on_directory(disk, disk.delete(name)), name=f"delete {name}")

    def reconfigure(self, topic: str) -> None:
        """The topic's configuration has changed: its logs take it from the next append on."""
        config = self._config_of(topic)
        for partition, log in self._logs.items():
            if partition.topic == topic:
                log.configure(config)

    # -- checkpoints (LogOwner) ---------------------------------------------------------------------------------

    async def checkpoint_recovery_points(self, disk: Disk) -> None:
        """Of one directory. Raises OSError."""
        await self._checkpoint(
            disk, RECOVERY_POINTS, {log.topic_partition: log.recovery_point for log in self._on(disk)}
        )

    async def checkpoint_log_start_offsets(self, disk: Disk) -> None:
        """Of one directory. Raises OSError.

        Also those that the first segment's name tells: the segments before it may come back after a power loss.
        """
        await self._checkpoint(
            disk,
            LOG_START_OFFSETS,
            {log.topic_partition: log.log_start_offset for log in self._on(disk) if log.log_start_offset > 0},
        )

    async def checkpoint_high_watermarks(self) -> None:
        """Of every live directory. A directory that fails over it is offline."""
        for path in self.live_paths:
            try:
                await self._on_directory(self._disks[path], self._checkpoint_high_watermarks(self._disks[path]))
            except KafkaError:
                continue

    async def _checkpoint_high_watermarks(self, disk: Disk) -> None:
        await self._checkpoint(
            disk, HIGH_WATERMARKS, {log.topic_partition: log.high_watermark for log in self._on(disk)}
        )

    async def _checkpoint(self, disk: Disk, name: str, offsets: dict[TopicPartition, int]) -> None:
        data = encode_offsets(offsets)
        key = (disk.path, name)
        if self._written.get(key) != data:
            # Forgotten first: a write that fails, or that another one follows before it ends, is not what the file
            # holds from then on.
            self._written.pop(key, None)
            write = self._last_write[key] = object()
            await disk.write_file(name, data)
            if self._last_write[key] is write:
                self._written[key] = data

    def _on(self, disk: Disk) -> list[Log]:
        return [log for log in self._logs.values() if log.disk is disk]

    # -- failure (LogOwner) -------------------------------------------------------------------------------------

    def directory_failed(self, disk: Disk, error: OSError) -> None:
        """The directory is offline from now on; told once."""
        if disk.path in self._offline or self._is_closed:
            return
        self._offline[disk.path] = error
        failed = self._on(disk)
        for log in failed:
            self._offline_partitions[log.topic_partition] = disk.path
        for log in failed:
            log.fail()
        self._on_directory_failure(disk.path, error)

    async def _on_directory(self, disk: Disk, work: Any) -> Any:
        """Awaits a call on a directory; an OSError takes it offline and becomes KAFKA_STORAGE_ERROR."""
        try:
            return await work
        except OSError as error:
            self.directory_failed(disk, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {disk.path}: {error}") from error

    # -- chores -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins the regular chores; they end with the clock."""
        settings = self._settings
        self._every(settings.log_flush_offset_checkpoint_interval_ms, self._checkpoint_all_recovery_points)
        self._every(settings.log_flush_start_offset_checkpoint_interval_ms, self._checkpoint_all_log_starts)
        self._every(settings.log_retention_check_interval_ms, self.delete_old_segments, first_s=_FIRST_RETENTION_S)
        self._every(settings.producer_id_expiration_check_interval_ms, self._expire_producers)
        self._every(int(_FLUSH_CHECK_S * 1000), self._flush_due)

    def _every(
        self, interval_ms: int, chore: Callable[[], Coroutine[Any, Any, object]], first_s: float | None = None
    ) -> None:
        name = f"log manager: {chore.__name__}"

        async def repeat() -> None:
            await self._clock.sleep(interval_ms / 1000 if first_s is None else min(first_s, interval_ms / 1000))
            while not self._is_closed:
                # A task of its own: the clock reports what it raises, and the next one comes all the same.
                await asyncio.wait([self._clock.spawn(chore(), name=name)])
                await self._clock.sleep(interval_ms / 1000)

        self._clock.spawn(repeat(), name=f"{name}, again and again")

    async def _checkpoint_all_recovery_points(self) -> None:
        await self._per_directory(self.checkpoint_recovery_points)

    async def _checkpoint_all_log_starts(self) -> None:
        await self._per_directory(self.checkpoint_log_start_offsets)

    async def _per_directory(self, work: Callable[[Disk], Coroutine[Any, Any, None]]) -> None:
        for path in self.live_paths:
            try:
                await self._on_directory(self._disks[path], work(self._disks[path]))
            except KafkaError:
                continue  # told by `directory_failed`

    async def delete_old_segments(self) -> int:
        """Retention, over all logs; the number of segments deleted."""
        deleted = 0
        for log in self.logs:
            if not log.is_failed:
                try:
                    deleted += await log.delete_old_segments()
                except KafkaError:
                    continue  # told by `directory_failed`
        return deleted

    async def _expire_producers(self) -> None:
        now = self._clock.now_ms()
        for log in self._logs.values():
            log.producers.remove_expired(now, self._settings.producer_id_expiration_ms)

    async def _flush_due(self) -> None:
        """flush.ms: logs with unflushed records whose last flush is that long ago."""
        now = self._clock.now_ms()
        for log in self.logs:
            is_due = now - log.last_flush_ms >= min(log.config.flush_ms, self._settings.log_flush_scheduler_interval_ms)
            if is_due and not log.is_failed and log.assigned_offset > log.recovery_point:
                try:
                    await self._on_directory(log.disk, log.flush())
                except KafkaError:
                    continue  # told by `directory_failed`

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
        for path in self.live_paths:
            disk = self._disks[path]
            logs = self._on(disk)
            try:
                for result in await asyncio.gather(*[log.close() for log in logs], return_exceptions=True):
                    if isinstance(result, BaseException):
                        raise result
                await self.checkpoint_recovery_points(disk)
                await self.checkpoint_log_start_offsets(disk)
                await self._checkpoint_high_watermarks(disk)
                await disk.write_file(CLEAN_SHUTDOWN, encode_clean_shutdown(broker_epoch))
            except (OSError, KafkaError) as error:
                self._notice(f"log directory {path} could not be closed in order: {error}")


def _exceeds(checkpoint: dict[TopicPartition, int], offsets: dict[TopicPartition, int]) -> bool:
    """Whether the checkpoint vouches for more than `offsets`; for a partition that is not there, for anything."""
    return any(offset > offsets.get(partition, 0) for partition, offset in checkpoint.items())


async def _outcome(work: Coroutine[Any, Any, None]) -> Exception | None:
    """The exception as a value, so that it is raised where it is awaited and reported nowhere else."""
    try:
        await work
    except Exception as error:
        return error
    return None

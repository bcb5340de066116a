"""All logs of a broker over its log directories (JBOD): the assembly of this package, and finding and creating logs.

    manager = LogManager(disks, clock, workers, settings, config_of, callbacks)
    directories = await manager.inspect()          # locks them, reads their owner; those that answer
    await manager.claim(broker_id, cluster_id)     # refuses other brokers' directories, formats empty ones
    await manager.load()                           # all directories at the same time; `progress` reports how far
    manager.start()                                # background tasks, monitor
    ...
    await manager.close(broker_epoch)              # flush, checkpoints, clean-shutdown files

A directory that fails is offline (`directory_access.py`): its logs fail, `on_failure` is called once, and the
other directories go on; so it is with one that cannot be opened at the start. The monitor reopens it. What a failure
means for the broker, which halts without any directory, is the caller's decision.
"""

from __future__ import annotations

import asyncio
import errno
import posixpath
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.disk import Disk, LogDisk
from ottla_broker.ports.workers import Workers
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.checkpoint_files import CheckpointFiles
from ottla_broker.storage.files.checkpoints import encode_clean_shutdown, encode_partition_metadata
from ottla_broker.storage.files.names import CLEAN_SHUTDOWN, PARTITION_METADATA
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs.background_tasks import LogBackgroundTasks
from ottla_broker.storage.log_dirs.creation import NO_TOPIC_ID, LogCreation
from ottla_broker.storage.log_dirs.directory_access import DirectoryAccess
from ottla_broker.storage.log_dirs.directory_callbacks import DirectoryCallbacks
from ottla_broker.storage.log_dirs.directory_markers import DirectoryMarkers
from ottla_broker.storage.log_dirs.future_replicas import FutureReplicas
from ottla_broker.storage.log_dirs.loading import DirectoryLoader
from ottla_broker.storage.log_dirs.log_callbacks import LogCallbacks
from ottla_broker.storage.log_dirs.log_checkpoints import LogCheckpoints
from ottla_broker.storage.log_dirs.log_directory import DirectoryOwner, LogDirectory
from ottla_broker.storage.log_dirs.log_table import LogTable, OfflineLog
from ottla_broker.storage.log_dirs.monitor import DirectoryMonitor
from ottla_broker.storage.log_dirs.recovery_threads import LoadProgress, RecoveryThreads
from ottla_broker.storage.log_dirs.registry_files import ReplicaRegistryFiles
from ottla_broker.storage.log_dirs.removal import LogRemoval
from ottla_broker.storage.log_dirs.reopening import DirectoryReopening
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from ottla_broker.storage.log_dirs.shared_parts import SharedParts
from ottla_broker.storage.log_dirs.startup import LogDirectoryStartup
from ottla_broker.storage.log_dirs.states import DirectoryStates

_CLOSED_AT_ONCE = 250
"""Logs of a directory: a stop with thousands of them still answers whoever asks how far it is."""


class LogManager:
    """See the module. On the broker's loop.

    Args:
        disks: by path, in the order of log.dirs.
        config_of: the configuration of a topic's logs.
    """

    def __init__(
        self,
        disks: Mapping[str, LogDisk],
        clock: Clock,
        workers: Workers,
        settings: LogManagerSettings,
        config_of: Callable[[str], LogConfig],
        callbacks: DirectoryCallbacks,
    ) -> None:
        self._config_of = config_of
        self._clock = clock
        self._notice = notice = callbacks.notice
        self.cordoned: Sequence[str] = ()
        """Paths of the directories that take no new log (cordoned.log.dirs, KIP-1066)."""
        self.directories: list[LogDirectory] = []
        """The live directories."""
        self.progress = LoadProgress()
        self.states = states = DirectoryStates(list(disks), settings.reserve_bytes)
        self.table = table = LogTable()
        self.access = access = DirectoryAccess(
            dict(disks),
            states,
            table,
            clock,
            callbacks,
            fail_logs=self._fail_logs,
            on_shortage=self._close_idle_segments,
        )
        self.checkpoints = checkpoints = LogCheckpoints(CheckpointFiles(access.directory_full), table)
        owner = LogCallbacks(
            directory_failed=access.directory_failed,
            directory_full=access.directory_full,
            checkpoint_recovery_points=checkpoints.write_recovery_points,
            checkpoint_log_start_offsets=checkpoints.write_log_start_offsets,
            checkpoint_high_watermarks_in=checkpoints.write_high_watermarks,
            checkpoint_clean_offsets=checkpoints.write_clean_offsets,
            notice=notice,
        )
        threads = settings.num_recovery_threads_per_data_dir
        self.recovery_threads = recovery = RecoveryThreads(workers, clock, notice, self.progress, threads)
        self.registry = registry = ReplicaRegistryFiles(states, access.disk, access.guarded)
        shared = SharedParts(access, states, table, registry, clock, notice)
        self.removal = removal = LogRemoval(access, checkpoints, clock)
        self.creation = creation = LogCreation(
            owner,
            shared,
            removal=removal,
            recovery=recovery,
            config_of=config_of,
            cordoned=lambda: self.cordoned,
            max_replicas=settings.max_partition_replicas,
        )
        self.future_replicas = FutureReplicas(
            shared,
            creation=creation,
            removal=removal,
            checkpoints=checkpoints,
            parallel=settings.num_replica_alter_log_dirs_threads or len(disks),
        )
        self._loader = loader = DirectoryLoader(owner, table, states, clock, checkpoints, recovery, config_of, threads)
        identity = DirectoryOwner()
        self.reopening = DirectoryReopening(
            self.directories,
            identity,
            shared,
            loader=loader,
            creating=creation.in_progress,
            may_format=settings.may_format,
            on_reopened=callbacks.on_reopened,
        )
        self.monitor = DirectoryMonitor(
            states,
            clock,
            disk_of=access.disk,
            apply=access.apply,
            reopen=self.reopening.reopen,
            notice=notice,
            timeout_s=settings.io_timeout_ms / 1000,
        )
        self.markers = DirectoryMarkers(self.directories, access.on_live)
        self.background_tasks = LogBackgroundTasks(access, table, checkpoints, clock, settings)
        self._startup = LogDirectoryStartup(
            self.directories,
            identity,
            shared,
            monitor=self.monitor,
            loader=loader,
            future_replicas=self.future_replicas,
            progress=self.progress,
            may_format=settings.may_format,
        )

    # -- start and stop ---------------------------------------------------------------------------------------------

    async def inspect(self) -> list[LogDirectory]:
        """Locks and reads every directory; returns those that answer, the others are offline.

        Raises LogDirectoryError, and OSError when none answers.
        """
        await self._startup.inspect()
        return self.directories

    async def claim(self, broker_id: int, cluster_id: str) -> None:
        """Makes the directories this broker's. Raises LogDirectoryError before anything is written."""
        await self._startup.claim(broker_id, cluster_id)

    async def load(self) -> None:
        """Opens every log. Raises LogDirectoryError, and OSError when no directory is left."""
        await self._startup.load()

    def start(self) -> None:
        """Starts the background tasks and the monitor; they end with the clock."""
        self.monitor.start()
        self.background_tasks.start()

    async def close(self, broker_epoch: int = -1) -> None:
        """Shuts down cleanly: flushes and closes every log, writes checkpoints, then the clean-shutdown files.

        The Disks stay open, and locked, for whoever made them. A directory that fails meanwhile gets no clean-shutdown
        file. Before `load` has returned nothing is written: the checkpoints would lack the logs that are not loaded.
        """
        self.access.is_closed = True
        if not self._startup.is_loaded:
            return
        await self.future_replicas.stop()
        await asyncio.gather(*[self._close_directory(disk, broker_epoch) for disk in self.access.live_disks])

    async def _close_directory(self, disk: Disk, broker_epoch: int) -> None:
        try:
            logs = self.table.checkpointed_logs_in(disk)
            results: list[BaseException | None] = []
            for start in range(0, len(logs), _CLOSED_AT_ONCE):
                some = logs[start : start + _CLOSED_AT_ONCE]
                results += await asyncio.gather(*[log.closer.close() for log in some], return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result
            await self.checkpoints.write_recovery_points(disk)
            if not await self.checkpoints.write_log_start_offsets(disk):
                raise OSError(errno.EAGAIN, "the log start offsets could not be written", disk.path)
            await self.checkpoints.write_high_watermarks(disk)
            await disk.write_file(CLEAN_SHUTDOWN, encode_clean_shutdown(broker_epoch))
            self.access.failed_at_close.pop(disk.path, None)  # it was only slow: all of it is flushed
        except (OSError, KafkaError) as error:
            self._notice(f"log directory {disk.path} could not be shut down cleanly: {error}")

    # -- lookup -----------------------------------------------------------------------------------------------------

    def get(self, partition: TopicPartition) -> Log | None:
        """The log of a partition; None when there is none, or its directory is offline."""
        return self.table.current.get(partition)

    @property
    def logs(self) -> list[Log]:
        """All logs, in the order in which they were loaded or created."""
        return list(self.table.current.values())

    def logs_in(self, disk: Disk) -> list[Log]:
        """The current and future logs of one directory."""
        return self.table.logs_in(disk)

    @property
    def offline_logs(self) -> Mapping[TopicPartition, OfflineLog]:
        """What is known of the logs whose directory is offline."""
        return self.table.offline

    def is_on_offline_directory(self, partition: TopicPartition) -> bool:
        """Whether the log of the partition is in an offline directory."""
        return partition in self.table.offline

    @property
    def offline_replica_count(self) -> int:
        """The number of logs in offline directories."""
        return len(self.table.offline)

    @property
    def live_paths(self) -> list[str]:
        """The online and the full directories, in the order of log.dirs."""
        return self.states.live

    @property
    def offline_paths(self) -> list[str]:
        """The offline directories, in the order of log.dirs."""
        return self.states.offline

    @property
    def paths(self) -> list[str]:
        """Every log directory, in the order of log.dirs."""
        return self.access.paths

    def configured_path(self, normal: str) -> str | None:
        """The log directory that a normalised path names, as log.dirs spells it."""
        return next((path for path in self.paths if posixpath.normpath(path) == normal), None)

    def disk(self, path: str) -> LogDisk:
        """The Disk of a directory. Raises KeyError for a path that log.dirs does not name."""
        return self.access.disk(path)

    # -- creation and deletion --------------------------------------------------------------------------------------

    async def get_or_create(self, partition: TopicPartition, topic_id: bytes, is_new: bool) -> Log:
        """The partition's log, created if it does not exist.

        Args:
            topic_id: 16 bytes, zeros when there is none.
            is_new: the controller has just created the partition: no offline directory has it.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when the log is in an offline directory or may be, or no directory takes it;
                INCONSISTENT_TOPIC_ID when the log belongs to another topic of that name.
        """
        while True:
            if partition in self.table.offline:
                path = self.table.offline[partition].path
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} is on the offline directory {path}")
            log = self.table.current.get(partition)
            if log is not None:
                return await self._with_topic_id(log, topic_id)
            pending = self.creation.in_progress.get(partition)
            if pending is None:
                break
            await asyncio.wait([pending])
        if self.states.offline and not is_new:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{partition} is not found and may be on an offline directory: {', '.join(self.states.offline)}",
            )
        return await self.creation.create(partition, topic_id)

    async def _with_topic_id(self, log: Log, topic_id: bytes) -> Log:
        if topic_id == NO_TOPIC_ID or log.state.topic_id == topic_id:
            return log
        if log.state.topic_id is not None and log.state.topic_id != NO_TOPIC_ID:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{log.state.topic_partition} in {log.state.disk.path} belongs to topic id {log.state.topic_id.hex()}, "
                f"asked for {topic_id.hex()}",
            )
        log.state.identify(topic_id)
        await self.guarded(
            log.state.disk,
            log.state.disk.write_file(
                f"{log.state.directory}/{PARTITION_METADATA}", encode_partition_metadata(topic_id)
            ),
        )
        return log

    def may_be_in(self, partition: TopicPartition, paths: Collection[str]) -> bool:
        """Whether one of these offline directories had the partition: it is known there, or nowhere else and every
        offline directory is one of these."""
        if partition in self.table.current or partition in self.creation.in_progress:
            return False
        known = self.table.offline.get(partition)
        if known is not None:
            return known.path in paths and not self.states.is_live(known.path)
        return bool(self.states.offline) and all(path in paths for path in self.states.offline)

    async def recreate(
        self, partition: TopicPartition, topic_id: bytes, path: str | None = None, *, is_catching_up: bool = False
    ) -> Log:
        """Creates an empty log in place of one that an offline directory has.

        Args:
            path: the log directory, None for the one that `placement` chooses.
            is_catching_up: other replicas have its records, and it must not lead before `registry.caught_up`.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when the log is here, its directory is being reopened, or no directory takes
                the new log.
        """
        is_here = partition in self.table.current or partition in self.creation.in_progress
        if is_here or self.reopening.is_reopening(partition):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} is here, or its directory is being reopened")
        log = await self.creation.create(partition, topic_id, path, is_catching_up=is_catching_up)
        self.table.offline.pop(partition, None)
        return log

    async def delete(self, partition: TopicPartition) -> None:
        """Removes the log and renames its directory to `-delete`; the files go after file.delete.delay.ms.

        A stray of the partition goes too, unless the partition has got another log since. KafkaError
        KAFKA_STORAGE_ERROR when the directory fails.
        """
        await self.future_replicas.cancel(partition)
        log = self.table.take(partition)
        config = self._config_of(partition.topic) if log is None else log.state.config
        await self.removal.delete(partition, log, config.file_delete_delay_ms)
        await self._record_deletion(partition)

    async def make_stray(self, partition: TopicPartition) -> None:
        """Removes the log and renames its directory to `-stray`, which nobody reads and only a `delete` of the
        partition, or a person, removes. KafkaError KAFKA_STORAGE_ERROR when the directory fails."""
        await self.future_replicas.cancel(partition)
        log = self.table.take(partition)
        if log is not None:
            await self.removal.make_stray(partition, log)
        await self._record_deletion(partition)

    async def _record_deletion(self, partition: TopicPartition) -> None:
        """After the rename: a start that finds the log and an older one must be able to tell which is newer."""
        self.reopening.record_deletion(partition)
        await self.registry.record_deletion(partition)

    def prefer(self, partition: TopicPartition, path: str) -> None:
        """See `LogCreation.prefer`."""
        self.creation.prefer(partition, path)

    def reconfigure(self, topic: str) -> None:
        """Applies a changed topic configuration, from the next append on."""
        config = self._config_of(topic)
        self._loader.forget_configs()
        for log in self.table.of_topic(topic):
            log.configure(config)

    def reconfigure_all(self) -> None:
        """Applies a changed value of the broker to all logs, from the next append on."""
        self._loader.forget_configs()
        for log in (*self.table.current.values(), *self.table.future.values()):
            log.configure(self._config_of(log.state.topic_partition.topic))

    # -- checkpoints and failures -----------------------------------------------------------------------------------

    async def checkpoint_high_watermarks(self) -> None:
        """Writes the high watermarks of every live directory. A directory that fails is offline."""
        work = [self.access.on_live(path, self.checkpoints.write_high_watermarks) for path in self.states.live]
        await asyncio.gather(*work)

    async def guarded(self, disk: Disk, work: Awaitable[Any]) -> Any:
        """See `DirectoryAccess.guarded`."""
        return await self.access.guarded(disk, work)

    def directory_failed(self, disk: Disk, error: OSError) -> None:
        """See `DirectoryAccess.directory_failed`."""
        self.access.directory_failed(disk, error)

    async def on_first_live(self, work: Callable[[Disk], Awaitable[object]]) -> None:
        """Does the work on the first live directory; see `DirectoryAccess.on_live`."""
        for path in self.live_paths[:1]:
            await self.access.on_live(path, work)

    def _fail_logs(self, disk: Disk) -> None:
        """Fails the logs of a directory that went offline."""
        failed = self.table.take_offline(disk)
        self.checkpoints.forget(disk.path)
        newly_failed = [log for log in failed if log.failures.mark_offline()]
        self.future_replicas.directory_failed(disk)
        for log in newly_failed:  # after all of them have failed
            log.failures.notify_failure()

    def _close_idle_segments(self) -> None:
        """In the background, while descriptors are short."""
        for path in self.live_paths:
            work = self.access.on_live(path, self.background_tasks.close_idle_segments)
            self._clock.spawn(work, name=f"close idle segments of {path}")

"""Making logs: on which directory, the files of an empty log, and replicas that are made anew while another one fails.

A log that is made while directories are offline may have an older copy there. That is noted in the record of the
directories first (`directory_record.py`), durably, so that the copy is known for what it is when it is found again. A
crash after the note and before the log leaves nothing that counts. Not here: which choice is right (`placement.py`),
which replicas are made anew (`replication/recreation.py`), finding logs (`log_manager.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.disk import Disk
from ottla_broker.ports.os_errors import is_sound
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.checkpoints import encode_partition_metadata
from ottla_broker.storage.files.names import MOVE_MARKER, PARTITION_METADATA, STRAY_DIRECTORY, set_aside_name
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.loading import open_log
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.state import LogOwner
from ottla_broker.storage.log_dirs.placement import candidates, place
from ottla_broker.storage.log_dirs.recovery_threads import LogRecovery
from ottla_broker.storage.log_dirs.removal import LogRemoval
from ottla_broker.storage.log_dirs.replica_registry import NOWHERE, DirectoryRecordFiles, Remade
from ottla_broker.storage.log_dirs.states import DirectoryStates

NO_TOPIC_ID = bytes(16)

_NOTICE_S = 10.0

_MOST_PREFERRED = 65_536
"""Directories remembered for replicas that do not exist yet."""


class CreationKeeper(LogOwner, Protocol):
    """What making a log asks of the log manager, beside what each log asks of it."""

    states: DirectoryStates
    cordoned: Sequence[str]
    removal: LogRemoval

    def disk(self, path: str) -> Disk: ...

    def is_in_use(self, disk: Disk) -> bool:
        """Whether the directory is live, and this is the Disk by which it is."""
        ...

    async def guarded(self, disk: Disk, work: Awaitable[Any]) -> Any:
        """Awaits calls on a directory; an OSError takes it offline and becomes KAFKA_STORAGE_ERROR."""
        ...

    @property
    def homes(self) -> list[str]:
        """The directory of every log, the copies that are being made too."""
        ...


class LogCreation:
    """See the module. `logs` are the logs of the broker, to which a new one is added."""

    def __init__(
        self,
        keeper: CreationKeeper,
        clock: Clock,
        logs: dict[TopicPartition, Log],
        recovery: LogRecovery,
        config_of: Callable[[str], LogConfig],
        files: DirectoryRecordFiles,
        max_replicas: int | None = None,
    ) -> None:
        """`max_replicas`: as many logs as the broker may hold, None without a limit."""
        self._max_replicas = max_replicas
        self._keeper = keeper
        self._clock = clock
        self._logs = logs
        self._recovery = recovery
        self._config_of = config_of
        self._files = files
        self.under_way: dict[TopicPartition, asyncio.Future[Log]] = {}
        """Logs being made; each future is done, or cancelled, when it is over."""
        self._reserved: dict[TopicPartition, str] = {}
        self._preferred: dict[TopicPartition, str] = {}
        self._left: dict[TopicPartition, str] = {}
        """Directories that may hold what was begun of a log that could not be made, and not be deleted either."""
        self._next_notice = float("-inf")
        self._begun: dict[TopicPartition, None] = {}
        """Logs over whose making a directory failed, which may hold what was begun."""

    async def make(
        self, partition: TopicPartition, topic_id: bytes, path: str | None = None, *, is_filling: bool = False
    ) -> Log:
        """An empty log, on `path` or wherever a new one goes. `is_filling`: others have its records, and it may not
        lead before `filled`. KafkaError KAFKA_STORAGE_ERROR when the broker holds as many as it may, no directory takes
        it, or one that is full holds what was to go of the partition and has no room for another name."""
        self._check_count(partition)
        creation: asyncio.Future[Log] = self._clock.create_future()
        self.under_way[partition] = creation
        before = self._files.record.remade.get(partition)
        try:
            await self._keeper.removal.make_way(partition, self._config_of(partition.topic).file_delete_delay_ms)
            log = await self._make(partition, topic_id, path, is_filling=is_filling)
            self._keeper.removal.succeeded(partition)
            self._logs[partition] = log
            self._preferred.pop(partition, None)
            self._begun.pop(partition, None)
            return log
        except BaseException:
            self._files.take_down(partition, before)
            raise
        finally:
            del self.under_way[partition]
            creation.cancel()

    def _check_count(self, partition: TopicPartition) -> None:
        """The controller counts too, but not for topics that are written into ZooKeeper by other programs, or by an
        Apache broker that is controller. Before a file is touched: the descriptors that are left are for what is
        here."""
        most = self._max_replicas
        if most is None or len(self._logs) + len(self.under_way) < most:
            return
        reason = (
            f"this broker holds {most} partition replicas, as many as it may (ottla.max.partition.replicas; without "
            "the key, half of the limit of open files)"
        )
        now = self._clock.monotonic()
        if now >= self._next_notice:
            self._next_notice = now + _NOTICE_S
            self._keeper.notice(
                f"{partition}, and perhaps others, cannot be created: {reason}. Delete topics, move partitions to "
                "other brokers, or raise the limit (ulimit -n, LimitNOFILE) and start the broker again"
            )
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} cannot be created: {reason}")

    async def _make(self, partition: TopicPartition, topic_id: bytes, path: str | None, *, is_filling: bool) -> Log:
        states = self._keeper.states
        left = self._left.get(partition)
        if left is not None and states.is_live(left):
            # Before another directory takes the log: a start that finds the partition twice is refused.
            await self._keeper.guarded(self._keeper.disk(left), self._delete(self._keeper.disk(left), str(partition)))
        self._left.pop(partition, None)
        while True:
            disk = await self._place(partition, path)
            try:
                if states.offline:
                    self._files.take_down(partition, Remade(disk.path, is_filling, tuple(states.offline)))
                    await self._files.save()
                else:
                    self._files.take_down(partition, None)
                    # Also what a deletion could not save: a start would take this log for the one before.
                    await self._files.save_if_changed()
                if partition in self._begun:
                    # That directory may be all that the next start finds, and what was begun there would be the log.
                    await self._files.keep_elsewhere()
                log: Log = await self._keeper.guarded(disk, self._new(disk, partition, topic_id))
                if not self._keeper.is_in_use(disk):
                    # Since the last call for it succeeded: nobody has told this log, which was not known yet.
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {disk.path} is offline")
                return log
            except KafkaError:
                if not states.is_live(disk.path):
                    self._begun[partition] = None
                # The directory has failed over it, or is full: another one takes the log, as long as there is one.
                if path is not None or disk.path in states.placeable or not states.placeable:
                    raise
            finally:
                del self._reserved[partition]

    async def _new(self, disk: Disk, partition: TopicPartition, topic_id: bytes) -> Log:
        """Raises OSError, KafkaError."""
        name = str(partition)
        if await disk.exists(name):
            # No log of this name is known: one was to go, and could not.
            await disk.rename(name, set_aside_name(partition, self._clock.uuid4().hex, STRAY_DIRECTORY))
        try:
            return await self.on(disk, partition, name, topic_id)
        except (OSError, KafkaError) as error:
            if isinstance(error, KafkaError) or is_sound(error):
                # What was begun goes, for good: another directory may take the log, and a start that finds the
                # partition twice is refused.
                self._left[partition] = disk.path
                await self._delete(disk, name)
                del self._left[partition]
            raise

    async def _delete(self, disk: Disk, name: str) -> None:
        await disk.delete(name)
        await disk.fsync_directory()

    async def on(
        self, disk: Disk, partition: TopicPartition, name: str, topic_id: bytes, marker: bytes | None = None
    ) -> Log:
        """The files of an empty log in the directory `name`, found again after a crash; `marker` is that of a move.
        Raises OSError."""
        config = self._config_of(partition.topic)
        await disk.make_directory(name)
        if marker is not None:
            await disk.write_file(f"{name}/{MOVE_MARKER}", marker)
        log = await open_log(
            topic_partition=partition,
            directory=name,
            disk=disk,
            clock=self._clock,
            owner=self._keeper,
            config=config,
            recover=partial(self._recovery.run, disk, name, config, True),
            notice=self._keeper.notice,
        )
        await log.wait_until_open()
        if topic_id != NO_TOPIC_ID and log.topic_id is None:
            log.state.topic_id = topic_id
            await disk.write_file(f"{name}/{PARTITION_METADATA}", encode_partition_metadata(topic_id))
        # A flushed record is in a directory that is found again.
        await disk.fsync_directory()
        return log

    # -- where --------------------------------------------------------------------------------------------------

    async def _place(self, partition: TopicPartition, path: str | None) -> Disk:
        """The directory for a new log, reserved for it: logs being created count, so that fifty at once are spread."""
        keeper = self._keeper
        if path is not None:
            self._reserved[partition] = path
            return keeper.disk(path)
        live = keeper.states.placeable
        # Asked before counting, so that no other creation comes between the count and the reservation.
        free: Mapping[str, int] = {one: await self._free_bytes(one) for one in live}
        homes = [*keeper.homes, *self._reserved.values()]
        placement = place(candidates(live, homes, free, keeper.cordoned), self._preferred.get(partition))
        if placement.path is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} cannot be created: {placement.reason}")
        self._reserved[partition] = placement.path
        return keeper.disk(placement.path)

    async def _free_bytes(self, path: str) -> int:
        """As last looked at: one that hangs keeps no creation in another one waiting."""
        known = self._keeper.states[path].free_bytes
        if known >= 0:
            return known
        disk = self._keeper.disk(path)
        found: int = await self._keeper.guarded(disk, disk.free_bytes())
        return found

    def prefer(self, partition: TopicPartition, path: str) -> None:
        """AlterReplicaLogDirs before the replica exists: it is to be created in this directory. Kept in memory only."""
        self._preferred.pop(partition, None)
        while len(self._preferred) >= _MOST_PREFERRED:
            del self._preferred[next(iter(self._preferred))]
        self._preferred[partition] = path

    # -- replicas that were made anew ---------------------------------------------------------------------------

    def is_filling(self, partition: TopicPartition) -> bool:
        """It was made anew and has not had everything that was committed yet."""
        return partition in self._files.filling

    async def filled(self, partition: TopicPartition) -> None:
        """It has everything that was committed, and may lead like any other, also after a restart. KafkaError; a call
        that is cancelled leaves it one that is being filled, too."""
        if self.is_filling(partition):
            before = self._files.record.remade[partition]
            self._files.take_down(partition, before._replace(is_filling=False))
            try:
                await self._files.save()
                if before.replaces:
                    # Its home may fail and the other directory be all that the next start finds.
                    await self._files.keep_elsewhere()
            except (KafkaError, asyncio.CancelledError):
                self._files.take_down(partition, before)
                raise

    async def outlived(self, partition: TopicPartition, home: str, paths: tuple[str, ...]) -> None:
        """The log on `home` is not made anew, but newer than a copy that the offline `paths` may hold: durable when
        this returns. KafkaError."""
        self._files.take_down(partition, Remade(home, False, paths))
        await self._files.save()
        await self._files.keep_elsewhere()  # that directory may be all that the next start finds

    async def forget(self, partition: TopicPartition) -> None:
        """The log goes: one that is made later under its name must not be taken for it, nor a copy that a directory
        which is offline may hold; of a replica that was made anew several do. KafkaError."""
        if partition in self._files.record.remade:
            self._files.take_down(partition, Remade(NOWHERE, False, tuple(self._keeper.states.offline)))
            await self._files.save()

"""Creates logs: reserves a log directory, makes the files of an empty log, and creates future logs (KIP-113).

While a directory is offline it may hold an older log of the partition. The replica registry records that first,
durably, so that the older log is known as stale when the directory is back. A crash between that record and the new log
leaves nothing that counts.

Not here: the choice of the directory (`placement.py`), which replicas are recreated (`replication.local_replicas`),
finding a log (`log_manager.py`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ottla_broker.ports.disk import Disk
from ottla_broker.ports.os_errors import is_sound
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.checkpoints import encode_partition_metadata
from ottla_broker.storage.files.names import (
    FUTURE_REPLICA_MARKER,
    PARTITION_METADATA,
    STRAY_DIRECTORY,
    renamed_directory_name,
)
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.loading import open_log
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.state import LogOwner
from ottla_broker.storage.log_dirs.placement import candidates, place
from ottla_broker.storage.log_dirs.recovery_threads import RecoveryThreads
from ottla_broker.storage.log_dirs.removal import LogRemoval
from ottla_broker.storage.log_dirs.replica_registry import RecreatedReplica
from ottla_broker.storage.log_dirs.shared_parts import SharedParts

NO_TOPIC_ID = bytes(16)

_NOTICE_S = 10.0

_MAX_PREFERRED = 65_536
"""Directories remembered for replicas that do not exist yet."""


class LogCreation:
    """See the module. On the broker's loop.

    Args:
        owner: what the logs call.
        table: the logs, to which a new one is added.
        removal: frees the partition's name before a log is created.
        recovery: for an unfinished log of the same name that a crash left.
        config_of: the configuration of a topic's logs.
        cordoned: the paths of cordoned.log.dirs now (KIP-1066).
        max_replicas: how many logs the broker may have, None without a limit.
        notice: writes a line to the broker's log.
    """

    def __init__(
        self,
        owner: LogOwner,
        shared: SharedParts,
        *,
        removal: LogRemoval,
        recovery: RecoveryThreads,
        config_of: Callable[[str], LogConfig],
        cordoned: Callable[[], Sequence[str]],
        max_replicas: int | None,
    ) -> None:
        self._owner = owner
        self._access = shared.access
        self._states = shared.states
        self._table = shared.table
        self._removal = removal
        self._recovery = recovery
        self._registry = shared.registry
        self._clock = shared.clock
        self._config_of = config_of
        self._cordoned = cordoned
        self._max_replicas = max_replicas
        self._notice = shared.notice
        self.in_progress: dict[TopicPartition, asyncio.Future[Log]] = {}
        """Logs that are being created; each future is done, or cancelled, when that is over."""
        self._reserved: dict[TopicPartition, str] = {}
        self._preferred: dict[TopicPartition, str] = {}
        self._undeleted: dict[TopicPartition, str] = {}
        """Directories that may hold files of a log that could be neither finished nor deleted."""
        self._next_notice = float("-inf")
        self._unfinished: dict[TopicPartition, None] = {}
        """Logs whose directory failed while they were created, and may hold files of them."""

    async def create(
        self, partition: TopicPartition, topic_id: bytes, path: str | None = None, *, is_catching_up: bool = False
    ) -> Log:
        """Creates an empty log.

        Args:
            path: the log directory, None for the one that `placement` chooses.
            is_catching_up: other replicas have its records, and it must not lead before it is caught up.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when the broker has as many logs as it may, when no directory takes the log,
                or when a full directory has no room to rename an older log of the partition.
        """
        self._check_count(partition)
        creation: asyncio.Future[Log] = self._clock.create_future()
        self.in_progress[partition] = creation
        before = self._registry.registry.recreated.get(partition)
        try:
            await self._removal.free_name(partition, self._config_of(partition.topic).file_delete_delay_ms)
            log = await self._create(partition, topic_id, path, is_catching_up=is_catching_up)
            self._removal.log_created(partition)
            self._table.put(log)
            self._preferred.pop(partition, None)
            self._unfinished.pop(partition, None)
            return log
        except BaseException:
            self._registry.record(partition, before)
            raise
        finally:
            del self.in_progress[partition]
            creation.cancel()

    def _check_count(self, partition: TopicPartition) -> None:
        """Before any file is touched: the remaining descriptors are for the existing logs. The controller counts too,
        but not topics that other programs write into ZooKeeper, nor when an Apache broker is the controller."""
        limit = self._max_replicas
        if limit is None or len(self._table.current) + len(self.in_progress) < limit:
            return
        reason = (
            f"this broker holds {limit} partition replicas, as many as it may (ottla.max.partition.replicas; without "
            "the key, half of the limit of open files)"
        )
        now = self._clock.monotonic()
        if now >= self._next_notice:
            self._next_notice = now + _NOTICE_S
            self._notice(
                f"{partition}, and perhaps others, cannot be created: {reason}. Delete topics, move partitions to "
                "other brokers, or raise the limit (ulimit -n, LimitNOFILE) and start the broker again"
            )
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} cannot be created: {reason}")

    async def _create(
        self, partition: TopicPartition, topic_id: bytes, path: str | None, *, is_catching_up: bool
    ) -> Log:
        states = self._states
        undeleted = self._undeleted.get(partition)
        if undeleted is not None and states.is_live(undeleted):
            # Before another directory takes the log: a start that finds the partition twice fails.
            other = self._access.disk(undeleted)
            await self._access.guarded(other, _delete(other, str(partition)))
        self._undeleted.pop(partition, None)
        while True:
            disk = await self._reserve(partition, path)
            try:
                if states.offline:
                    replica = RecreatedReplica(disk.path, is_catching_up, tuple(states.offline))
                    self._registry.record(partition, replica)
                    await self._registry.save()
                else:
                    self._registry.record(partition, None)
                    # Also what a deletion could not save: a start would take this log for the deleted one.
                    await self._registry.save_if_changed()
                if partition in self._unfinished:
                    # The next start may find only that directory, and would take its files for the log.
                    await self._registry.save_elsewhere()
                log: Log = await self._access.guarded(disk, self._create_in(disk, partition, topic_id))
                if not self._access.is_in_use(disk):
                    # It failed after the last call for this log, which was not in the table and has not failed with it.
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {disk.path} is offline")
                return log
            except KafkaError:
                if not states.is_live(disk.path):
                    self._unfinished[partition] = None
                # The directory has failed or is full: another one takes the log, as long as there is one.
                if path is not None or disk.path in states.placeable or not states.placeable:
                    raise
            finally:
                del self._reserved[partition]

    async def _create_in(self, disk: Disk, partition: TopicPartition, topic_id: bytes) -> Log:
        """Raises OSError, KafkaError."""
        name = str(partition)
        if await disk.exists(name):
            # No open log has this name: its directory could not be renamed.
            stray = renamed_directory_name(partition, self._clock.uuid4().hex, STRAY_DIRECTORY)
            await disk.rename(name, stray)
            self._access.note_renamed(disk, name, stray)
        try:
            return await self.create_files(disk, partition, name, topic_id)
        except (OSError, KafkaError) as error:
            if isinstance(error, KafkaError) or is_sound(error):
                # Deletes the files for good: another directory may take the log, and a start that finds the partition
                # twice fails.
                self._undeleted[partition] = disk.path
                await _delete(disk, name)
                del self._undeleted[partition]
            raise

    async def create_files(
        self, disk: Disk, partition: TopicPartition, name: str, topic_id: bytes, marker: bytes | None = None
    ) -> Log:
        """Creates the files of an empty log in the directory `name`, which a start after a crash finds.

        `marker`: the content of the marker file of a future log. Raises OSError.
        """
        config = self._config_of(partition.topic)
        await disk.make_directory(name)
        if marker is not None:
            await disk.write_file(f"{name}/{FUTURE_REPLICA_MARKER}", marker)
        log = await open_log(
            topic_partition=partition,
            directory=name,
            disk=disk,
            clock=self._clock,
            owner=self._owner,
            config=config,
            recover=partial(self._recovery.run, disk, name, config, True),
        )
        await log.wait_until_open()
        if topic_id != NO_TOPIC_ID and log.state.topic_id is None:
            log.state.identify(topic_id)
            await disk.write_file(f"{name}/{PARTITION_METADATA}", encode_partition_metadata(topic_id))
        # A start must find the directory of every flushed record.
        await disk.fsync_directory()
        return log

    # -- the directory ----------------------------------------------------------------------------------------------

    async def _reserve(self, partition: TopicPartition, path: str | None) -> Disk:
        """Reserves the directory of a new log. Reservations count as replicas, so that fifty creations at the same time
        are spread."""
        if path is not None:
            self._reserved[partition] = path
            return self._access.disk(path)
        online = self._states.placeable
        # Before counting, so that no other creation comes between the count and the reservation.
        free: Mapping[str, int] = {one: await self._free_bytes(one) for one in online}
        counts = Counter(self._reserved.values())
        for one in online:
            counts[one] += self._table.count_in(one)
        placement = place(candidates(online, counts, free, self._cordoned()), self._preferred.get(partition))
        if placement.path is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} cannot be created: {placement.reason}")
        self._reserved[partition] = placement.path
        return self._access.disk(placement.path)

    async def _free_bytes(self, path: str) -> int:
        """From the last space check: a directory that hangs must not delay a creation in another one."""
        known = self._states[path].free_bytes
        if known >= 0:
            return known
        disk = self._access.disk(path)
        found: int = await self._access.guarded(disk, disk.free_bytes())
        return found

    def prefer(self, partition: TopicPartition, path: str) -> None:
        """AlterReplicaLogDirs names a directory before the replica exists: it is created there. Kept in memory only."""
        self._preferred.pop(partition, None)
        while len(self._preferred) >= _MAX_PREFERRED:
            del self._preferred[next(iter(self._preferred))]
        self._preferred[partition] = path


async def _delete(disk: Disk, name: str) -> None:
    await disk.delete(name)
    await disk.fsync_directory()

"""The replica registry of one broker: reads its files at a start, changes it, and writes it to every live directory.

A change is recorded in memory first (`record`) and durable once `save` returns; the caller decides which of the two
must happen before what it does next. On the broker's loop.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable

from ottla_broker.ports.disk import Disk
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.checkpoints import CheckpointError
from ottla_broker.storage.files.names import DIRECTORY_RECORD
from ottla_broker.storage.log_dirs.log_directory import LogDirectory
from ottla_broker.storage.log_dirs.replica_registry import DELETED, RecreatedReplica, ReplicaRegistry, decode, encode
from ottla_broker.storage.log_dirs.states import DirectoryStates


class ReplicaRegistryFiles:
    """See the module.

    Args:
        states: the log directories. A broker that has a single one writes no file.
        disk_of: the Disk of a directory now.
        guarded: awaits a call on a directory; KafkaError when it fails.
    """

    def __init__(
        self,
        states: DirectoryStates,
        disk_of: Callable[[str], Disk],
        guarded: Callable[[Disk, Awaitable[object]], Awaitable[object]],
    ) -> None:
        self.registry = ReplicaRegistry()
        self.catching_up: dict[TopicPartition, None] = {}
        """The replicas of `registry.recreated` that are catching up."""
        self.catching_up_in: dict[str, list[TopicPartition]] = {}
        """By path: the replicas that the file of the directory says are there and catching up. They were never in the
        ISR. When the directory failed while they were catching up, no other directory may know of them."""
        self.has_changed = False
        """Something is recorded that is not saved."""
        self.on_catch_up: Callable[[TopicPartition, bool], None] = lambda partition, is_caught_up: None
        """Called when a replica starts to catch up (False), and when it is caught up or gone (True)."""
        self.save_elsewhere: Callable[[], Awaitable[None]] = _nowhere
        """Saves the registry outside of the log directories, in case all that know the newest revision fail.
        KafkaError."""
        self._states = states
        self._disk_of = disk_of
        self._guarded = guarded
        self._has_one_directory = len(list(states)) == 1
        self._lock = asyncio.Lock()
        self._asked = 0
        self._written = 0

    # -- at a start -------------------------------------------------------------------------------------------------

    async def load(self, directory: LogDirectory) -> None:
        """Reads the file of one directory and uses it if its revision is the highest. Raises OSError, also when the
        file is damaged."""
        disk = directory.disk
        found = await self.read(disk)
        if found is not None:
            self.catching_up_in[disk.path] = [
                partition
                for partition, replica in found.recreated.items()
                if replica.is_catching_up and replica.path == disk.path
            ]
            if found.revision > self.registry.revision:
                self._use(found)

    async def read(self, disk: Disk) -> ReplicaRegistry | None:
        """The file of one directory, None without one.

        Raises:
            OSError: EINVAL when it is damaged: then nobody knows which logs of the directory were catching up, and the
                directory is not used.
        """
        if self._has_one_directory or not await disk.exists(DIRECTORY_RECORD):
            return None
        try:
            return decode(f"{disk.path}/{DIRECTORY_RECORD}", await disk.read_file(DIRECTORY_RECORD))
        except CheckpointError as error:
            raise OSError(
                errno.EINVAL,
                f"damaged: {error}; delete the file when every log of the directory is complete, or has other replicas",
                f"{disk.path}/{DIRECTORY_RECORD}",
            ) from error

    def merge(self, found: ReplicaRegistry) -> None:
        """Uses what `save_elsewhere` saved if it is newer than the file of every directory. The directory ids are not
        used: only the directories know which one is at a path."""
        if not self._has_one_directory and found.revision > self.registry.revision:
            self._use(ReplicaRegistry(found.revision, self.registry.ids, found.recreated))
            self.has_changed = True

    def _use(self, found: ReplicaRegistry) -> None:
        self.registry = found
        self.catching_up = {tp: None for tp, replica in found.recreated.items() if replica.is_catching_up}

    def start_without_some(self, now_ms: int) -> None:
        """Raises the revision: the broker starts with a directory offline. After `merge`, which it would outdo."""
        self.registry.revision = max(self.registry.revision, now_ms)
        self.has_changed = True

    # -- changes ----------------------------------------------------------------------------------------------------

    async def record_directory_id(self, directory: LogDirectory) -> None:
        """Records which directory is at the path; not saved."""
        directory_id = None if directory.meta is None else directory.meta.directory_id
        if directory_id is not None and self.registry.ids.get(directory.path) != directory_id:
            self.registry.ids[directory.path] = directory_id
            self.has_changed = True

    async def directory_reopened(self, directory: LogDirectory) -> None:
        """Saves that the directory is back and its stale logs are renamed. KafkaError."""
        await self.record_directory_id(directory)
        for partition, replica in list(self.registry.recreated.items()):
            if directory.path in replica.replaces:
                replaces = tuple(path for path in replica.replaces if path != directory.path)
                self.record(partition, replica._replace(replaces=replaces))
        await self.save_if_changed()

    def record(self, partition: TopicPartition, replica: RecreatedReplica | None) -> None:
        """Records a recreated replica; not saved. None, or one that is caught up and replaces nothing, removes it."""
        known = self.registry.recreated
        if replica is not None and not replica.is_catching_up and not replica.replaces:
            replica = None
        if known.get(partition) == replica:
            return
        self.has_changed = True
        if replica is None:
            del known[partition]
        else:
            known[partition] = replica
        was_catching_up = partition in self.catching_up
        is_catching_up = replica is not None and replica.is_catching_up
        if is_catching_up:
            self.catching_up[partition] = None
        else:
            self.catching_up.pop(partition, None)
        if is_catching_up is not was_catching_up:
            self.on_catch_up(partition, was_catching_up)

    def is_catching_up(self, partition: TopicPartition) -> bool:
        """Whether the replica was recreated and lacks records that are committed."""
        return partition in self.catching_up

    async def caught_up(self, partition: TopicPartition) -> None:
        """Saves that the replica has every committed record and may lead, also after a restart.

        KafkaError; then, and when the call is cancelled, the replica is still catching up.
        """
        if self.is_catching_up(partition):
            before = self.registry.recreated[partition]
            self.record(partition, before._replace(is_catching_up=False))
            try:
                await self.save()
                if before.replaces:
                    # Its directory may fail, and the next start may find only the directory with the stale log.
                    await self.save_elsewhere()
            except (KafkaError, asyncio.CancelledError):
                self.record(partition, before)
                raise

    async def record_stale_log(self, partition: TopicPartition, path: str, stale_path: str) -> None:
        """Saves that the log in `path` is newer than one that the directory `stale_path` may hold, unless that
        directory is live. KafkaError."""
        if not self._states.is_live(stale_path):
            self.record(partition, RecreatedReplica(path, False, (stale_path,)))
            await self.save()
            await self.save_elsewhere()  # the next start may find only that directory

    async def record_deletion(self, partition: TopicPartition) -> None:
        """Saves that no log of a deleted replica counts, if it was recreated: several offline directories may hold one.
        A log that is created under the same name later must not be taken for it either. KafkaError."""
        if partition in self.registry.recreated:
            self.record(partition, RecreatedReplica(DELETED, False, tuple(self._states.offline)))
            await self.save()

    # -- writing ----------------------------------------------------------------------------------------------------

    async def save_if_changed(self) -> None:
        """`save`, if anything was recorded since."""
        if self.has_changed:
            await self.save()

    async def save(self) -> None:
        """Writes the registry as it is now to every live directory; a full one may lack it afterwards.

        Calls during a write share the next one.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when no directory has taken it.
        """
        if self._has_one_directory:
            return
        self._asked += 1
        asked = self._asked
        async with self._lock:
            if self._written >= asked:
                return
            covered = self._asked
            self.has_changed = False
            self.registry.revision += 1
            data = encode(self.registry)
            disks = [self._disk_of(path) for path in self._states.live]
            results = await asyncio.gather(*[self._write(disk, data) for disk in disks])
            if not any(results):
                self.has_changed = True
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no log directory takes the replica registry")
            self._written = covered

    async def _write(self, disk: Disk, data: bytes) -> bool:
        try:
            await self._guarded(disk, disk.write_file(DIRECTORY_RECORD, data))
        except KafkaError:
            return False  # the directory is offline or full now
        return True


async def _nowhere() -> None:
    return

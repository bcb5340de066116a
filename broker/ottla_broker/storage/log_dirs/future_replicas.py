"""Moves replicas between the log directories of a broker (KIP-113): the future replicas, from creation to the swap.

    create   a log `t-0.<uuid>-future` is created in the destination, with a marker file in it
    copy     records of the current log are appended to the future log (`future_copying.py`)
    swap     the future log replaces the current one (`future_swap.py`)

A future replica that a stop or a crash interrupts resumes at the next start. Not here: AlterReplicaLogDirs, and who may
append during the swap (`replication.local_replicas.alter_log_dirs`); which directory a new replica gets
(`placement.py`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from ottla_broker.ports.disk import Disk
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.names import FUTURE_REPLICA_MARKER, future_name
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs.creation import NO_TOPIC_ID, LogCreation
from ottla_broker.storage.log_dirs.future_copying import RETRY_S, FutureCopying, FutureReplica
from ottla_broker.storage.log_dirs.future_swap import CleaningControl, FutureSwap, delete_marker
from ottla_broker.storage.log_dirs.log_checkpoints import LogCheckpoints
from ottla_broker.storage.log_dirs.removal import LogRemoval
from ottla_broker.storage.log_dirs.shared_parts import SharedParts

_ROOM_RETRY_S = 1.0
"""Between two attempts while the destination is full."""

_RACES = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_OUT_OF_RANGE)

SwapWhenPaused = Callable[[FutureReplica], Awaitable[bool]]
"""Called when a future log has caught up: calls `FutureReplicas.swap` while nothing is appended; True if it swapped."""


class FutureReplicas:
    """All future replicas of a broker. On the broker's loop. `parallel`: num.replica.alter.log.dirs.threads."""

    def __init__(
        self,
        shared: SharedParts,
        *,
        creation: LogCreation,
        removal: LogRemoval,
        checkpoints: LogCheckpoints,
        parallel: int,
    ) -> None:
        self._access = shared.access
        self._states = shared.states
        self._table = shared.table
        self._creation = creation
        self._removal = removal
        self._registry = shared.registry
        self._clock = shared.clock
        self._slots = asyncio.Semaphore(max(1, parallel))
        self._by_partition: dict[TopicPartition, FutureReplica] = {}
        self.cleaning: CleaningControl = _NoCleaner()
        """The log cleaner, once there is one."""
        self.copying = FutureCopying(shared.access, shared.clock)
        self._swap = FutureSwap(
            shared,
            removal=removal,
            checkpoints=checkpoints,
            cleaning=lambda: self.cleaning,
            forget=self._forget,
        )

    def get(self, partition: TopicPartition) -> FutureReplica | None:
        """The future replica of a partition that has not swapped yet."""
        return self._by_partition.get(partition)

    @property
    def in_progress(self) -> list[FutureReplica]:
        """All future replicas that have not swapped yet."""
        return list(self._by_partition.values())

    # -- creation and end -------------------------------------------------------------------------------------------

    async def create(self, current: Log, disk: Disk) -> FutureReplica | None:
        """Creates, or finds, the future replica of a log in another directory; `run` copies it.

        A future replica in a third directory is cancelled. None when the log is in the directory already.

        Raises:
            KafkaError: INVALID_TOPIC_EXCEPTION when the name of the future log is too long, KAFKA_STORAGE_ERROR when
                either directory fails, any directory is offline, or the replica is catching up.
        """
        partition = current.state.topic_partition
        name = future_name(partition, self._clock.uuid4().hex)
        if name is None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long to be moved.")
        known = self._by_partition.get(partition)
        if known is not None and known.current is current and known.future.state.disk is disk:
            return known
        await self.cancel(partition)
        if current.state.disk is disk:
            return None
        async with self._cleaning_paused(partition):
            # Before the marker is deleted: it may be what distinguishes this log from an older one.
            await self._delete_older_logs(current)
            # The marker of a swap that a crash interrupted: of two logs only the newer one may have it.
            await self._access.guarded(current.state.disk, delete_marker(current))
            self._check_may_move(partition)
            topic_id = current.state.topic_id or NO_TOPIC_ID
            files = self._creation.create_files(disk, partition, name, topic_id, marker_text(current))
            return await self._add(current, await self._access.guarded(disk, files))

    async def _delete_older_logs(self, log: Log) -> None:
        """Returns when no other directory has a log of the partition's name. KafkaError when it must not move now."""
        partition = log.state.topic_partition
        self._check_may_move(partition)
        await self._removal.free_name(partition, log.state.config.file_delete_delay_ms)
        for disk in self._access.live_disks:
            if disk is not log.state.disk and await self._access.guarded(disk, disk.exists(str(partition))):
                # An earlier swap could not rename it.
                self._removal.delete_files(disk, await self._removal.rename(partition, disk, str(partition)))

    def _check_may_move(self, partition: TopicPartition) -> None:
        if self._states.offline:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{partition} cannot be moved while a log directory is offline: {', '.join(self._states.offline)}",
            )
        if self._registry.is_catching_up(partition):
            # The replica registry has its directory: a start that finds it elsewhere would let it lead.
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{partition} was recreated and does not have every record yet: it can be moved when it has",
            )

    @asynccontextmanager
    async def _cleaning_paused(self, partition: TopicPartition) -> AsyncIterator[None]:
        """The log is not compacted from here on, until the future replica that is created in the block is finished."""
        await self.cleaning.abort_and_pause(partition)
        try:
            yield
        except BaseException:
            self.cleaning.resume(partition)
            raise

    async def _add(self, current: Log, future: Log) -> FutureReplica:
        """KafkaError when one of the two directories has failed since, before the future log was in the table."""
        for log in (current, future):
            if log.state.is_failed or not self._access.is_in_use(log.state.disk):
                await future.closer.abandon()
                raise log.state.storage_error()
        replica = FutureReplica(current, future)
        self._by_partition[current.state.topic_partition] = replica
        self._table.put_future(future)
        current.state.set_future(future)
        return replica

    def _forget(self, partition: TopicPartition) -> None:
        del self._by_partition[partition]
        self._table.take_future(partition)

    async def resume(self, current: Log, future: Log) -> None:
        """Resumes a future replica after a start, from where its log still agrees with the current one. KafkaError.

        It starts from the beginning

        - when the current log has been compacted since: its directory had failed, and compaction went on without it. It
          would keep records whose tombstones are gone from the current log;
        - when it starts later: after a crash only the future log had a log start offset that was not acknowledged.
        """
        async with self._cleaning_paused(current.state.topic_partition):
            if future.state.assigned_offset > current.state.assigned_offset:
                # Records that the current log lost with the power: it will get others at these offsets.
                await future.truncation.truncate_to(current.state.assigned_offset)
            marker = f"{future.state.directory}/{FUTURE_REPLICA_MARKER}"
            found = await self._access.guarded(future.state.disk, _content(future.state.disk, marker))
            agrees = (
                _clean_offset_in(found) == current.state.clean_offset
                and future.state.log_start_offset <= current.state.log_start_offset
                and await _ends_alike(current, future)
            )
            if not agrees:
                await future.truncation.truncate_fully_and_start_at(current.state.log_start_offset)
            if not (agrees and found):
                await self._access.guarded(
                    future.state.disk, future.state.disk.write_file(marker, marker_text(current))
                )
            await self._add(current, future)

    async def cancel(self, partition: TopicPartition) -> None:
        """Cancels a future replica and deletes its log; waits for one that has swapped already."""
        replica = self._by_partition.get(partition)
        if replica is not None:
            self._forget(partition)
            await _ended(self._finish(replica), by_force=True)
            try:
                await self._removal.delete_future(replica.future)
            except KafkaError:
                pass  # its directory is offline now; the next start cleans up
        await self._swap.wait(partition)

    def _finish(self, replica: FutureReplica) -> asyncio.Task[Any] | None:
        """Returns the task of the replica if it has to be ended: if it is not the calling one."""
        replica.is_finished = True
        replica.current.state.set_future(None)
        self.cleaning.resume(replica.current.state.topic_partition)
        return None if replica.task is asyncio.current_task() else replica.task

    def directory_failed(self, disk: Disk) -> None:
        """Ends the future replicas from and to a directory that is offline, also those that wait for a slot or for the
        throttle: the replica may be recreated in their directory, which would have two logs of it then. `_add` refuses
        one that is being created."""
        for replica in self.in_progress:
            if disk in (replica.current.state.disk, replica.future.state.disk):
                self._fail(replica)

    def _fail(self, replica: FutureReplica) -> None:
        """One of its two directories is offline. If it is the current log's, the future log stays on its disk: it may
        be all that there is, and a later start with all directories decides whether to resume it."""
        partition = replica.current.state.topic_partition
        if self._by_partition.get(partition) is replica:
            self._forget(partition)
            end = self._end_failed(replica, self._finish(replica))
            self._clock.spawn(end, name=f"end of the future replica of {partition}")

    async def _end_failed(self, replica: FutureReplica, task: asyncio.Task[Any] | None) -> None:
        await _ended(task, by_force=not replica.is_swapping)
        await replica.future.closer.abandon()

    async def stop(self) -> None:
        """Stops copying: the broker stops. The future replicas resume at the next start."""
        for replica in self.in_progress:
            if replica.task is not None:
                replica.task.cancel()
                await asyncio.wait([replica.task])
        await self._swap.wait_for_all()

    # -- copying and swapping ---------------------------------------------------------------------------------------

    def run(self, replica: FutureReplica, swap_when_paused: SwapWhenPaused) -> None:
        """Copies in the background until `swap_when_paused` returns True. Once for each replica; again after a
        failure."""
        if replica.is_finished or (replica.task is not None and not replica.task.done()):
            return
        replica.failure = None
        name = f"future replica of {replica.current.state.topic_partition}"
        replica.task = self._clock.spawn(self._run(replica, swap_when_paused), name=name)

    async def _run(self, replica: FutureReplica, swap_when_paused: SwapWhenPaused) -> None:
        while not replica.is_finished:
            # One that waits for room leaves its slot to others: they may be what makes the room.
            if not replica.is_waiting_for_room:
                async with self._slots:
                    try:
                        await self.copying.copy(replica)
                        if await self._swap_when_paused(replica, swap_when_paused):
                            return
                    except KafkaError as error:
                        if replica.current.state.is_failed or replica.future.state.is_failed:
                            self._fail(replica)
                        elif replica.is_detached:
                            await self.cancel(replica.current.state.topic_partition)
                        elif error.code not in _RACES and not replica.future.state.is_full:
                            replica.failure = error
                            return
            await self._clock.sleep(_ROOM_RETRY_S if replica.future.state.is_full else RETRY_S)

    async def _swap_when_paused(self, replica: FutureReplica, swap_when_paused: SwapWhenPaused) -> bool:
        replica.is_swapping = True
        try:
            return await swap_when_paused(replica)
        finally:
            replica.is_swapping = False

    async def swap(self, replica: FutureReplica, on_swap: Callable[[Log], None]) -> bool:
        """Copies the remaining records and swaps as soon as both logs are level. It ends only if the appends pause.

        Args:
            on_swap: called with the new current log in the turn of the loop in which it replaces the other one.

        Returns:
            False when the replica is finished, a log fails or the future log's directory is full.
        """
        current, future = replica.current, replica.future
        try:
            while not (replica.is_finished or future.state.is_full):
                await self.copying.copy(replica, is_throttled=False)
                if future.state.flushed_offset < current.state.flushed_offset:
                    await self._access.guarded(future.state.disk, future.flusher.flush())
                if await self._swap.try_swap(replica, on_swap):
                    return True
                await self._clock.sleep(0.001)
        except KafkaError:
            pass  # `_run` gets the same error and handles it
        return False


class _NoCleaner:
    """Stands for the log cleaner before there is one."""

    async def abort_and_pause(self, partition: TopicPartition) -> None:
        return

    def resume(self, partition: TopicPartition) -> None:
        return

    def alter_checkpoint_dir(self, partition: TopicPartition, source: Disk, destination: Disk) -> None:
        return


def marker_text(source: Log) -> bytes:
    """The content of a marker file: for people, and for `FutureReplicas.resume`."""
    state = source.state
    text = f"{state.topic_partition} moves here from {state.disk.path}\ncompacted to offset {state.clean_offset}\n"
    return text.encode()


def _clean_offset_in(marker: bytes) -> int:
    """To which offset the log was compacted when its future log was created; 0 where the marker does not say."""
    found = re.search(rb"^compacted to offset (\d+)$", marker, re.MULTILINE)
    return int(found[1]) if found is not None else 0


async def _content(disk: Disk, name: str) -> bytes:
    """Empty when there is no such file, as in a future log that Apache Kafka created."""
    try:
        return await disk.read_file(name)
    except FileNotFoundError:
        return b""


async def _ends_alike(current: Log, future: Log) -> bool:
    """Whether the last batch of the future log is in the current log too, byte for byte; true of an empty one."""
    last = future.state.assigned_offset - 1
    if last < max(future.state.log_start_offset, current.state.log_start_offset):
        return True
    return await future.read_bytes(last, 1) == await current.read_bytes(last, 1)


async def _ended(task: asyncio.Task[Any] | None, *, by_force: bool) -> None:
    if task is not None:
        if by_force:
            task.cancel()
        await asyncio.wait([task])


__all__ = ["FutureReplica", "FutureReplicas", "SwapWhenPaused", "marker_text"]

"""Replaces a current log by its future log (KIP-113), and removes the replaced log.

    swap     both logs are level and no append is in progress: in one turn of the loop the future log becomes the
             current one. Its directory is renamed to `t-0` in the order of its lane, before anything that is appended
             from now on
    finish   once that name is durable the replaced directory becomes `t-0.<uuid>-delete`; after that the marker file is
             deleted. The replaced files are deleted after file.delete.delay.ms, so that requests that read them finish

At every moment one directory, or two with the same records, hold everything that was acknowledged, and a start can tell
which one is newer (`interrupted_future_replicas.py`). Not here: who pauses the appends
(`replication.local_replicas.alter_log_dirs`).
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from ottla_broker.ports.disk import Disk
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.checkpoints import encode_partition_metadata
from ottla_broker.storage.files.names import (
    DELETE_DIRECTORY,
    FUTURE_REPLICA_MARKER,
    PARTITION_METADATA,
    SNAPSHOT,
    STRAY_DIRECTORY,
    offset_name,
    renamed_directory_name,
)
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs.future_copying import FutureReplica
from ottla_broker.storage.log_dirs.log_checkpoints import LogCheckpoints
from ottla_broker.storage.log_dirs.removal import LogRemoval
from ottla_broker.storage.log_dirs.shared_parts import SharedParts


class CleaningControl(Protocol):
    """What the log cleaner offers: a log that is being copied is not compacted. Source: kafka.log.LogCleaner."""

    async def abort_and_pause(self, partition: TopicPartition) -> None:
        """Returns when no cleaning of the log is in progress; none starts before `resume`."""
        ...

    def resume(self, partition: TopicPartition) -> None:
        """The log may be cleaned again."""
        ...

    def alter_checkpoint_dir(self, partition: TopicPartition, source: Disk, destination: Disk) -> None:
        """Moves what the cleaner knows about the log from one directory to another."""
        ...


class FutureSwap:
    """See the module. On the broker's loop.

    Args:
        cleaning: the log cleaner now.
        forget: removes a replica that was swapped from those that are being copied.
    """

    def __init__(
        self,
        shared: SharedParts,
        *,
        removal: LogRemoval,
        checkpoints: LogCheckpoints,
        cleaning: Callable[[], CleaningControl],
        forget: Callable[[TopicPartition], None],
    ) -> None:
        self._access = shared.access
        self._table = shared.table
        self._removal = removal
        self._checkpoints = checkpoints
        self._registry = shared.registry
        self._clock = shared.clock
        self._cleaning = cleaning
        self._forget = forget
        self._finishing: dict[TopicPartition, asyncio.Task[Any]] = {}

    async def try_swap(self, replica: FutureReplica, on_swap: Callable[[Log], None]) -> bool:
        """Swaps if both logs are level; `on_swap` is called with the new current log in that turn of the loop."""
        current, future = replica.current, replica.future
        async with current.state.lock, future.state.lock:
            if replica.is_finished or replica.is_detached or not _are_level(current, future):
                return False
            self._swap(replica)
            on_swap(future)
            return True

    async def wait(self, partition: TopicPartition) -> None:
        """Returns when the replaced log of the partition, if there is one, is renamed."""
        task = self._finishing.get(partition)
        if task is not None:
            await asyncio.wait([task])

    async def wait_for_all(self) -> None:
        """Returns when every replaced log is renamed."""
        for task in list(self._finishing.values()):
            await asyncio.wait([task])

    def _swap(self, replica: FutureReplica) -> None:
        """In one turn of the loop; both locks are held."""
        old, new = replica.current, replica.future
        partition = old.state.topic_partition
        replica.is_finished = True
        new.configure(old.state.config)
        new.state.take_over(old.state)
        renamed = new.closer.rename_directory(str(partition))
        snapshot = f"{new.state.directory}/{offset_name(new.state.assigned_offset, SNAPSHOT)}"
        written = [new.state.disk.write_file(snapshot, new.state.producers.encode())]
        if old.state.topic_id is not None and new.state.topic_id != old.state.topic_id:
            new.state.identify(old.state.topic_id)
            metadata = encode_partition_metadata(old.state.topic_id)
            written.append(new.state.disk.write_file(f"{new.state.directory}/{PARTITION_METADATA}", metadata))
        new.state.call(None, None)
        old.state.replaced_by(new)
        self._forget(partition)
        self._table.put(new)
        self._table.replaced[partition] = old
        self._finishing[partition] = self._clock.spawn(
            self._finish(old, new, renamed, written), name=f"end of the swap of {partition}"
        )

    async def _finish(
        self, old: Log, new: Log, renamed: asyncio.Future[Any], written: Sequence[asyncio.Future[Any]]
    ) -> None:
        partition = old.state.topic_partition
        has_its_name = False
        try:
            await self._access.guarded(new.state.disk, _renamed(renamed))
            has_its_name = True
            await self._await_small_files(new, written)
            self._cleaning().alter_checkpoint_dir(partition, old.state.disk, new.state.disk)
            self._table.replaced.pop(partition, None)
            await self._access.guarded(old.state.disk, self._rename_replaced(old))
            await self._access.guarded(new.state.disk, delete_marker(new))
            self._clock.call_later(old.state.config.file_delete_delay_ms / 1000, self._delete_replaced, old)
        except KafkaError:
            # The directory is offline or full now. The marker stays: it says which log is newer.
            await old.closer.abandon()
            await asyncio.gather(*written, return_exceptions=True)
            is_stale = has_its_name and not new.state.is_failed
            if old.state.directory == str(partition):
                suffix = DELETE_DIRECTORY if is_stale else STRAY_DIRECTORY
                self._removal.add_leftover(partition, old.state.disk, old.state.directory, suffix)
            if is_stale:
                await self._record_stale_log(old, new)
        finally:
            self._table.replaced.pop(partition, None)
            self._finishing.pop(partition, None)
            self._cleaning().resume(partition)

    async def _await_small_files(self, new: Log, written: Sequence[asyncio.Future[Any]]) -> None:
        try:
            await self._access.guarded(new.state.disk, _all(written))
        except KafkaError:
            if new.state.is_failed:
                raise
            # No room for them. They only shorten the next start: no reason to leave the replaced log where it is.

    async def _record_stale_log(self, old: Log, new: Log) -> None:
        """The replaced log still has its name, and a later start may find only its directory."""
        try:
            await self._registry.record_stale_log(old.state.topic_partition, new.state.disk.path, old.state.disk.path)
        except KafkaError:
            return  # a directory is offline or full now; the marker remains

    async def _rename_replaced(self, old: Log) -> None:
        # Before the name is free: a new log of this name must not be loaded with the positions of the old one.
        await self._checkpoints.write_all(old.state.disk)
        new_name = renamed_directory_name(old.state.topic_partition, self._clock.uuid4().hex, DELETE_DIRECTORY)
        async with old.state.lock:
            name = old.state.directory
            try:
                await old.closer.rename_directory(new_name)
            except OSError:
                old.closer.set_directory(name)
                raise

    def _delete_replaced(self, old: Log) -> None:
        self._clock.spawn(self._close_and_delete(old), name=f"delete {old.state.directory}")

    async def _close_and_delete(self, old: Log) -> None:
        await old.closer.abandon()
        self._removal.delete_files(old.state.disk, old.state.directory)


def _are_level(current: Log, future: Log) -> bool:
    """Whether the future log has everything that the current log has acknowledged."""
    end = current.state.assigned_offset
    return (
        current.state.log_end_offset == future.state.assigned_offset == future.state.log_end_offset == end
        and future.state.flushed_offset >= current.state.flushed_offset
        and future.state.log_start_offset >= current.state.log_start_offset
        and not (current.appender.is_preparing or future.state.is_full)
        and not (
            current.state.is_truncating
            or future.state.is_truncating
            or current.state.is_failed
            or future.state.is_failed
        )
    )


async def _renamed(renamed: asyncio.Future[Any]) -> None:
    """The log takes appends under its new name already: without room for that name, its disk counts as failed."""
    try:
        await renamed
    except OSError as error:
        raise OSError(errno.EIO, f"a future log could not get the name of its partition: {error}") from error


async def delete_marker(log: Log) -> None:
    """Deletes the marker file of a log that was a future log. Raises OSError."""
    await log.state.disk.delete(f"{log.state.directory}/{FUTURE_REPLICA_MARKER}")
    await log.state.disk.fsync_directory(log.state.directory)


async def _all(calls: Sequence[Awaitable[Any]]) -> None:
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


__all__ = ["CleaningControl", "FutureSwap", "delete_marker"]

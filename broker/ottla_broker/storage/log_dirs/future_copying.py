"""Copies the records of a current log to its future log (KIP-113), throttled, until the future log has all of them.

Records that are truncated from the current log are truncated from the future log first; a new log start offset reaches
the future log before it is acknowledged. Not here: when copying starts and stops (`future_replicas.py`), and the swap
(`future_swap.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ottla_broker.ports.clock import Clock
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.records.formats import batches
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs.directory_access import DirectoryAccess
from ottla_broker.storage.log_dirs.throttle import CopyThrottle

_CHUNK_BYTES = 1024 * 1024
_FLUSH_BYTES = 64 * 1024 * 1024
"""The future log is flushed after so many bytes: the disk writes steadily, and the swap has little left to flush."""

RETRY_S = 0.01
"""Between two attempts while something else works on the log."""


class FutureReplica:
    """A current log and the future log that will replace it."""

    __slots__ = ("current", "failure", "future", "is_finished", "is_swapping", "progress", "task")

    def __init__(self, current: Log, future: Log) -> None:
        self.current = current
        self.future = future
        self.is_finished = False
        """The future log has replaced the current one, or was cancelled."""
        self.failure: KafkaError | None = None
        """Why copying has stopped for good; None while it goes on."""
        self.task: asyncio.Task[Any] | None = None
        self.is_swapping = False
        """Its task has paused the replica's appends and must resume them: it is not cancelled."""
        self.progress = asyncio.Event()
        future.state.call(self.progress.set, self.progress.set)

    @property
    def is_detached(self) -> bool:
        """The current log does not have this future log any more: a truncation of the future log has failed."""
        return not self.is_finished and self.current.state.future is not self.future

    @property
    def is_waiting_for_room(self) -> bool:
        """The directory of the future log is full."""
        return self.future.state.is_full and not self.is_detached

    @property
    def lag(self) -> int:
        """Records that the future log lacks."""
        return max(0, self.current.state.log_end_offset - self.future.state.log_end_offset)


class FutureCopying:
    """See the module. On the broker's loop."""

    def __init__(self, access: DirectoryAccess, clock: Clock) -> None:
        self._access = access
        self._clock = clock
        self.max_bytes_per_second = 2**63 - 1
        """replica.alter.log.dirs.io.max.bytes.per.second now."""
        self.on_copied: Callable[[int], None] = lambda size: None
        """Called with the bytes of each chunk."""
        self._throttle = CopyThrottle(clock, lambda: self.max_bytes_per_second)

    async def copy(self, replica: FutureReplica, *, is_throttled: bool = True) -> None:
        """Returns when the future log has every record, or the replica is finished.

        Raises:
            KafkaError: a log failed, is full or detached, or its records are corrupt.
        """
        current, future = replica.current, replica.future
        unflushed = 0
        while not (replica.is_finished or replica.is_detached):
            if future.state.log_start_offset < current.state.log_start_offset:
                await future.retention.start_at(current.state.log_start_offset)
            start, truncation_count = future.state.assigned_offset, current.state.truncation_count
            if current.state.is_truncating:
                # What is read now may be truncated, and the truncation be over before the future log can follow it.
                await self._clock.sleep(RETRY_S)
                continue
            if start >= current.state.log_end_offset:
                break
            if is_throttled:
                await self._throttle.wait()
            data = await current.read_bytes(start, self._throttle.chunk_bytes(_CHUNK_BYTES))
            first = next((header.base_offset for _, header in batches(data)), start)
            if first < start == future.state.log_start_offset:
                # The log starts in the middle of a batch; the future log gets the whole batch before it starts there.
                await future.truncation.truncate_fully_and_start_at(first)
                start = first
            is_truncated = current.state.is_truncating or current.state.truncation_count != truncation_count
            if is_truncated or future.state.assigned_offset != start or not data:
                await self._clock.sleep(RETRY_S)
                continue
            future.append_as_follower(memoryview(data))
            self._throttle.spend(len(data))
            self.on_copied(len(data))
            while future.state.log_end_offset < future.state.assigned_offset and not (
                future.state.is_failed or future.state.is_full
            ):
                replica.progress.clear()
                await replica.progress.wait()
            if future.state.is_full:
                raise future.state.storage_error()
            future.state.maybe_advance_high_watermark(current.state.high_watermark)
            unflushed += len(data)
            if unflushed >= _FLUSH_BYTES:
                unflushed = 0
                await self._access.guarded(future.state.disk, future.flusher.flush())
        if current.state.is_failed or future.state.is_failed or replica.is_detached:
            raise (current if current.state.is_failed else future).state.storage_error()

"""Closes the files of a log: idle segments, the whole log at an orderly stop or before its deletion; renames its
directory."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla_broker.storage.files.names import SNAPSHOT, offset_name
from ottla_broker.storage.files.segment import Segment
from ottla_broker.storage.log.failures import LogFailures
from ottla_broker.storage.log.flushing import LogFlusher
from ottla_broker.storage.log.state import LogState
from ottla_broker.storage.log.writes import WriteTracker


class LogCloser:
    """Closes and renames the files of one log."""

    __slots__ = ("_failures", "_flusher", "_state", "_writes")

    def __init__(self, state: LogState, failures: LogFailures, writes: WriteTracker, flusher: LogFlusher) -> None:
        self._state = state
        self._failures = failures
        self._writes = writes
        self._flusher = flusher

    async def close_idle_segments(self) -> None:
        """Closes the files of flushed, closed segments that nobody has read since the last call: a consumer that read
        the whole log must not leave a descriptor and a mapping open for each of them."""
        state = self._state
        async with state.lock:
            idle: list[Segment] = []
            for segment in state.segments:
                is_flushed = segment is not state.active_segment and segment.next_offset <= state.recovery_point
                if is_flushed and segment.file is not None and not segment.is_used:
                    idle.append(segment)
                segment.is_used = False
            if idle and not state.is_failed:
                # A new list: a read that is so slow that its segment looks idle looks at it (`segment_lookup`).
                state.segments = list(state.segments)
                for segment in idle:
                    await segment.close()

    async def close(self) -> None:
        """An orderly stop: flushes everything, writes producer snapshots at every roll and at the end, closes the
        files. Raises KAFKA_STORAGE_ERROR."""
        rolling = self._flusher.rolling
        if rolling is not None and not self._state.is_failed:
            await asyncio.wait([rolling])
        await self._failures.handle_errors(self._close())

    async def _close(self) -> None:
        state = self._state
        async with state.lock:
            if state.is_failed:
                return
            await self._writes.wait_until_written()
            state.active_segment.end_index()
            # A leader epoch without records ends where the next one begins: nobody asks for it. So a log that was idle
            # since the start is closed without a write, however often the broker is restarted.
            state.epochs.truncate_from_end(state.assigned_offset)
            await self._flusher.flush_locked()
            name = f"{state.directory}/{offset_name(state.assigned_offset, SNAPSHOT)}"
            if state.assigned_offset > state.log_start_offset and not await state.disk.exists(name):
                state.producers.end_offset = state.assigned_offset
                await state.disk.write_file(name, state.producers.encode())
            for segment in state.segments:
                await segment.close()
            state.is_failed = True

    async def abandon(self) -> None:
        """Before the log is deleted: refuses appends, waits for changes of its files that are under way, closes it."""
        state = self._state
        state.is_failed = True
        state.unfinished_writes.clear()
        # A flush that went on after the directory is renamed would fail, and take the log directory offline.
        async with state.lock:
            for segment in state.segments:
                await segment.close()

    def rename_directory(self, name: str) -> asyncio.Future[Any]:
        """Renames the log's directory within its log directory; the caller holds `lock`.

        Every call from now on uses the new name, since a Disk keeps the order of calls. When the answer is done the
        name is durable. OSError: the directory keeps its old name, which the caller passes to `set_directory`.
        """
        state = self._state
        renamed = state.disk.rename(state.directory, name)
        self._failures.watch(renamed)
        self.set_directory(name)
        return asyncio.gather(renamed, state.disk.fsync_directory())

    def set_directory(self, name: str) -> None:
        """Where the log's files are from now on."""
        state = self._state
        state.directory = name
        for segment in state.segments:
            segment.directory = name
            if segment.transactions is not None:
                segment.transactions.directory = name

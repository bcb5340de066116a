"""Moves the log end offset as the writes of appends are done, in the order of the appends."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla_broker.ports.futures import retrieve
from ottla_broker.storage.log.failures import LogFailures
from ottla_broker.storage.log.state import LogState


class WriteTracker:
    """Handles the completions of one log's writes. The appender adds them to `LogState.unfinished_writes`."""

    __slots__ = ("_failures", "_state")

    def __init__(self, state: LogState, failures: LogFailures) -> None:
        self._state = state
        self._failures = failures

    def on_written(self, write: asyncio.Future[Any]) -> None:
        """The callback of every write: takes all writes that are done, so that `on_append` is called once for them."""
        state = self._state
        unfinished = state.unfinished_writes
        if state.is_failed or state.has_unwritten_tail:
            retrieve(write)  # an earlier write has reported the failure
            return
        done = 0
        for write, segment, position, offset, synced_from in unfinished:
            if not write.done():
                break
            if write.cancelled():
                # The Disk was closed before the log: the broker has halted.
                state.is_failed = True
                return
            error = write.exception()
            if error is not None:
                self._failures.fail(error if isinstance(error, OSError) else OSError(str(error)))
                return
            state.log_end_offset = offset
            state.written_segment = segment
            state.written_position = position
            if synced_from is not None and synced_from <= state.flushed_offset < offset:
                state.flushed_offset = offset
            done += 1
        if not done:
            return
        del unfinished[:done]
        if state.on_append is not None:
            state.on_append()

    async def wait_until_written(self) -> None:
        """Waits until everything assigned is written. Raises KAFKA_STORAGE_ERROR."""
        state = self._state
        while state.unfinished_writes and not state.is_failed:
            await asyncio.wait([state.unfinished_writes[-1][0]])
            await asyncio.sleep(0)
        state.check_online()

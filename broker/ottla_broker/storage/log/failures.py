"""What a log does when a call on its log directory fails.

| the call fails with                | what happens                                                     |
|------------------------------------|------------------------------------------------------------------|
| no room, no descriptors, no memory | appends are refused until there is room; unwritten ones are lost |
| any other OSError                  | the directory, and every log in it, is offline                   |

Not here: which error is which (`ports.os_errors`), what an offline directory means for the broker (log manager).
Source: LogDirFailureChannel and UnifiedLog.maybeHandleIOException of Apache Kafka, which halts on a full disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.os_errors import is_shortage, is_sound
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.storage.log.state import LogOwner, LogState

_T = TypeVar("_T")


class LogFailures:
    """Runs the file work of one log and handles its errors."""

    __slots__ = ("_clock", "_owner", "_state")

    def __init__(self, state: LogState, clock: Clock, owner: LogOwner) -> None:
        self._state = state
        self._clock = clock
        self._owner = owner

    def fail(self, error: OSError) -> None:
        """A write failed: marks the log directory full or offline."""
        state = self._state
        if is_sound(error):
            # The unwritten appends are lost: their producers get an error, and a truncation follows.
            state.unfinished_writes.clear()
            state.has_unwritten_tail = True
            self._owner.directory_full(state.disk, error)
            state.is_full = True
            self.notify_failure()
            return
        self._owner.directory_failed(state.disk, error)
        if self.mark_offline():
            self.notify_failure()

    def mark_offline(self) -> bool:
        """The log directory is offline: unwritten appends are lost, reads fail. False when it was offline before."""
        state = self._state
        if state.is_failed:
            return False
        state.is_failed = True
        state.unfinished_writes.clear()
        return True

    def notify_failure(self) -> None:
        """Calls `on_failure`. Requests that it answers may start the next ones at once."""
        if self._state.on_failure is not None:
            self._state.on_failure()

    def watch(self, call: asyncio.Future[Any]) -> None:
        """For a call that nobody awaits: its failure still marks the log directory."""
        call.add_done_callback(self._on_unawaited_done)

    def _on_unawaited_done(self, call: asyncio.Future[Any]) -> None:
        if call.cancelled():
            return
        error = call.exception()
        state = self._state
        if isinstance(error, OSError) and not state.is_failed:
            if is_sound(error) and state.assigned_offset == state.log_end_offset:
                self._owner.directory_full(state.disk, error)  # a small file beside the log: no append is lost
            else:
                self.fail(error)

    async def handle_errors(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Awaits file work; an OSError marks the log directory and becomes KAFKA_STORAGE_ERROR."""
        state = self._state
        try:
            return await work
        except OSError as error:
            if is_sound(error):
                self._owner.directory_full(state.disk, error)
            elif not state.is_failed:
                self.fail(error)
            if is_shortage(error) and state.successor is None:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{state.topic_partition}: {error}") from error
            raise state.storage_error() from error

    def spawn(self, work: Coroutine[Any, Any, _T], name: str) -> asyncio.Task[_T]:
        """Starts `handle_errors` of the work as a task."""
        task = self._clock.spawn(self.handle_errors(work), name=f"{name} {self._state.topic_partition}")
        # A task that is cancelled before its first step never awaits the work, of which Python would warn.
        task.add_done_callback(lambda _: work.close())
        return task

"""The periodic work on the logs: retention, flushes by time, checkpoints, producer expiration, closing idle segments.

One task for each kind of work and each directory: a directory that hangs must not delay the others. What is done to one
log is in `storage/log`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.disk import Disk
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.storage.log_dirs.directory_access import DirectoryAccess
from ottla_broker.storage.log_dirs.log_checkpoints import LogCheckpoints
from ottla_broker.storage.log_dirs.log_table import LogTable
from ottla_broker.storage.log_dirs.settings import LogManagerSettings

_INITIAL_RETENTION_DELAY_S = 30.0
_FLUSH_CHECK_S = 1.0
_IDLE_SEGMENT_S = 300.0
"""A closed segment that nobody reads for this long is closed and its index unmapped."""

_LOGS_PER_TURN = 200
"""Most logs have nothing to delete, and looking at one takes some microseconds: others have the loop in between."""


class LogBackgroundTasks:
    """See the module. The tasks end with the clock, or when the access to the directories is closed."""

    def __init__(
        self,
        access: DirectoryAccess,
        table: LogTable,
        checkpoints: LogCheckpoints,
        clock: Clock,
        settings: LogManagerSettings,
    ) -> None:
        self._access = access
        self._table = table
        self._checkpoints = checkpoints
        self._clock = clock
        self._settings = settings
        self.producer_id_expiration_ms = settings.producer_id_expiration_ms
        """Dynamic: `settings` has the first value."""

    def start(self) -> None:
        """Starts all tasks."""
        settings, checkpoints = self._settings, self._checkpoints
        self._every(settings.producer_id_expiration_check_interval_ms, self._expire_producers)
        for path in self._access.paths:
            for interval_ms, work in (
                (settings.log_flush_offset_checkpoint_interval_ms, checkpoints.write_recovery_points),
                (settings.log_flush_start_offset_checkpoint_interval_ms, checkpoints.write_log_start_offsets),
                (settings.log_retention_check_interval_ms, self.delete_old_segments),
                (int(_FLUSH_CHECK_S * 1000), self.flush_due),
                (int(_IDLE_SEGMENT_S * 1000), self.close_idle_segments),
            ):
                delay_s = _INITIAL_RETENTION_DELAY_S if work == self.delete_old_segments else None
                self._every(interval_ms, partial(self._access.on_live, path, work), work.__name__, delay_s)

    def _every(
        self,
        interval_ms: int,
        work: Callable[[], Coroutine[Any, Any, object]],
        name: str = "",
        initial_delay_s: float | None = None,
    ) -> None:
        name = f"log manager: {name or work.__name__}"
        delay_s = interval_ms / 1000 if initial_delay_s is None else min(initial_delay_s, interval_ms / 1000)

        async def repeat() -> None:
            await self._clock.sleep(delay_s)
            while not self._access.is_closed:
                # A task of its own: the clock reports what it raises, and the next one runs all the same.
                await asyncio.wait([self._clock.spawn(work(), name=name)])
                await self._clock.sleep(interval_ms / 1000)

        self._clock.spawn(repeat(), name=f"{name}, every {interval_ms} ms")

    async def delete_old_segments(self, disk: Disk | None = None) -> int:
        """Applies retention to the logs of one directory, or of all. Returns the number of deleted segments."""
        deleted = 0
        for number, log in enumerate(list(self._table.current.values())):
            if number and not number % _LOGS_PER_TURN:
                await self._clock.sleep(0)
            if not log.state.is_failed and (disk is None or log.state.disk is disk):
                try:
                    deleted += await log.retention.delete_old_segments()
                except KafkaError:
                    continue  # the directory is offline or full now
        return deleted

    async def close_idle_segments(self, disk: Disk) -> None:
        """Closes the segments of one directory that nobody has read for a while."""
        for log in self._table.checkpointed_logs_in(disk):
            if len(log.state.segments) > 1 and not log.state.is_failed:
                await log.closer.close_idle_segments()

    async def _expire_producers(self) -> None:
        now = self._clock.now_ms()
        for log in list(self._table.current.values()):
            log.state.producers.remove_expired(now, self.producer_id_expiration_ms)

    async def flush_due(self, disk: Disk | None = None) -> None:
        """Flushes the logs, of one directory or of all, with unflushed records whose last flush is flush.ms ago.

        Every second, whatever log.flush.scheduler.interval.ms is: with its default, Apache Kafka never does it.
        """
        now = self._clock.now_ms()
        logs = list(self._table.current.values()) if disk is None else self._table.checkpointed_logs_in(disk)
        for log in logs:
            is_due = now - log.state.last_flush_ms >= log.state.config.flush_ms
            if is_due and not log.state.is_failed and log.state.assigned_offset > log.state.recovery_point:
                try:
                    await self._access.guarded(log.state.disk, log.flusher.flush())
                except KafkaError:
                    continue  # the directory is offline or full now

"""What is done on the logs again and again: retention, flushes by time, checkpoints, closing what nobody reads.

One task for each chore of each directory, since a directory may hang and the others must not wait for it. What a chore
does to one log stands in `maintenance.py`; the logs are the log manager's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.disk import Disk
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs.settings import LogManagerSettings

_FIRST_RETENTION_S = 30.0
_FLUSH_CHECK_S = 1.0
_IDLE_SEGMENT_S = 300.0
"""A closed segment that nobody reads for as long is closed, its index unmapped."""


class LogKeeper(Protocol):
    """What the chores ask of the log manager."""

    @property
    def is_closed(self) -> bool:
        """The broker stops: nothing is begun any more."""
        ...

    @property
    def paths(self) -> list[str]:
        """Every log directory."""
        ...

    @property
    def logs(self) -> list[Log]:
        """Those that are served."""
        ...

    def all_logs_in(self, disk: Disk) -> list[Log]:
        """Those of one directory, copies that are being made there included."""
        ...

    async def on_live(self, path: str, work: Callable[[Disk], Coroutine[Any, Any, object]]) -> None:
        """The work on one directory, when it is live; a failure takes it offline."""
        ...

    async def guarded(self, disk: Disk, work: Any) -> Any:
        """Awaits a call on a directory; its OSError becomes KAFKA_STORAGE_ERROR."""
        ...

    async def checkpoint_recovery_points(self, disk: Disk) -> bool: ...

    async def checkpoint_log_start_offsets(self, disk: Disk) -> bool: ...


class LogChores:
    """See the module. They end with the clock, or when the keeper is closed."""

    def __init__(self, keeper: LogKeeper, clock: Clock, settings: LogManagerSettings) -> None:
        self._keeper = keeper
        self._clock = clock
        self._settings = settings

    def start(self) -> None:
        settings, keeper = self._settings, self._keeper
        self._every(settings.producer_id_expiration_check_interval_ms, self._expire_producers)
        for path in keeper.paths:
            for interval_ms, chore in (
                (settings.log_flush_offset_checkpoint_interval_ms, keeper.checkpoint_recovery_points),
                (settings.log_flush_start_offset_checkpoint_interval_ms, keeper.checkpoint_log_start_offsets),
                (settings.log_retention_check_interval_ms, self.delete_old_segments),
                (int(_FLUSH_CHECK_S * 1000), self.flush_due),
                (int(_IDLE_SEGMENT_S * 1000), self.close_idle_segments),
            ):
                first_s = _FIRST_RETENTION_S if chore == self.delete_old_segments else None
                self._every(interval_ms, partial(keeper.on_live, path, chore), chore.__name__, first_s)

    def _every(
        self,
        interval_ms: int,
        chore: Callable[[], Coroutine[Any, Any, object]],
        name: str = "",
        first_s: float | None = None,
    ) -> None:
        name = f"log manager: {name or chore.__name__}"

        async def repeat() -> None:
            await self._clock.sleep(interval_ms / 1000 if first_s is None else min(first_s, interval_ms / 1000))
            while not self._keeper.is_closed:
                # A task of its own: the clock reports what it raises, and the next one comes all the same.
                await asyncio.wait([self._clock.spawn(chore(), name=name)])
                await self._clock.sleep(interval_ms / 1000)

        self._clock.spawn(repeat(), name=f"{name}, again and again")

    async def delete_old_segments(self, disk: Disk | None = None) -> int:
        """Retention, over the logs of one directory or of all; the number of segments deleted."""
        deleted = 0
        for log in self._keeper.logs:
            if not log.is_failed and (disk is None or log.disk is disk):
                try:
                    deleted += await log.delete_old_segments()
                except KafkaError:
                    continue  # told by `directory_failed`
        return deleted

    async def close_idle_segments(self, disk: Disk) -> None:
        """Of the logs of one directory: see `LogCloser.close_idle_segments`."""
        for log in self._keeper.all_logs_in(disk):
            if len(log.segments) > 1 and not log.is_failed:
                await log.close_idle_segments()

    async def _expire_producers(self) -> None:
        now = self._clock.now_ms()
        for log in self._keeper.logs:
            log.producers.remove_expired(now, self._settings.producer_id_expiration_ms)

    async def flush_due(self, disk: Disk | None = None) -> None:
        """flush.ms: logs with unflushed records whose last flush is that long ago, of one directory or of all.

        Looked at every second whatever log.flush.scheduler.interval.ms says: with its default Apache Kafka never does.
        """
        now = self._clock.now_ms()
        for log in self._keeper.logs if disk is None else self._keeper.all_logs_in(disk):
            is_due = now - log.last_flush_ms >= log.config.flush_ms
            if is_due and not log.is_failed and log.assigned_offset > log.recovery_point:
                try:
                    await self._keeper.guarded(log.disk, log.flush())
                except KafkaError:
                    continue  # told by `directory_failed`

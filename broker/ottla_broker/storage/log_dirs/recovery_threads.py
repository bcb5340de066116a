"""Where a broker's recoveries run, how many at once, and how far they are (KIP-25: num.recovery.threads.per.data.dir).

Short tails are scanned on the loop: a worker process takes longer to start. As soon as the tails of a directory are
longer together, its logs are recovered by jobs of the Workers, each directory on its own, as many at once as
num.recovery.threads.per.data.dir says. A job of a long log comes back after some segments and is sent again, so that
progress is told in the log and in /status while it goes on.

Not here: the scan itself (`recovery.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.disk import Disk
from ottla_broker.ports.workers import Workers
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.recovery import Recovered, recover_log, tail_bytes

RECOVERY_JOB = "recover-log"
_WORKER_RECOVERY_BYTES = 64 * 1024 * 1024
"""Longer tails are scanned in worker processes, so that the loop keeps answering."""

_JOB_BYTES = 256 * 1024 * 1024
"""After about so many bytes a job comes back to tell how far it is."""

_TELL_EVERY_S = 10.0


@dataclass(slots=True)
class DirectoryProgress:
    """One log directory that is being recovered: bytes of tails found, and scanned so far."""

    tail_bytes: int = 0
    scanned_bytes: int = 0
    told_at: float = 0.0
    uses_workers: bool = False


@dataclass(slots=True)
class LoadProgress:
    """How far loading is, for /status. Counts of logs; bytes that recoveries will read, have read, cut and dropped."""

    total: int = 0
    loaded: int = 0
    recovered: int = 0
    tail_bytes: int = 0
    scanned_bytes: int = 0
    cut_bytes: int = 0
    current: list[str] = field(default_factory=list)
    """Directories of the partitions being loaded."""
    directories: dict[str, DirectoryProgress] = field(default_factory=dict)
    """By path: the log directories that did not end in order."""


class LogRecovery:
    """The recoveries of one broker. `progress` is the log manager's."""

    def __init__(
        self,
        workers: Workers,
        clock: Clock,
        notice: Callable[[str], None],
        progress: LoadProgress,
        threads_per_directory: int,
    ) -> None:
        self._workers = workers
        self._clock = clock
        self._notice = notice
        self.progress = progress
        self._threads = max(1, threads_per_directory)
        self._slots: dict[str, asyncio.Semaphore] = {}

    async def survey(self, disk: Disk, logs: Sequence[tuple[str, int]]) -> None:
        """Before the logs of a directory are recovered: how much there is to read. Raises OSError.

        `logs`: (partition directory, recovery point).
        """
        found = DirectoryProgress(told_at=self._clock.monotonic())
        for name, recovery_point in logs:
            found.tail_bytes += await tail_bytes(disk, name, recovery_point)
        found.uses_workers = found.tail_bytes >= _WORKER_RECOVERY_BYTES
        self.progress.directories[disk.path] = found
        self.progress.tail_bytes += found.tail_bytes
        if found.uses_workers:
            self._notice(
                f"log directory {disk.path} was not closed in order: {len(logs)} logs to recover, "
                f"{_mib(found.tail_bytes)} MiB to read, {self._threads} at once"
            )

    async def run(
        self, disk: Disk, name: str, config: LogConfig, may_have_gaps: bool | None, recovery_point: int
    ) -> Recovered:
        """Recovers one log from `recovery_point` on, here or in a worker. Raises OSError, RuntimeError (its worker
        died)."""
        directory = self.progress.directories.setdefault(disk.path, DirectoryProgress())
        arguments = (name, recovery_point, config.index_interval_bytes, may_have_gaps)
        if directory.uses_workers or await tail_bytes(disk, name, recovery_point) >= _WORKER_RECOVERY_BYTES:
            slots = self._slots.setdefault(disk.path, asyncio.Semaphore(self._threads))
            async with slots:
                found = await self._in_worker(disk, directory, arguments)
        else:
            found = await recover_log(disk, *arguments)
            self._count(directory, found.scanned_bytes)
        self.progress.recovered += 1
        self.progress.cut_bytes += found.cut_bytes
        for repair in found.repairs:
            self._notice(repair)
        if found.cut_bytes:
            self._notice(
                f"recovery of {name} in {disk.path}: {found.cut_bytes} bytes after offset {found.next_offset} were not "
                f"whole and have been cut off, {found.dropped_segments} segments with them"
            )
        return found

    async def _in_worker(
        self, disk: Disk, directory: DirectoryProgress, arguments: tuple[str, int, int, bool | None]
    ) -> Recovered:
        found: Recovered | None = None
        while found is None or found.resume_at is not None:
            before = 0 if found is None else found.scanned_bytes
            found = await self._workers.run(RECOVERY_JOB, disk.path, *arguments, found, _JOB_BYTES)
            self._count(directory, found.scanned_bytes - before)
            now = self._clock.monotonic()
            if now - directory.told_at >= _TELL_EVERY_S:
                directory.told_at = now
                self._notice(
                    f"recovery of log directory {disk.path}: {_mib(directory.scanned_bytes)} of "
                    f"{_mib(directory.tail_bytes)} MiB read, {self.progress.loaded} of {self.progress.total} logs "
                    f"of the broker loaded, now {arguments[0]}"
                )
        return found

    def _count(self, directory: DirectoryProgress, scanned_bytes: int) -> None:
        directory.scanned_bytes += scanned_bytes
        self.progress.scanned_bytes += scanned_bytes


def _mib(size: int) -> int:
    return size // (1024 * 1024)

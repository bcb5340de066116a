"""Runs the recoveries of a broker: where, how many at a time, and how far they are.

Short tails are scanned on the loop: a worker process takes longer to start. When the tails of a directory are longer
together, worker jobs recover its logs, as many at a time for each directory as num.recovery.threads.per.data.dir says.
The job of a long log returns after some segments and is started again, so that the log and /status report progress.

Not here: the scan itself (`storage/log/recovery.py`).
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
"""After about this many bytes a job returns to report its progress."""

_REPORT_INTERVAL_S = 10.0


@dataclass(slots=True)
class DirectoryProgress:
    """One log directory that is being recovered: bytes of the tails of its logs, and bytes scanned so far."""

    tail_bytes: int = 0
    scanned_bytes: int = 0
    reported_at: float = 0.0
    uses_workers: bool = False


@dataclass(slots=True)
class LoadProgress:
    """How far loading is, for /status: numbers of logs; bytes that recoveries have to scan, have scanned, have cut."""

    total: int = 0
    loaded: int = 0
    recovered: int = 0
    tail_bytes: int = 0
    scanned_bytes: int = 0
    cut_bytes: int = 0
    current: list[str] = field(default_factory=list)
    """The names of the partition directories that are being loaded."""
    directories: dict[str, DirectoryProgress] = field(default_factory=dict)
    """By path: the log directories that were not shut down cleanly."""


class RecoveryThreads:
    """See the module. `progress` is updated while recoveries run."""

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

    async def measure(self, disk: Disk, logs: Sequence[tuple[str, int]]) -> None:
        """Measures how much there is to scan in a directory, before its logs are recovered. Raises OSError.

        `logs`: (name of the partition directory, recovery point).
        """
        found = DirectoryProgress(reported_at=self._clock.monotonic())
        for name, recovery_point in logs:
            found.tail_bytes += await tail_bytes(disk, name, recovery_point)
        found.uses_workers = found.tail_bytes >= _WORKER_RECOVERY_BYTES
        self.progress.directories[disk.path] = found
        self.progress.tail_bytes += found.tail_bytes
        if found.uses_workers:
            self._notice(
                f"log directory {disk.path} was not shut down cleanly: {len(logs)} logs to recover, "
                f"{_mib(found.tail_bytes)} MiB to read, {self._threads} at a time"
            )

    async def run(self, disk: Disk, name: str, config: LogConfig, gap_limit: int, recovery_point: int) -> Recovered:
        """Recovers one log from `recovery_point` on, here or in a worker.

        Raises:
            OSError: a call on the directory failed.
            RuntimeError: the worker died.
        """
        directory = self.progress.directories.setdefault(disk.path, DirectoryProgress())
        arguments = (name, recovery_point, config.index_interval_bytes, gap_limit)
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
                f"intact and are truncated, with {found.dropped_segments} segments"
            )
        return found

    async def _in_worker(
        self, disk: Disk, directory: DirectoryProgress, arguments: tuple[str, int, int, int]
    ) -> Recovered:
        found: Recovered | None = None
        while found is None or found.resume_at is not None:
            before = 0 if found is None else found.scanned_bytes
            found = await self._workers.run(RECOVERY_JOB, disk.path, *arguments, found, _JOB_BYTES)
            self._count(directory, found.scanned_bytes - before)
            now = self._clock.monotonic()
            if now - directory.reported_at >= _REPORT_INTERVAL_S:
                directory.reported_at = now
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

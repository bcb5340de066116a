"""Monitors the log directories of a broker: free space, vanished mounts, calls that hang, and offline directories.

One task per directory, so that one that hangs does not delay the others:

    live      asks for the free bytes on the lane of the Disk, which also finds a vanished or read-only mount. When the
              lane does not answer for half of the timeout, a probe runs beside it; both together decide that it hangs
    offline   waits until the thread of the old Disk has ended, probes the path, and has the directory reopened

Not here: the decisions (`states.py`), what follows from them (`directory_access.py`), loading the logs again
(`reopening.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.disk import LogDisk
from ottla_broker.storage.files.checkpoints import CheckpointError
from ottla_broker.storage.log_dirs.log_directory import LogDirectoryError
from ottla_broker.storage.log_dirs.states import (
    DirectoryDecision,
    DirectoryStates,
    decide_after_failure,
    decide_after_silence,
    decide_after_space_check,
    space_check_interval_s,
)

_CHECKS_PER_TIMEOUT = 8
"""How often within the timeout a directory that does not answer is checked."""

_REOPEN_INTERVAL_S = 5.0
_MARGIN_PART = 16
"""A full directory is online again once a sixteenth of the reserve more is free than the reserve."""


class DirectoryMonitor:
    """See the module. Call `start` once the logs are loaded; the tasks end with the clock.

    Args:
        disk_of: the Disk of a directory now.
        apply: records a decision about a live directory, which may take it offline.
        reopen: loads an offline directory from a new Disk; raises what keeps it offline.
        notice: writes a line to the broker's log.
        timeout_s: ottla.log.dir.io.timeout.ms.
    """

    def __init__(
        self,
        states: DirectoryStates,
        clock: Clock,
        *,
        disk_of: Callable[[str], LogDisk],
        apply: Callable[[str, DirectoryDecision], None],
        reopen: Callable[[str, LogDisk], Awaitable[None]],
        notice: Callable[[str], None],
        timeout_s: float,
    ) -> None:
        self._states = states
        self._clock = clock
        self._disk_of = disk_of
        self._apply = apply
        self._reopen = reopen
        self._notice = notice
        self._timeout_s = timeout_s

    def start(self) -> None:
        """Starts the tasks; directories that are offline already are tried too."""
        for status in self._states:
            self._clock.spawn(self._monitor(status.path), name=f"monitor of {status.path}")

    async def run_with_timeout(self, path: str, work: Callable[[], Awaitable[Any]]) -> Any:
        """Awaits work on a directory; when the directory does not answer in time it goes offline, and the calls of the
        work fail."""
        task = self._clock.spawn(_outcome(work), name=f"work on {path}")
        try:
            await self._until_done(path, self._disk_of(path), task)
            value, error = task.result()
        finally:
            task.cancel()
        if error is not None:
            raise error
        return value

    async def _monitor(self, path: str) -> None:
        reported = ""
        while True:
            status = self._states[path]
            if status.is_live:
                reported = ""
                await self._check_space(path)
                await self._clock.sleep(space_check_interval_s(status.free_bytes, self._states.reserve_bytes))
                continue
            await self._clock.sleep(_REOPEN_INTERVAL_S)
            reason = await self._try_to_reopen(path)
            if reason and reason != reported:
                self._notice(f"log directory {path} stays offline: {reason}")
                reported = reason

    async def _check_space(self, path: str) -> None:
        disk = self._disk_of(path)
        space = disk.check_space()
        await self._until_done(path, disk, space)
        error = None if space.cancelled() else space.exception()
        if space.cancelled() or not self._states.is_live(path) or self._disk_of(path) is not disk:
            return
        if error is not None:
            decision = decide_after_failure(error) if isinstance(error, OSError) else None
            if decision is not None:
                self._apply(path, decision)
            return
        status = self._states[path]
        status.free_bytes, status.total_bytes = space.result()
        reserve = self._states.reserve_bytes
        margin = max(reserve // _MARGIN_PART, 1)
        self._apply(
            path,
            decide_after_space_check(status.state, status.free_bytes, reserve_bytes=reserve, margin_bytes=margin),
        )

    async def _until_done(self, path: str, disk: LogDisk, work: asyncio.Future[Any]) -> None:
        """Returns when `work` is done. Decides about the directory while neither its lane nor a probe answers."""
        probe: asyncio.Future[None] | None = None
        probed_at = 0.0
        while not await self._is_done_within(work, self._timeout_s / _CHECKS_PER_TIMEOUT):
            silent_s = disk.silent_s()
            if probe is not None and probe.done():
                error = probe.exception()
                probe = None
                decision = decide_after_failure(error) if isinstance(error, OSError) else None
                if decision is not None:
                    self._apply(path, decision)
                    continue
            if silent_s < self._timeout_s / 2:
                continue
            now = self._clock.monotonic()
            if probe is None:
                probe, probed_at = disk.probe(), now
            decision = decide_after_silence(silent_s, now - probed_at, self._timeout_s)
            if decision is not None:
                self._apply(path, decision)

    async def _is_done_within(self, work: asyncio.Future[Any], seconds: float) -> bool:
        """Waits for the work, at most `seconds`."""
        if not work.done():
            timer = self._clock.create_future()
            handle = self._clock.call_later(seconds, _finish, timer)
            await asyncio.wait([work, timer], return_when=asyncio.FIRST_COMPLETED)
            handle.cancel()
        return work.done()

    async def _try_to_reopen(self, path: str) -> str:
        """Returns why the directory stays offline, "" when it is live."""
        if not self._disk_of(path).has_ended:
            return "a call on it has still not returned"
        disk = self._disk_of(path).reopened()
        try:
            # Without a timeout: a second probe beside one that hangs would find out nothing new.
            await disk.probe()
            work = self._clock.spawn(_outcome(partial(self._reopen, path, disk)), name=f"reopening of {path}")
            while not await self._is_done_within(work, self._timeout_s / _CHECKS_PER_TIMEOUT):
                if disk.silent_s() >= self._timeout_s:
                    disk.take_offline(OSError(f"no answer for {disk.silent_s():.0f} s"))
            _, failure = work.result()
            if failure is not None:
                raise failure
        except (OSError, LogDirectoryError, CheckpointError, RuntimeError) as error:  # RuntimeError: a worker died
            disk.take_offline(error if isinstance(error, OSError) else OSError(str(error)))
            return str(error)
        return ""


def _finish(timer: asyncio.Future[None]) -> None:
    if not timer.done():
        timer.set_result(None)


async def _outcome(work: Callable[[], Awaitable[Any]]) -> tuple[Any, Exception | None]:
    """The exception as a value, so that it is raised where it is awaited and reported nowhere else."""
    try:
        return await work(), None
    except Exception as error:
        return None, error

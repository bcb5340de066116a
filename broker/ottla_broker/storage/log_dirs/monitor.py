"""Looks after the log directories of a broker: room, mounts, silence, and the return of those that are offline.

One task per directory, so that one that hangs keeps nobody else waiting:

    live      asks for the free bytes on the lane, which also finds a vanished or read-only mount; when the lane is
              silent for half of the timeout, a probe is sent beside it, and both together decide that it hangs
    offline   waits until the old lane's thread has ended, probes the path, and has the logs loaded again

What follows from a state stands in `directories.py`, what is done to the logs in `log_manager.py`.
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
    DirectoryStates,
    Verdict,
    after_failure,
    after_look,
    after_silence,
    look_interval_s,
)

_SILENCE_LOOKS = 8
"""How often within the timeout a silent directory is looked at."""

_RETURN_INTERVAL_S = 5.0
_ROOM_MARGIN = 16
"""A full directory is online again once a sixteenth of the reserve more is free than the reserve."""


class DirectoryWatch:
    """See the module. `start` once the logs are loaded; the tasks end with the clock.

    Args:
        disk_of: the Disk of a directory as of now.
        judged: takes a decision down for a live directory, which may take it offline.
        bring_back: has an offline directory loaded from a new Disk; raises what keeps it from coming back.
        notice: takes a line for the broker's log.
        timeout_s: ottla.log.dir.io.timeout.ms.
    """

    def __init__(
        self,
        states: DirectoryStates,
        clock: Clock,
        *,
        disk_of: Callable[[str], LogDisk],
        judged: Callable[[str, Verdict], None],
        bring_back: Callable[[str, LogDisk], Awaitable[None]],
        notice: Callable[[str], None],
        timeout_s: float,
    ) -> None:
        self._states = states
        self._clock = clock
        self._disk_of = disk_of
        self._judged = judged
        self._bring_back = bring_back
        self._notice = notice
        self._timeout_s = timeout_s

    def start(self) -> None:
        """Begins to look, at once for directories that are offline already."""
        for status in self._states:
            self._clock.spawn(self._watch(status.path), name=f"watch over {status.path}")

    async def guard(self, path: str, work: Callable[[], Awaitable[Any]]) -> Any:
        """Awaits work on a directory, which is given up when it is silent for too long; then the work's calls fail."""
        task = self._clock.spawn(_outcome(work), name=f"work on {path}")
        try:
            await self._until_done(path, self._disk_of(path), task)
            value, error = task.result()
        finally:
            task.cancel()
        if error is not None:
            raise error
        return value

    async def _watch(self, path: str) -> None:
        told = ""
        while True:
            status = self._states[path]
            if status.is_live:
                told = ""
                await self._look(path)
                await self._clock.sleep(look_interval_s(status.free_bytes, self._states.reserve_bytes))
                continue
            await self._clock.sleep(_RETURN_INTERVAL_S)
            reason = await self._try_to_return(path)
            if reason and reason != told:
                self._notice(f"log directory {path} stays offline: {reason}")
                told = reason

    async def _look(self, path: str) -> None:
        disk = self._disk_of(path)
        look = disk.look()
        await self._until_done(path, disk, look)
        error = None if look.cancelled() else look.exception()
        if look.cancelled() or not self._states.is_live(path) or self._disk_of(path) is not disk:
            return
        if error is not None:
            verdict = after_failure(error) if isinstance(error, OSError) else None
            if verdict is not None:
                self._judged(path, verdict)
            return
        status = self._states[path]
        status.free_bytes, status.total_bytes = look.result()
        reserve = self._states.reserve_bytes
        self._judged(
            path,
            after_look(
                status.state, status.free_bytes, reserve_bytes=reserve, margin_bytes=max(reserve // _ROOM_MARGIN, 1)
            ),
        )

    async def _until_done(self, path: str, disk: LogDisk, work: asyncio.Future[Any]) -> None:
        """Returns when `work` is done. The directory is judged when its lane and a probe say nothing for too long."""
        probe: asyncio.Future[None] | None = None
        probed_at = 0.0
        while not await self._is_done_within(work, self._timeout_s / _SILENCE_LOOKS):
            silent_s = disk.silent_s()
            if probe is not None and probe.done():
                error = probe.exception()
                probe = None
                verdict = after_failure(error) if isinstance(error, OSError) else None
                if verdict is not None:
                    self._judged(path, verdict)
                    continue
            if silent_s < self._timeout_s / 2:
                continue
            now = self._clock.monotonic()
            if probe is None:
                probe, probed_at = disk.probe(), now
            verdict = after_silence(silent_s, now - probed_at, self._timeout_s)
            if verdict is not None:
                self._judged(path, verdict)

    async def _is_done_within(self, work: asyncio.Future[Any], seconds: float) -> bool:
        """Waits for the work, `seconds` at most."""
        if not work.done():
            timer = self._clock.create_future()
            handle = self._clock.call_later(seconds, _finish, timer)
            await asyncio.wait([work, timer], return_when=asyncio.FIRST_COMPLETED)
            handle.cancel()
        return work.done()

    async def _try_to_return(self, path: str) -> str:
        """Why the directory cannot come back yet, "" when it has."""
        if not self._disk_of(path).has_ended:
            return "a call on it has still not returned"
        disk = self._disk_of(path).reopened()
        try:
            # One that does not answer at all is waited for here: a second probe would say no more.
            await disk.probe()
            work = self._clock.spawn(_outcome(partial(self._bring_back, path, disk)), name=f"return of {path}")
            while not await self._is_done_within(work, self._timeout_s / _SILENCE_LOOKS):
                if disk.silent_s() >= self._timeout_s:
                    disk.give_up(OSError(f"no answer for {disk.silent_s():.0f} s"))
            _, failure = work.result()
            if failure is not None:
                raise failure
        except (OSError, LogDirectoryError, CheckpointError, RuntimeError) as error:  # RuntimeError: a worker died
            disk.give_up(error if isinstance(error, OSError) else OSError(str(error)))
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

"""The loop of a task that reconciles one object: when it is woken, and when its own time has come.

A failure backs off for its own object only, from 1 s to 5 min. A change of the document ends the back-off, and nothing
else does: events of pods would have a write that the API server refuses repeated with each of them.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ottla_operator.ports import ApiError
from ottla_operator.runtime.back_off import back_off_s

STUCK_S = 600.0
"""A task that has made no step for this long is stuck."""


@dataclass(slots=True)
class RunningTask:
    """A task that runs. `dirty`: set by who wakes it. `step_at`: when it made its last step; inf while it waits.

    `corrected`: set when the document has changed, which may end what a write was refused for.
    """

    task: asyncio.Task[None]
    dirty: asyncio.Event
    step_at: float
    corrected: asyncio.Event = field(default_factory=asyncio.Event)


async def reconcile_forever(
    what: str,
    running: Callable[[], RunningTask],
    may_write: Callable[[], Awaitable[None]],
    reconcile: Callable[[], Awaitable[float | None]],
    gone: Callable[[], Awaitable[None]],
    log: logging.Logger,
) -> None:
    """Until it is cancelled.

    Args:
        what: the object, for the log.
        running: its own task.
        reconcile: one reconciliation; gives the seconds until the next one, None when the object is gone.
        gone: called then; another object of its name may be created.
    """
    loop = asyncio.get_running_loop()
    failures = 0
    while True:
        own = running()
        own.step_at = math.inf  # waiting for the lease is not being stuck
        await may_write()
        own.step_at = loop.time()
        own.dirty.clear()
        own.corrected.clear()
        try:
            pause = await reconcile()
            failures = 0
        except ApiError as error:
            failures += 1
            pause = back_off_s(failures)
            log.warning("%s: %s; again in %.0f s", what, error, pause)
            if await _is_set_within(own.corrected, pause):
                failures = 0
            continue
        except Exception:  # a bug; the other objects go on
            failures += 1
            pause = back_off_s(failures)
            log.exception("%s: reconciliation failed; again in %.0f s", what, pause)
            await asyncio.sleep(pause)
            continue
        if pause is None:
            await gone()
            own.step_at = math.inf
            await own.dirty.wait()
            continue
        try:
            async with asyncio.timeout(pause):
                await own.dirty.wait()
        except TimeoutError:
            pass


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True

"""The Clock port: time, timers, tasks, seeded randomness and uuids of one broker.

Tasks belong to the clock because a broker that halts (or that the simulator crashes) takes all of its timers and
tasks with it: `cancel_all` is what makes "halt stops a broker, never the process" true.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, Protocol


class Timer(Protocol):
    """A pending callback; `cancel` is idempotent and safe after it has run."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Time and scheduling. All methods are called on the broker's event loop."""

    random: random.Random
    """The only source of randomness; seeded in the simulator."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the Unix epoch (record timestamps, znode timestamps)."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, for durations and deadlines."""
        ...

    def uuid4(self) -> uuid.UUID:
        """A random uuid (topic ids, directory ids)."""
        ...

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Runs `callback(*args)` once after `delay_s` seconds."""
        ...

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        """Runs `callback(*args)` in the next turn of the loop, after everything already queued."""
        ...

    def create_future(self) -> asyncio.Future[Any]: ...

    def spawn(self, coroutine: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Starts a task that `cancel_all` ends.

        An exception that leaves the task is reported to `on_task_failure`: nothing dies in silence.
        """
        ...

    on_task_failure: Callable[[str, BaseException], None]
    """Called with (task name, exception) when a spawned task ends with an exception nobody awaited."""

    async def sleep(self, delay_s: float) -> None: ...

    def cancel_all(self) -> None:
        """Cancels every timer and task given out by this clock."""
        ...

"""The Clock port: time, timers, tasks, randomness and uuids of one broker.

The clock owns the tasks of its broker, so that `cancel_all` can end a broker that halts, or that the simulator crashes,
without ending the process.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

_Result = TypeVar("_Result")


class Timer(Protocol):
    """A pending callback. `cancel` is idempotent, also after the callback has run."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Time and scheduling. All methods are called on the broker's event loop."""

    random: random.Random
    """The only source of randomness; the simulator seeds it."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the Unix epoch (record timestamps, znode timestamps)."""
        ...

    def monotonic(self) -> float:
        """Monotonic time in seconds, for durations and deadlines."""
        ...

    def uuid4(self) -> uuid.UUID:
        """A random uuid (topic ids, directory ids)."""
        ...

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Runs `callback(*args)` once after `delay_s` seconds."""
        ...

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        """Runs `callback(*args)` in the next turn of the loop, after everything that is queued already."""
        ...

    def call_after_answers(self, callback: Callable[..., object], *args: Any) -> None:
        """The same for work that a client does not wait for, when its answer is sent in this turn of the loop.

        The loop gives up its processor once before: a client of the same machine that the answer has woken there runs
        first."""
        ...

    def create_future(self) -> asyncio.Future[Any]:
        """A future of the broker's event loop."""
        ...

    async def in_thread(self, call: Callable[..., _Result], *args: Any) -> _Result:
        """Runs a call that blocks for a moment, such as reading a small file, beside the loop."""
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Starts a task that `cancel_all` cancels. Reports an exception that ends it to `on_task_failure`."""
        ...

    on_task_failure: Callable[[str, BaseException], None]
    """Called with the name of a task and the exception that ended it."""

    async def sleep(self, delay_s: float) -> None:
        """Returns after `delay_s` seconds."""
        ...

    def cancel_all(self) -> None:
        """Cancels every timer and task of this clock."""
        ...

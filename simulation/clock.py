"""The simulated Clock: virtual time. Every timer and task belongs to the process that created it.

A crash needs no code here: the loop drops the callbacks of a dead process (see `simulation.loop`). `cancel_all` is for
a broker that halts itself: its tasks are cancelled and run their `finally`.
A task that ends with an unexpected error fails the run: the broker logs it (see `simulation.logs`).
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ottla_broker.ports.clock import Timer
from simulation.handle import Handle
from simulation.world import EPOCH_MS, SimulatedProcess

_Result = TypeVar("_Result")


class _Timer:
    """A timer that leaves its clock's table when it runs or is cancelled."""

    __slots__ = ("_clock", "_handle", "_key")

    def __init__(self, clock: SimulatedClock, key: int, handle: Handle) -> None:
        self._clock = clock
        self._key = key
        self._handle = handle

    def cancel(self) -> None:
        self._handle.cancel()
        self._clock._timers.pop(self._key, None)


class SimulatedClock:
    """The Clock of one process. Wall clocks of different machines differ by a seeded, constant skew."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process
        self._loop = process.world.loop
        self.random = process.world.stream(f"clock/{process.name}")
        self._timers: dict[int, _Timer] = {}
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._next_key = 0
        self._is_cancelled = False
        self.on_task_failure: Callable[[str, BaseException], None] = self._report

    def now_ms(self) -> int:
        return EPOCH_MS + self._process.machine.clock_skew_ms + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()

    def uuid4(self) -> uuid.UUID:
        return uuid.UUID(int=self.random.getrandbits(128), version=4)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
        self._next_key += 1
        key = self._next_key

        def run() -> None:
            self._timers.pop(key, None)
            self._run(callback, args)

        timer = _Timer(self, key, self._process.call_at(self._loop.time() + max(delay_s, 0.0), run))
        self._timers[key] = timer
        return timer

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self._process.call_soon(self._run, callback, args)

    call_after_answers = call_soon

    def create_future(self) -> asyncio.Future[Any]:
        return self._loop.create_future()

    async def in_thread(self, call: Callable[..., _Result], *args: Any) -> _Result:
        return call(*args)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        self._next_key += 1
        key = self._next_key
        task = self._process.spawn(coroutine, name=name)
        self._tasks[key] = task

        def done(ended: asyncio.Task[Any]) -> None:
            self._tasks.pop(key, None)
            if ended.cancelled():
                return
            error = ended.exception()
            if error is not None and not self._is_cancelled:
                self.on_task_failure(name, error)

        task.add_done_callback(done, context=self._process.context)
        if self._is_cancelled:
            task.cancel()
        return task

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)

    def cancel_all(self) -> None:
        self._is_cancelled = True
        for timer in list(self._timers.values()):
            timer.cancel()
        for task in list(self._tasks.values()):
            task.cancel()

    def _run(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        if not self._is_cancelled:
            callback(*args)

    def _report(self, name: str, error: BaseException) -> None:
        logging.getLogger("simulation").error("task %s failed", name, exc_info=error)

"""The Clock port on a running asyncio loop (uvloop or the standard one)."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
import uuid
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from ottla_broker.ports.clock import Timer

_Result = TypeVar("_Result")


def _log_task_failure(name: str, error: BaseException) -> None:
    logging.getLogger("ottla.clock").error("task %s ended with an error", name, exc_info=error)


class LoopClock:
    """See `ottla_broker.ports.clock.Clock`. Used on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None, *, seed: int | None = None) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self.random = random.Random(seed)
        self.on_task_failure: Callable[[str, BaseException], None] = _log_task_failure
        self._tasks: dict[asyncio.Task[Any], str] = {}
        self._is_cancelled = False
        self._after_answers: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self.monotonic = time.monotonic  # without a wrapper: the hot path calls it twice per request

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def uuid4(self) -> uuid.UUID:
        return uuid.uuid4()

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
        return self._loop.call_later(delay_s, self._run, callback, args)

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self._loop.call_soon(self._run, callback, args)

    def call_after_answers(self, callback: Callable[..., object], *args: Any) -> None:
        if not self._after_answers:
            self._loop.call_soon(self._run_after_answers)
        self._after_answers.append((callback, args))

    def create_future(self) -> asyncio.Future[Any]:
        return self._loop.create_future()

    async def in_thread(self, call: Callable[..., _Result], *args: Any) -> _Result:
        return await self._loop.run_in_executor(None, partial(call, *args))

    def spawn(self, coroutine: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        task = self._loop.create_task(coroutine, name=name)
        self._tasks[task] = name
        task.add_done_callback(self._on_task_done)
        if self._is_cancelled:
            task.cancel()
        return task

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)

    def cancel_all(self) -> None:
        self._is_cancelled = True
        for task in list(self._tasks):
            task.cancel()

    def _run(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        # The timers of a halted broker stay in the loop's heap; they do nothing.
        if not self._is_cancelled:
            callback(*args)

    def _run_after_answers(self) -> None:
        os.sched_yield()
        waiting, self._after_answers = self._after_answers, []
        for callback, args in waiting:
            self._loop.call_soon(self._run, callback, args)

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        name = self._tasks.pop(task, "")
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not self._is_cancelled:
            self.on_task_failure(name, error)

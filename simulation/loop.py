"""An asyncio event loop with virtual time: no selector, no threads, one deterministic order.

Callbacks run in the order in which they became ready. When none is ready, time jumps to the next timer; timers of the
same instant fire in the order of creation. There are no random numbers here: the seeded delays of the simulated ports
decide what is concurrent, so the order of a run is a function of its seed.

Ownership: a callback belongs to the simulated process in its context (`PROCESS`). Tasks and timers inherit the context
of their creator, so everything that a broker starts, by the Clock port or by asyncio, belongs to its process. When the
process is dead, the loop drops its callbacks without running them, as kill -9 does: no `finally`, no `except`.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from asyncio import base_events
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from simulation.handle import Handle

LIVELOCK_CALLBACKS = 2_000_000
"""So many callbacks without a step of virtual time are taken for a livelock."""


class Owner(Protocol):
    """What the loop needs to know of a simulated process."""

    alive: bool


PROCESS: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("simulation.process", default=None)


VIRTUAL_LIMIT_S = 3600.0
"""No run lasts longer: one that still waits then waits for something that never comes."""


class DeadlockError(Exception):
    """Nothing is ready and no timer is pending, yet the run is not over. The message lists the waiting tasks."""


class LivelockError(Exception):
    """Callbacks run for ever, while virtual time stands still or beyond VIRTUAL_LIMIT_S."""


class VirtualTimeLoop(base_events.BaseEventLoop):
    """The event loop of one simulated run. `time()` starts at 0.0 and only a jump to a timer moves it."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._queue: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        self._sequence = 0
        self._callbacks_at_now = 0
        self.callbacks_run = 0
        self.has_no_limit = False
        self._has_spent = False
        self.set_debug(False)
        self.get_debug = bool  # type: ignore[method-assign]  # asked for every future: False, at C speed

    def spend(self, seconds: float) -> None:
        """The callback that runs takes this long: nothing else happens meanwhile, as in a process of one thread.

        From then on timers that have become due are looked at between two turns, as a real loop looks at its sockets,
        and not only when nothing else is ready.
        """
        self._now += seconds
        self._callbacks_at_now = 0
        self._has_spent = True

    # -- what BaseEventLoop asks of a loop --------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        handle = Handle((callback, args, contextvars.copy_context() if context is None else context))
        self._queue.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        raise RuntimeError("there are no threads in a simulated run")

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        raise RuntimeError("there are no threads in a simulated run; use the Workers port")

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        # A cancelled timer stays in the heap until its time comes; it is skipped there.
        handle = Handle((callback, args, contextvars.copy_context() if context is None else context))
        self._sequence += 1
        heapq.heappush(self._timers, (when, self._sequence, handle))
        return handle

    def _write_to_self(self) -> None:
        raise RuntimeError("there are no threads in a simulated run")

    def _process_events(self, event_list: Any) -> None:
        raise RuntimeError("there is no selector in a simulated run")

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        """A generator that nobody holds any more is closed by a task, as asyncio does from any thread.

        Of a process that dies first nothing is left but the generator, which runs nothing.
        """
        self._asyncgens.discard(agen)  # type: ignore[attr-defined]
        if not self.is_closed():
            self.call_soon(self._close_generator, agen)

    def _close_generator(self, agen: Any) -> None:
        self.create_task(agen.aclose())

    def close(self) -> None:
        self._queue.clear()
        self._timers.clear()
        super().close()

    # -- one turn ---------------------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        """Runs turn after turn until somebody stops the loop."""
        queue = self._queue
        popleft = queue.popleft
        process_of = PROCESS
        while True:
            if not queue:
                self._advance()
            elif self._has_spent:
                self._queue_due()
            ran = 0
            for _ in range(len(queue)):
                callback, args, context = popleft()
                if callback is None:
                    continue
                owner = context.get(process_of)
                if owner is not None and not owner.alive:
                    continue
                ran += 1
                try:
                    context.run(callback, *args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    about = {"message": f"Exception in callback {callback!r}", "exception": error}
                    self.call_exception_handler(about)
            self.callbacks_run += ran
            self._callbacks_at_now += ran
            if self._callbacks_at_now > LIVELOCK_CALLBACKS:
                raise LivelockError(f"{self._callbacks_at_now} callbacks at virtual time {self._now:.6f}")
            if self._stopping:  # type: ignore[attr-defined]
                return

    def _advance(self) -> None:
        """Moves every timer of the next instant to the queue, jumping there when it lies ahead."""
        timers, queue = self._timers, self._queue
        while timers:
            when, _, handle = heapq.heappop(timers)
            if handle[0] is not None:
                break
        else:
            if self._stopping:  # type: ignore[attr-defined]
                return
            raise DeadlockError(self._describe_pending())
        if when > VIRTUAL_LIMIT_S and not self.has_no_limit:
            raise LivelockError(f"virtual time passes {VIRTUAL_LIMIT_S} s; {self._describe_pending()}")
        now = self._now
        if when > now:
            self._now = now = when
            self._callbacks_at_now = 0
        # `<= now`, not `== when`: timers that were due in the past run in the order they were made, too.
        queue.append(handle)
        while timers and timers[0][0] <= now:
            queue.append(heapq.heappop(timers)[2])

    def _queue_due(self) -> None:
        timers, now, queue = self._timers, self._now, self._queue
        while timers and timers[0][0] <= now:
            queue.append(heapq.heappop(timers)[2])

    def _describe_pending(self) -> str:
        lines = sorted(
            f"  {task.get_name()}: {task.get_coro()!r}" for task in asyncio.all_tasks(self) if not task.done()
        )
        waiting = "\n".join(lines) or "  (none)"
        return f"nothing is ready and no timer is pending at virtual time {self._now:.6f}; tasks that wait:\n{waiting}"

"""The I/O lane: one thread per log directory, with a queue of calls, whose results complete on the event loop.

The calls of one turn of the loop enter the queue together, in order; the thread takes everything that waits there at
once. Results return by one `call_soon_threadsafe` per run of `lane_calls.py`, or per few megabytes of it.

When the lane is idle and the turn has only appends, of no more than LOOP_BYTES, they are written on the loop at the end
of the turn: that saves the way to the thread and back, and the bytes are still in the cache of the processor that has
received and checked them. It needs a loop which goes on when the write is stuck (`event_loop.py`); the thread that was
stuck then is the lane's for these calls.

A slow or hung disk blocks this lane and nothing else. `silent_s` returns how long the call in progress has taken, and
`take_offline` fails everything that waits, without waiting for it. Not here: the calls themselves and their failures
(`lane_calls.py`), opening, locking, pins (`disk.py`).
"""

from __future__ import annotations

import asyncio
import errno
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from ottla_broker.adapters.lane_calls import POST_BYTES, LaneCalls, LaneFile, Result, Work
from ottla_broker.ports.disk import Buffer

LOOP_BYTES = 896 * 1024
"""Appends of one turn that are larger go to the thread, so that the loop can receive meanwhile. A full batch of
librdkafka (1 MB) is larger, a request of Java's producer with batches of many partitions mostly not (decision 100)."""

SLOW_FACTOR = 50
SLOW_S = 5.0
"""See `time_on_thread_s`."""

_JOIN_S = 5.0
"""How long `close` waits for the call in progress; a hung disk keeps its thread, files and lock."""


def time_on_thread_s(write_s: float) -> float:
    """For how long the thread makes all calls of a directory after a write on the loop was stuck for `write_s` seconds.

    A short pause of the kernel costs the directory little, and a hung disk the loop little.

    >>> time_on_thread_s(0.006), time_on_thread_s(60.0)
    (0.3, 5.0)
    """
    return min(SLOW_S, SLOW_FACTOR * write_s)


class BlockingCallGuard(Protocol):
    """A loop that goes on beside a callback which is stuck in a call (`event_loop.TakeoverLoop`)."""

    def begin_call(self) -> int:
        """Announces a call of the callback that runs now."""
        ...

    def end_call(self, token: int) -> bool:
        """Whether the callback's thread still runs the loop."""
        ...


class Lane:
    """The thread of one directory. Methods are called on the loop, except those below the mark."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, guard: BlockingCallGuard | None = None) -> None:
        """`guard`: lets appends be written on the loop; None: every call is made by the thread."""
        self._loop = loop
        self._name = name
        self._guard = guard
        self._queue: SimpleQueue[list[Work] | None] = SimpleQueue()
        self._collected: list[Work] = []
        """The calls of this turn of the loop. They enter the queue together: each entry wakes the thread, which then
        competes with the loop for the interpreter."""
        self._joinable: dict[LaneFile, Work] = {}
        """The appends of this turn which later ones to the same file join."""
        self._collected_bytes = 0
        self._has_only_appends = True
        """Of `_collected`."""
        self._unfinished = 0
        """Calls that the thread has, or that have begun on the loop, and that are not completed."""
        self._on_loop_from = 0.0
        """Before then the thread makes all calls: a write on the loop was stuck."""
        self._turn = threading.Lock()
        """Held by whoever executes calls: the thread, or a write that began on the loop."""
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._calls = LaneCalls(name)
        self._on_exit: Callable[[], None] | None = None
        self._working: list[Work] = []
        """The calls that are being made."""
        self._taken: list[Work] = []
        """The calls that the thread has taken from the queue, and makes when it has the turn."""

    @property
    def has_ended(self) -> bool:
        """Whether no call is in progress and none will be."""
        return self._is_closed and (self._thread is None or not self._thread.is_alive())

    def silent_s(self) -> float:
        """For how many seconds the call in progress has not returned; 0.0 without one."""
        began = self._calls.began
        return time.monotonic() - began if began else 0.0

    def take_offline(self, error: OSError, on_exit: Callable[[], None]) -> None:
        """Fails every waiting call and the one in progress, without waiting.

        Once the call in progress returns, `on_exit` is called and the thread ends (`has_ended`).
        """
        if self._is_closed:
            return
        self._is_closed = self._calls.is_given_up = True
        self._on_exit = on_exit
        works = [*self._working, *self._taken, *self._drain(), *self._take_collected()]
        if self._thread is None:
            on_exit()
        else:
            self._queue.put(None)
        for work in works:
            if not work.future.done():
                on_done, work.on_done = work.on_done, None
                work.future.set_exception(OSError(error.errno, str(error), self._name))
                work.future.exception()  # the caller may have dropped it
                if on_done is not None:
                    work.future.add_done_callback(on_done)

    def _drain(self) -> list[Work]:
        """Takes the remaining calls from the queue."""
        works: list[Work] = []
        while True:
            try:
                works += self._queue.get_nowait() or ()
            except Empty:
                return works

    def append(
        self,
        file: LaneFile,
        buffers: Sequence[Buffer],
        on_done: Callable[[asyncio.Future[int]], None] | None = None,
    ) -> asyncio.Future[int]:
        """Appends of one turn to one file with the same `on_done` are one call, and share its future."""
        size = 0
        for buffer in buffers:
            size += len(buffer)
        work = self._joinable.get(file)
        if work is not None and work.on_done is on_done and work.size < POST_BYTES:
            assert work.buffers is not None
            work.buffers.extend(buffers)
        else:
            work = Work(self._loop.create_future(), file, list(buffers), None, True, on_done)
            self._put(work)
            if on_done is not None and not self._is_closed:
                self._joinable[file] = work
        work.size += size
        self._collected_bytes += size
        return work.future

    def fsync(self, file: LaneFile) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        self._put(Work(future, file, None, None, True))
        return future

    def call(self, call: Callable[[], Any], *, is_guarded: bool = False) -> asyncio.Future[Any]:
        """Runs `call` on the lane. A guarded call fails after a failed append or fsync, and its own failure counts as
        one: a checkpoint must not claim what was not synced."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._put(Work(future, None, None, call, is_guarded))
        return future

    def close(self, on_exit: Callable[[], None]) -> bool:
        """Cancels queued calls, as a crash would, waits for the call in progress and ends the thread.

        `on_exit` is called last: on the thread, or here when it never ran. Returns False when the call in progress
        hangs; the thread then ends after `on_exit` once it returns.
        """
        if self._is_closed:
            return self._thread is None or not self._thread.is_alive()
        self._is_closed = True
        self._on_exit = on_exit
        if self._thread is None:
            on_exit()
            return True
        self._enqueue_collected()
        self._queue.put(None)
        self._thread.join(_JOIN_S)
        return not self._thread.is_alive()

    def _put(self, work: Work) -> None:
        if self._is_closed:
            work.future.set_exception(OSError(errno.EBADF, "the disk is closed", self._name))
            if work.on_done is not None:
                work.future.add_done_callback(work.on_done)
            return
        if self._thread is None:
            # A daemon thread: a disk that hangs must not prevent the end of the process.
            self._thread = threading.Thread(target=self._run, name=f"lane {self._name}", daemon=True)
            self._thread.start()
        collected = self._collected
        if not collected:
            self._loop.call_soon(self._end_turn)
        collected.append(work)
        if work.buffers is None:
            self._has_only_appends = False
            self._joinable.clear()  # an append behind this call must not be made before it

    def _end_turn(self) -> None:
        """The calls of this turn are complete: small appends are written here, anything else goes to the thread."""
        if (
            self._guard is not None
            and self._has_only_appends
            and not self._unfinished
            and self._collected_bytes <= LOOP_BYTES
            and not self._is_closed
            and (not self._on_loop_from or time.monotonic() >= self._on_loop_from)
        ):
            works = self._take_collected()
            if works:
                self._write_on_loop(works, self._guard)
        else:
            self._enqueue_collected()

    def _enqueue_collected(self) -> None:
        works = self._take_collected()
        if works:
            self._unfinished += len(works)
            self._queue.put(works)

    def _take_collected(self) -> list[Work]:
        works, self._collected = self._collected, []
        self._joinable.clear()
        self._collected_bytes = 0
        self._has_only_appends = True
        return works

    def _write_on_loop(self, works: list[Work], guard: BlockingCallGuard) -> None:
        """Makes the appends here and completes them.

        When the disk is slow, `guard` lets another thread go on with the loop meanwhile. This thread then is the lane's
        for the rest of these calls: it posts their results, and the lane's own thread waits for it.
        """
        self._unfinished += len(works)
        with self._turn:
            self._working = works
            token = guard.begin_call()
            results = self._calls.append(works)
            is_on_loop = guard.end_call(token)
            self._working = []
            if not is_on_loop:
                on_thread_s = time_on_thread_s(self._calls.longest_append_s)
                self._post(results, partial(self._complete_late, on_thread_s))
        if is_on_loop:
            self._complete(results)

    def _complete_late(self, on_thread_s: float, results: list[Result]) -> None:
        """Completes what was stuck on the loop."""
        self._on_loop_from = time.monotonic() + on_thread_s
        self._complete(results)

    def _complete(self, results: list[Result]) -> None:
        """Completes all futures, then calls `on_done`: a callback sees that the others of the batch are done too."""
        self._unfinished -= len(results)
        for work, value, error in results:
            future = work.future
            if future.done():
                continue  # `take_offline` has failed it already
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)
        for work, _, _ in results:
            if work.on_done is not None:
                try:
                    work.on_done(work.future)
                except Exception as failure:  # the others are called all the same, as the loop does with callbacks
                    self._loop.call_exception_handler({"message": "on_done of an append failed", "exception": failure})

    # -- on the thread of the lane ------------------------------------------------------------------------------

    def _run(self) -> None:
        queue = self._queue
        get, is_empty = queue.get, queue.empty
        dropped: list[Work] = []
        while True:
            works: list[Work] = []
            has_more = True
            while has_more and (not works or not is_empty()):
                more = get()
                has_more = more is not None
                works += more or ()
            self._taken = works
            with self._turn:
                if not has_more or self._is_closed:
                    dropped = works
                    break
                self._working, self._taken = works, []
                self._calls.execute(works, self._post)
                self._working = []
        self._drop(dropped)
        if self._on_exit is not None:
            self._on_exit()

    def _drop(self, works: list[Work]) -> None:
        """Cancels the waiting calls: the lane closes."""
        works += self._drain()
        if works:
            try:
                self._loop.call_soon_threadsafe(_cancel, works)
            except RuntimeError:
                return

    def _post(self, results: list[Result], complete: Callable[[list[Result]], None] | None = None) -> None:
        try:
            self._loop.call_soon_threadsafe(complete or self._complete, results)
        except RuntimeError:
            # The loop was closed while the disk was busy; nobody waits.
            return


def _cancel(works: list[Work]) -> None:
    for work in works:
        work.future.cancel()
        if work.on_done is not None:
            work.future.add_done_callback(work.on_done)

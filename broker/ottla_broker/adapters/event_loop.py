"""An asyncio event loop that another thread goes on with while a callback is stuck in a system call.

A write to the page cache takes microseconds, so the lane makes many of them on the loop (`lane.py`). But a disk that
hangs also hangs the write, and everything else of the broker must go on. So the callback announces the call
(`begin_call`, `end_call`). A watchdog thread that sees it last too long takes the loop over: it runs the loop's next
turn and all that follow. The thread that was stuck learns from `end_call` that it is not the loop's any more, finishes
its work as an ordinary thread and ends. Go's scheduler hands a processor on in the same way.

`run_forever` runs the loop on a thread of its own, so that the process's main thread never is the stuck one: it handles
signals, and returns when the loop stops.

A call of OpenSSL is announced too: a client may send records that keep it busy (`tls_transport.py`).

asyncio's selector loop calls each ready socket through a Handle in the queue of ready callbacks; this one calls it
from the poll. uvloop, which is as fast, cannot change threads: it runs where nothing is written on the loop.

Source: asyncio.base_events.BaseEventLoop._run_once, asyncio.selector_events of CPython 3.11 to 3.14.
"""

from __future__ import annotations

import asyncio
import heapq
import select
import selectors
import socket
import sys
import threading
import time
from asyncio import events
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

TAKE_OVER_AFTER_S = 0.004
"""A call that lasts longer has its loop taken over; at the latest after twice as long."""
_IDLE_LOOKS = 25
"""After so many looks without a call in between the watchdog sleeps until the next call."""
_SIGNAL_S = 1.0
"""How late a handler of `signal.signal` may be; those of `add_signal_handler` are not."""
_MAX_EVENTS = 256
_ROUNDS = 4
"""So often in a turn what callbacks have scheduled is called: a request that is appended, written and answered needs no
poll in between."""
_TURNS_OF_A_SENDER = 32
"""For so many turns after a descriptor could be written again the loop polls between rounds of callbacks: a consumer
that reads much gets the next part of it without waiting for the appends of others."""
_IN = select.EPOLLIN
_OUT = select.EPOLLOUT

_Callback = Callable[..., object]


class _Descriptor:
    """The callbacks of a registered file descriptor."""

    __slots__ = ("reader", "writer")

    def __init__(self) -> None:
        self.reader: Any = None
        """The Handle, or None."""
        self.writer: Any = None

    @property
    def mask(self) -> int:
        return (0 if self.reader is None else _IN) | (0 if self.writer is None else _OUT)


class TakeoverLoop(asyncio.SelectorEventLoop):
    """See the module. Used as any asyncio loop, and by callbacks that were scheduled with `call_soon`, and of readers:

    token = loop.begin_call()
    ...  # one call, and nothing that belongs to the loop
    if not loop.end_call(token): ...  # another thread runs the loop: only call_soon_threadsafe from here on
    """

    # Attributes of asyncio's classes that their type stubs leave out.
    _ready: deque[Any]
    _scheduled: list[Any]
    _stopping: bool
    _thread_id: int | None
    _timer_cancelled_count: int
    _clock_resolution: float
    _ssock: socket.socket
    _csock: socket.socket | None

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._descriptors: dict[int, _Descriptor] = {}
        self._turns_of_a_sender = 0
        self.takeovers = 0
        """How often a thread has taken the loop over."""
        self._runner = 0
        """The number of the thread that runs the loop; each one that begins gets the next."""
        self._change_of_runner = threading.Lock()
        self._call_began = 0.0
        """When the announced call began; 0.0 without one."""
        self._on_taken_over: Callable[[], object] | None = None
        """Of the announced call."""
        self._call_count = 0
        self._is_polling = False
        self._is_woken = False
        self._is_watched = False
        self._watchdog_wake = threading.Event()
        self._to_main: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        """What the thread in `run_forever` is asked to do; None ends it."""
        self._failure: BaseException | None = None
        # Its registrations are not used: `_add_reader` and the like are replaced.
        super().__init__(selectors.SelectSelector())

    # Calls that may take long

    def begin_call(self, on_taken_over: Callable[[], object] | None = None) -> int:
        """Announces a call of the callback that runs now. Returns a token for `end_call`.

        Args:
            on_taken_over: called on the loop, before anything else, when the call has lasted too long.
        """
        runner = self._runner  # before the watchdog may see the call, and take the loop over
        self._call_count += 1
        self._on_taken_over = on_taken_over
        self._call_began = time.monotonic()
        if not self._is_watched:
            self._is_watched = True
            self._watchdog_wake.set()
        return runner

    def end_call(self, token: int) -> bool:
        """Whether this thread still runs the loop. If not, the callback returns and touches nothing of the loop."""
        with self._change_of_runner:
            if token != self._runner:
                return False
            self._call_began = 0.0
            return True

    # Running

    def run_forever(self) -> None:
        self._check_closed()  # type: ignore[attr-defined]
        self._check_running()  # type: ignore[attr-defined]
        self._failure = None
        self._runner += 1
        # Until the thread runs, nobody else starts the loop either.
        self._thread_id = threading.get_ident()
        _start_thread(partial(self._run_turns, self._runner), "loop")
        is_over = False
        while not is_over:
            try:
                # Python's own signal handlers run here. One that comes right before this call waits until it ends.
                act = self._to_main.get(timeout=_SIGNAL_S)
            except Empty:
                continue
            if act is None:
                is_over = True
            else:
                act()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _run_turns(self, runner: int, first: Callable[[], object] | None = None) -> None:
        """Runs the loop on this thread, the `runner`th, until it stops or another thread has taken it over.

        `first` is called before the first turn.
        """
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(
            firstiter=self._asyncgen_firstiter_hook,  # type: ignore[attr-defined]
            finalizer=self._asyncgen_finalizer_hook,  # type: ignore[attr-defined]
        )
        self._thread_id = threading.get_ident()
        events._set_running_loop(self)
        self._is_watched = True
        _start_thread(partial(self._watch, runner), "watchdog")
        failure: BaseException | None = None
        try:
            if first is not None:
                events.Handle(first, (), self)._run()
            while self._runner == runner and not failure:
                self._run_once()
                if self._stopping and self._runner == runner:
                    break
        except BaseException as error:  # SystemExit or KeyboardInterrupt of a callback
            failure = error
        finally:
            events._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
        if self._runner == runner:
            self._failure = failure
            self._stopping = False
            self._thread_id = None
            self._watchdog_wake.set()
            self._to_main.put(None)

    def _watch(self, runner: int) -> None:
        """The watchdog of the `runner`th thread: goes on with the loop when that is stuck."""
        seen, idle_looks = -1, 0
        while self._runner == runner and self._thread_id is not None:
            if self._call_count != seen:
                seen, idle_looks = self._call_count, 0
            elif idle_looks < _IDLE_LOOKS or self._call_began:
                idle_looks += 1
            else:
                idle_looks = 0
                self._watchdog_wake.clear()
                self._is_watched = False
                if self._call_count == seen and self._thread_id is not None:  # else nobody wakes it
                    self._watchdog_wake.wait()
                continue
            began = self._call_began
            time.sleep(TAKE_OVER_AFTER_S)
            if not began or began != self._call_began:
                continue
            with self._change_of_runner:
                is_stuck = began == self._call_began and self._runner == runner
                if is_stuck:
                    self._call_began = 0.0
                    self._runner += 1
                    self.takeovers += 1
            if is_stuck:
                threading.current_thread().name = "ottla loop"
                self._run_turns(runner + 1, self._on_taken_over)
                return

    def _run_once(self) -> None:
        """One turn: polls, calls what is ready, then everything that is scheduled."""
        runner = self._runner
        ready, scheduled = self._ready, self._scheduled
        while scheduled and scheduled[0]._cancelled:
            timer = heapq.heappop(scheduled)
            timer._scheduled = False
            self._timer_cancelled_count -= 1
        # A thread that appends to `ready` either sees this flag and wakes the poll, or its callback is seen here.
        self._is_polling = True
        if ready or self._stopping:
            timeout = 0.0
        elif scheduled:
            timeout = max(0.0, scheduled[0]._when - time.monotonic())
        else:
            timeout = -1.0
        polled = self._epoll.poll(timeout, _MAX_EVENTS)
        self._is_polling = False
        descriptors = self._descriptors
        for fd, mask in polled:
            found = descriptors.get(fd)
            if found is None:
                continue
            handle = found.reader
            if mask & ~_OUT and handle is not None:
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as failure:
                    self._report(handle, failure)
                if runner != self._runner:
                    return  # it was stuck: another thread goes on, and the poll tells it of the others again
            handle = found.writer
            if mask & ~_IN and handle is not None:
                self._turns_of_a_sender = _TURNS_OF_A_SENDER
                handle._run()
        if scheduled:
            now = time.monotonic() + self._clock_resolution
            while scheduled and scheduled[0]._when < now:
                timer = heapq.heappop(scheduled)
                timer._scheduled = False
                ready.append(timer)
        rounds = _ROUNDS
        if self._turns_of_a_sender:
            self._turns_of_a_sender -= 1
            rounds = 1
        for _ in range(rounds):
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
                    if runner != self._runner:
                        return  # it was stuck: another thread goes on
            if not ready:
                return

    def _report(self, handle: Any, failure: BaseException) -> None:
        self.call_exception_handler(
            {"message": f"Exception in callback {handle._callback!r}", "exception": failure, "handle": handle}
        )

    # Waking

    def _write_to_self(self) -> None:
        if not self._is_polling or self._is_woken:
            return
        self._is_woken = True
        sock = self._csock
        if sock is not None:
            try:
                sock.send(b"\0")
            except OSError:
                return

    def _read_from_self(self) -> None:
        try:
            data = self._ssock.recv(4096)
        except (BlockingIOError, InterruptedError):
            data = b""
        # Only now: the byte of a thread that found the flag cleared must stay for the next poll, or the flag would
        # stay set without a byte, and nobody would wake the poll again. A thread that finds it set has its callback in
        # `_ready`, which this turn still looks at.
        self._is_woken = False
        self._process_self_data(data)  # type: ignore[attr-defined]

    # Signals: the kernel's handler writes to the socket pair, and the loop reads it, as in asyncio

    def add_signal_handler(self, sig: int, callback: _Callback, *args: Any) -> None:  # type: ignore[override]
        self._in_main(partial(super().add_signal_handler, sig, callback, *args))

    def remove_signal_handler(self, sig: int) -> bool:
        removed: list[bool] = []
        self._in_main(lambda: removed.append(super(TakeoverLoop, self).remove_signal_handler(sig)))
        return removed[0]

    def _in_main(self, act: Callable[[], object]) -> None:
        """Handlers are installed in the main thread, which waits in `run_forever`."""
        if not self.is_running() or threading.current_thread() is threading.main_thread():
            act()
            return
        done = threading.Event()
        failures: list[BaseException] = []

        def run() -> None:
            try:
                act()
            except BaseException as failure:
                failures.append(failure)
            finally:
                done.set()

        self._to_main.put(run)
        done.wait()
        if failures:
            raise failures[0]

    def close(self) -> None:
        was_closed = self.is_closed()
        super().close()
        if not was_closed:
            self._epoll.close()

    # Descriptors

    def _change(self, fd: Any, **callbacks: events.Handle | None) -> bool:
        """Sets or removes the callbacks of a descriptor; whether something was removed or replaced."""
        number = _number(fd)
        found = self._descriptors.get(number)
        before = 0 if found is None else found.mask
        if found is None:
            found = _Descriptor()
        was_set = False
        for name, handle in callbacks.items():
            old = getattr(found, name)
            if old is not None:
                old.cancel()
                was_set = True
            setattr(found, name, handle)
        mask = found.mask
        if mask:
            self._descriptors[number] = found
            if before:
                if mask != before:
                    self._epoll.modify(number, mask)
            else:
                self._epoll.register(number, mask)
        elif before:
            del self._descriptors[number]
            try:
                self._epoll.unregister(number)
            except OSError:
                pass  # the descriptor was closed first: the kernel has forgotten it
        return was_set

    def _add_reader(self, fd: Any, callback: _Callback, *args: Any) -> events.Handle:
        self._check_closed()  # type: ignore[attr-defined]
        handle = events.Handle(callback, args, self)
        self._change(fd, reader=handle)
        return handle

    def _remove_reader(self, fd: Any) -> bool:
        return not self.is_closed() and self._change(fd, reader=None)

    def _add_writer(self, fd: Any, callback: _Callback, *args: Any) -> events.Handle:
        self._check_closed()  # type: ignore[attr-defined]
        handle = events.Handle(callback, args, self)
        self._change(fd, writer=handle)
        return handle

    def _remove_writer(self, fd: Any) -> bool:
        return not self.is_closed() and self._change(fd, writer=None)


def _start_thread(run: Callable[[], None], name: str) -> None:
    threading.Thread(target=run, name=f"ottla {name}", daemon=True).start()


def _number(fd: int | socket.socket | Any) -> int:
    number = fd if isinstance(fd, int) else int(fd.fileno())
    if number < 0:
        raise ValueError(f"Invalid file descriptor: {number}")
    return number

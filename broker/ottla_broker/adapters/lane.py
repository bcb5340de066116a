"""The I/O lane: one thread per log directory, with a queue of calls, whose results complete on the event loop.

The loop puts calls in order into a queue; the thread takes everything that waits there at once. Adjacent appends and
fsyncs form a run: all buffers of one file are written in one writev (in several when they are many megabytes), and one
fsync per file completes every fsync of the run. Any other call ends the run, so it sees everything before it. Results
return by one `call_soon_threadsafe` per run, or per few megabytes of it.

A slow or hung disk blocks this thread and nothing else. `silent_s` returns how long the call in progress has taken, and
`take_offline` fails everything that waits, without waiting for it. A failed write, sync or guarded call is final for
the whole directory. Lack of room, memory or descriptors is not: it fails the appends and syncs of its file alone, until
the file is truncated. Not here: opening, locking, pins (`disk.py`).
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from ottla_broker.adapters import disk_calls
from ottla_broker.ports.disk import Buffer
from ottla_broker.ports.os_errors import is_sound

POST_BYTES = 4 * 1024 * 1024
"""Results of a run return after about this many bytes even if more waits: a long queue does not delay its head, and
the loop checks and queues the next appends while these are written."""

_JOIN_S = 5.0
"""How long `close` waits for the call in progress; a hung disk keeps its thread, files and lock."""


class LaneFile:
    """An open file as the lane sees it: its descriptor and the bytes written, in the order of the lane.

    `lack_of_room` is the error of an append without room, or with a shortage: later appends would be at the wrong
    position.
    """

    __slots__ = ("fd", "lack_of_room", "written")

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self.written = size
        self.lack_of_room: OSError | None = None


class _Work:
    """A queued call. `file` is set for appends and fsyncs, `call` for everything else."""

    __slots__ = ("buffers", "call", "file", "future", "is_guarded", "on_done")

    def __init__(
        self,
        future: asyncio.Future[Any],
        file: LaneFile | None,
        buffers: Sequence[Buffer] | None,
        call: Callable[[], Any] | None,
        is_guarded: bool,
        on_done: Callable[[asyncio.Future[int]], None] | None = None,
    ) -> None:
        self.future = future
        self.on_done = on_done
        self.file = file
        self.buffers = buffers
        self.call = call
        self.is_guarded = is_guarded


_Result = tuple[_Work, Any, BaseException | None]


class Lane:
    """The thread of one directory. Methods are called on the loop, except those below the mark."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._name = name
        self._queue: SimpleQueue[list[_Work] | None] = SimpleQueue()
        self._collected: list[_Work] = []
        """The calls of this turn of the loop. They enter the queue together: each entry wakes the thread, which then
        competes with the loop for the interpreter."""
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._failure: OSError | None = None
        self._on_exit: Callable[[], None] | None = None
        self._working: list[_Work] = []
        """The calls that the thread has taken from the queue last."""
        self._call_began = 0.0
        """When the call in progress started; 0.0 without one."""

    @property
    def has_ended(self) -> bool:
        """Whether no call is in progress and none will be."""
        return self._is_closed and (self._thread is None or not self._thread.is_alive())

    def silent_s(self) -> float:
        """For how many seconds the call in progress has not returned; 0.0 without one."""
        began = self._call_began
        return time.monotonic() - began if began else 0.0

    def take_offline(self, error: OSError, on_exit: Callable[[], None]) -> None:
        """Fails every waiting call and the one in progress, without waiting.

        Once the call in progress returns, `on_exit` is called and the thread ends (`has_ended`).
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._on_exit = on_exit
        works = [*self._working, *self._drain(), *self._collected]
        self._collected = []
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

    def _drain(self) -> list[_Work]:
        """Takes the remaining calls from the queue."""
        works: list[_Work] = []
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
        future: asyncio.Future[int] = self._loop.create_future()
        self._put(_Work(future, file, buffers, None, True, on_done))
        return future

    def fsync(self, file: LaneFile) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        self._put(_Work(future, file, None, None, True))
        return future

    def call(self, call: Callable[[], Any], *, is_guarded: bool = False) -> asyncio.Future[Any]:
        """Runs `call` on the lane. A guarded call fails after a failed append or fsync, and its own failure counts as
        one: a checkpoint must not claim what was not synced."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._put(_Work(future, None, None, call, is_guarded))
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

    def _put(self, work: _Work) -> None:
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
            self._loop.call_soon(self._enqueue_collected)
        collected.append(work)

    def _enqueue_collected(self) -> None:
        if self._collected:
            self._queue.put(self._collected)
            self._collected = []

    # -- on the thread of the lane ------------------------------------------------------------------------------

    def _run(self) -> None:
        queue = self._queue
        get, is_empty = queue.get, queue.empty
        dropped: list[_Work] = []
        while True:
            works: list[_Work] = []
            has_more = True
            while has_more and (not works or not is_empty()):
                self._call_began = 0.0
                more = get()
                has_more = more is not None
                works += more or ()
            if not has_more or self._is_closed:
                dropped = works
                break
            self._working = works
            self._execute(works)
            self._working = []
        self._drop(dropped)
        if self._on_exit is not None:
            self._on_exit()

    def _execute(self, works: list[_Work]) -> None:
        """Executes the calls in order; adjacent appends and fsyncs are one run."""
        run: list[_Work] = []
        for work in works:
            if self._is_closed and work.future.done():
                continue  # `take_offline` has failed it
            if work.call is None:
                run.append(work)
                continue
            if run:
                self._write(run)
                run = []
            self._call(work)
        if run:
            self._write(run)

    def _call(self, work: _Work) -> None:
        assert work.call is not None
        value: Any = None
        error: Exception | None = None
        if work.is_guarded and self._failure is not None:
            error = self._sticky()
        else:
            self._call_began = time.monotonic()
            try:
                value = work.call()
            except OSError as failure:
                error = failure
                if work.is_guarded and not is_sound(failure):
                    self._failure = failure
            except Exception as failure:  # a bug in a call must not end the lane silently
                error = failure
        self._post([(work, value, error)])

    def _write(self, run: list[_Work]) -> None:
        """Executes a run of appends and fsyncs. [a1, b1, a2, sync a] becomes writev(a: a1 a2), writev(b: b1),
        fsync(a)."""
        results: list[_Result] = []
        if len(run) == 1:
            work = run[0]
            if work.buffers is not None:
                self._append([work], results)
            else:
                self._fsync([work], results)
            self._post(results)
            return
        appends: dict[LaneFile, list[_Work]] = {}
        syncs: dict[LaneFile, list[_Work]] = {}
        for work in run:
            assert work.file is not None
            (syncs if work.buffers is None else appends).setdefault(work.file, []).append(work)
        since_post = 0
        for file, works in appends.items():
            for part in _parts(works):
                before = file.written
                self._append(part, results)
                since_post += file.written - before
                if since_post >= POST_BYTES:
                    self._post(results)
                    results, since_post = [], 0
        if syncs and results:
            # A sync may take long; the appends of others do not wait for it.
            self._post(results)
            results = []
        for works in syncs.values():
            self._fsync(works, results)
        self._post(results)

    def _append(self, works: list[_Work], results: list[_Result]) -> None:
        file = works[0].file
        assert file is not None
        if self._failure is not None or file.lack_of_room is not None:
            error = self._sticky() if self._failure is not None else file.lack_of_room
            results.extend((work, None, error) for work in works)
            return
        self._call_began = time.monotonic()
        try:
            written = disk_calls.write_all(file.fd, [buffer for work in works for buffer in work.buffers or ()])
        except Exception as error:  # a bug too: a thread that ends silently leaves all callers waiting
            failure = error if isinstance(error, OSError) else OSError(errno.EIO, repr(error), self._name)
            if not self._is_undone(file, failure):
                if is_sound(failure):
                    # The part that was written could not be truncated: nothing more may be written.
                    failure = OSError(errno.EIO, f"a failed write cannot be undone: {failure}", self._name)
                self._failure = failure
            results.extend((work, None, failure) for work in works)
            return
        if len(works) == 1:
            file.written += written
            results.append((works[0], file.written, None))
            return
        size = file.written
        file.written += written
        for work in works:
            size += sum(map(len, work.buffers or ()))
            results.append((work, size, None))

    def _is_undone(self, file: LaneFile, failure: OSError) -> bool:
        """Truncates a partly written append on a sound disk, so that the file ends with the last complete one."""
        if not is_sound(failure):
            return False
        try:
            os.ftruncate(file.fd, file.written)
        except OSError:
            return False
        file.lack_of_room = failure
        return True

    def _fsync(self, works: list[_Work], results: list[_Result]) -> None:
        file = works[0].file
        assert file is not None
        error: OSError | None = file.lack_of_room
        if self._failure is not None:
            error = self._sticky()
        elif error is None:
            self._call_began = time.monotonic()
            try:
                os.fdatasync(file.fd)
            except OSError as failure:
                # Linux marks the pages clean after a failed sync: the next sync would report a false success. So it is
                # after lack of room too, when the file system finds it so late: what was written is lost.
                error = self._failure = OSError(errno.EIO, f"a sync failed: {failure}", self._name)
        results.extend((work, None, error) for work in works)

    def _sticky(self) -> OSError:
        assert self._failure is not None
        return OSError(
            self._failure.errno or errno.EIO, f"an earlier write of this directory failed: {self._failure}", self._name
        )

    def _drop(self, works: list[_Work]) -> None:
        """Cancels the waiting calls: the lane closes."""
        works += self._drain()
        if works:
            try:
                self._loop.call_soon_threadsafe(_cancel, works)
            except RuntimeError:
                return

    def _post(self, results: list[_Result]) -> None:
        try:
            self._loop.call_soon_threadsafe(_complete, self._loop, results)
        except RuntimeError:
            # The loop was closed while the disk was busy; nobody waits.
            return


def _parts(works: list[_Work]) -> Iterator[list[_Work]]:
    """Splits the appends to one file, in order, into parts of about POST_BYTES."""
    part: list[_Work] = []
    size = 0
    for work in works:
        part.append(work)
        size += sum(map(len, work.buffers or ()))
        if size >= POST_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _complete(loop: asyncio.AbstractEventLoop, results: list[_Result]) -> None:
    """Completes all futures, then calls `on_done`: a callback sees that the others of the batch are done as well."""
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
                loop.call_exception_handler({"message": "on_done of an append failed", "exception": failure})


def _cancel(works: list[_Work]) -> None:
    for work in works:
        work.future.cancel()
        if work.on_done is not None:
            work.future.add_done_callback(work.on_done)

"""Makes the calls of a lane: writes, syncs and everything else, in order, on whichever thread has the lane's turn.

Adjacent appends and fsyncs form a run: all buffers of one file are written in one writev (in several when they are many
megabytes), and one fsync per file completes every fsync of the run. Any other call ends the run, so it sees everything
before it.

A failed write, sync or guarded call is final for the whole directory. Lack of room, memory or descriptors is not: it
fails the appends and syncs of its file alone, until the file is truncated. Not here: threads and queues (`lane.py`).
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from ottla_broker.adapters import disk_calls
from ottla_broker.ports.disk import Buffer
from ottla_broker.ports.os_errors import is_sound

POST_BYTES = 4 * 1024 * 1024
"""Results of a run return after about this many bytes even if more waits: a long queue does not delay its head, and
the loop checks and queues the next appends while these are written."""


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


class Work:
    """A queued call. `file` is set for appends and fsyncs, `buffers` for appends, `call` for everything else."""

    __slots__ = ("buffers", "call", "file", "future", "is_guarded", "on_done", "size")

    def __init__(
        self,
        future: asyncio.Future[Any],
        file: LaneFile | None,
        buffers: list[Buffer] | None,
        call: Callable[[], Any] | None,
        is_guarded: bool,
        on_done: Callable[[asyncio.Future[int]], None] | None = None,
    ) -> None:
        self.future = future
        self.on_done = on_done
        self.size = 0
        """Bytes of `buffers`."""
        self.file = file
        self.buffers = buffers
        self.call = call
        self.is_guarded = is_guarded


Result: TypeAlias = tuple[Work, Any, BaseException | None]
Post: TypeAlias = Callable[[list[Result]], None]


class LaneCalls:
    """The calls of one directory, and what has failed in it. Methods belong to whoever has the lane's turn."""

    __slots__ = ("_failure", "_name", "began", "is_given_up", "longest_append_s")

    def __init__(self, name: str) -> None:
        """`name`: of the directory, for errors."""
        self._name = name
        self._failure: OSError | None = None
        self.is_given_up = False
        """The directory was taken offline: calls that are done have failed."""
        self.began = 0.0
        """When the call in progress started, as `time.monotonic` gives it; 0.0 without one, also before the result of a
        call is posted. Any thread reads it."""
        self.longest_append_s = 0.0
        """Of the last `append`: the others of it may have waited for the interpreter."""

    def execute(self, works: list[Work], post: Post) -> None:
        """Makes the calls in order; adjacent appends and fsyncs are one run. `post` gets the results, part by part."""
        run: list[Work] = []
        for work in works:
            if self.is_given_up and work.future.done():
                continue  # its caller has been told; of a cancelled call, the effect is still wanted
            if work.call is None:
                run.append(work)
                continue
            if run:
                self._write(run, post)
                run = []
            post([self._call(work)])
        if run:
            self._write(run, post)

    def append(self, works: list[Work]) -> list[Result]:
        """Makes calls that are all appends."""
        results: list[Result] = []
        self.longest_append_s = 0.0
        for work in works:
            if self.is_given_up and work.future.done():
                continue
            began = time.monotonic()
            self._append([work], results)
            self.longest_append_s = max(self.longest_append_s, time.monotonic() - began)
        return results

    def _call(self, work: Work) -> Result:
        assert work.call is not None
        value: Any = None
        error: Exception | None = None
        if work.is_guarded and self._failure is not None:
            error = self._sticky()
        else:
            self.began = time.monotonic()
            try:
                value = work.call()
            except OSError as failure:
                error = failure
                if work.is_guarded and not is_sound(failure):
                    self._failure = failure
            except Exception as failure:  # a bug in a call must not end the lane silently
                error = failure
            self.began = 0.0
        return work, value, error

    def _write(self, run: list[Work], post: Post) -> None:
        """Executes a run of appends and fsyncs. [a1, b1, a2, sync a] becomes writev(a: a1 a2), writev(b: b1),
        fsync(a)."""
        results: list[Result] = []
        if len(run) == 1:
            work = run[0]
            if work.buffers is not None:
                self._append([work], results)
            else:
                self._fsync([work], results)
            post(results)
            return
        appends: dict[LaneFile, list[Work]] = {}
        syncs: dict[LaneFile, list[Work]] = {}
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
                    post(results)
                    results, since_post = [], 0
        if syncs and results:
            # A sync may take long; the appends of others do not wait for it.
            post(results)
            results = []
        for works in syncs.values():
            self._fsync(works, results)
        post(results)

    def _append(self, works: list[Work], results: list[Result]) -> None:
        file = works[0].file
        assert file is not None
        if self._failure is not None or file.lack_of_room is not None:
            error = self._sticky() if self._failure is not None else file.lack_of_room
            results.extend((work, None, error) for work in works)
            return
        self.began = time.monotonic()
        try:
            if len(works) == 1:
                buffers = works[0].buffers or []
            else:
                buffers = [buffer for work in works for buffer in work.buffers or ()]
            written = disk_calls.write_all(file.fd, buffers)
            self.began = 0.0
        except Exception as raised:  # a bug too: a thread that ends silently leaves all callers waiting
            failure = raised if isinstance(raised, OSError) else OSError(errno.EIO, repr(raised), self._name)
            if not self._is_undone(file, failure):
                if is_sound(failure):
                    # The part that was written could not be truncated: nothing more may be written.
                    failure = OSError(errno.EIO, f"a failed write cannot be undone: {failure}", self._name)
                self._failure = failure
            self.began = 0.0
            results.extend((work, None, failure) for work in works)
            return
        if len(works) == 1:
            file.written += written
            results.append((works[0], file.written, None))
            return
        size = file.written
        file.written += written
        for work in works:
            size += work.size
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

    def _fsync(self, works: list[Work], results: list[Result]) -> None:
        file = works[0].file
        assert file is not None
        error: OSError | None = file.lack_of_room
        if self._failure is not None:
            error = self._sticky()
        elif error is None:
            self.began = time.monotonic()
            try:
                os.fdatasync(file.fd)
            except OSError as failure:
                # Linux marks the pages clean after a failed sync: the next sync would report a false success. So it is
                # after lack of room too, when the file system finds it so late: what was written is lost.
                error = self._failure = OSError(errno.EIO, f"a sync failed: {failure}", self._name)
            self.began = 0.0
        results.extend((work, None, error) for work in works)

    def _sticky(self) -> OSError:
        assert self._failure is not None
        return OSError(
            self._failure.errno or errno.EIO, f"an earlier write of this directory failed: {self._failure}", self._name
        )


def _parts(works: list[Work]) -> Iterator[list[Work]]:
    """Splits the appends to one file, in order, into parts of about POST_BYTES."""
    part: list[Work] = []
    size = 0
    for work in works:
        part.append(work)
        size += work.size
        if size >= POST_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part

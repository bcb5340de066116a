"""The simulated Disk: one lane per Disk over a `DiskImage`, with seeded latencies.

Calls take effect in order, each after its latency, and complete then. In some runs several complete in one loop
iteration, as the real lane reports them (`adapters.lane`). A read may complete at once while nothing is queued, like a
read from the page cache. When the process dies, the queued calls are lost, except a seeded few that the lane had
already given to the kernel; the last of these is cut short.

Faults are attributes of the image: `failure` (an errno for every call), `capacity_bytes` (ENOSPC beyond it), `is_hung`
(nothing completes until it ends), `slow_s` (maximum extra latency). A failed sync loses the unsynced data, because the
kernel marks such pages clean.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ottla_broker.ports.disk import Buffer, Contents, File
from simulation.filesystem import DirectoryNode, DiskImage, FileNode, joined
from simulation.world import EPOCH_MS, SimulatedProcess, World

_LOCK = ".lock"
_MOST_POSTED = 8
"""So many calls complete in one turn at most."""


class _Call:
    """One call on the lane: `act` has the effect and gives the result."""

    __slots__ = ("act", "context", "future", "group", "kind", "on_done", "partial", "seconds")

    def __init__(
        self,
        kind: str,
        act: Callable[[], Any],
        future: asyncio.Future[Any] | None,
        seconds: float,
        partial: Callable[[float], None] | None = None,
        group: _Group | None = None,
        on_done: Callable[[asyncio.Future[Any]], None] | None = None,
    ) -> None:
        self.kind = kind
        self.act = act
        self.future = future
        self.seconds = seconds
        self.partial = partial
        self.group = group
        self.on_done = on_done
        """Called in the turn in which the call completes, once all that complete in it are done."""
        self.context = None if on_done is None else contextvars.copy_context()


class _Group:
    """Calls that are one call of the port: the first error ends them all."""

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: OSError | None = None


class _Joinable(NamedTuple):
    """An append that later ones of the turn join, as those of the production Disk do."""

    file: SimulatedFile
    on_done: Callable[[asyncio.Future[int]], None]
    buffers: list[Buffer]
    future: asyncio.Future[int]


class SimulatedDisk:
    """See `ottla_broker.ports.disk.Disk`."""

    def __init__(self, process: SimulatedProcess, image: DiskImage, path: str) -> None:
        self.path = path
        self._process = process
        self._world: World = process.world
        self._image = image
        self._random = self._world.stream(f"disk/{process.name}/{image.name}/{self._world.trace.events}")
        self._posts = self._world.stream(f"posts/{process.name}/{image.name}/{self._world.trace.events}")
        self._on_loop = self._world.stream(f"on loop/{process.name}/{image.name}/{self._world.trace.events}")
        self._lane: deque[_Call] = deque()
        self._served: list[tuple[_Call, Any, OSError | None]] = []
        """What has taken effect and has not completed yet."""
        self._most_served = 1
        self._joinable: _Joinable | None = None
        """The append of this turn of the loop that was made last."""
        self._is_serving = False
        self._is_closed = False
        self._append_error: OSError | None = None
        self._began = 0.0
        self._is_waiting_for_wake = False
        self._hanging = False
        """Given up while a call hung: the lane ends when that call returns."""
        self._files: list[SimulatedFile] = []
        self._written_out: list[asyncio.Future[None]] = []
        process.on_kill(self._die)

    def open_files(self) -> list[str]:
        """Names of the files that are open, for a test that looks for those that nobody closes."""
        return [file.name for file in self._files if file.is_open]

    # -- the port ---------------------------------------------------------------------------------------------------

    def open(self, name: str, *, create: bool = False) -> asyncio.Future[File]:
        def act() -> SimulatedFile:
            node = self._image.create_file(name) if create else self._image.find_file(name)
            file = SimulatedFile(self, name, node)
            self._files.append(file)
            return file

        return self.call("open " + name, act)

    def read_file(self, name: str) -> asyncio.Future[bytes]:
        return self.call("read " + name, lambda: bytes(self._image.find_file(name).data))

    def write_file(self, name: str, data: bytes, *, is_private: bool = False) -> asyncio.Future[None]:
        image = self._image
        temporary = name + ".tmp"
        content = bytes(data)
        parent = name.rpartition("/")[0]
        group = _Group()

        def write() -> None:
            node = image.create_file(temporary)
            node.replace()
            fitting = image.check_space(len(content))
            node.append(content[:fitting])
            if fitting < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), temporary)

        def write_part(fraction: float) -> None:
            node = image.create_file(temporary)
            node.replace()
            node.append(content[: int(len(content) * fraction)])

        self._enqueue(_Call("write " + temporary, write, None, self._short(), write_part, group))
        self._enqueue(
            _Call("fsync " + temporary, lambda: image.find_file(temporary).sync(), None, self._sync_time(), None, group)
        )
        self._enqueue(_Call("rename " + name, lambda: image.rename(temporary, name), None, self._short(), None, group))
        future = self._world.loop.create_future()
        self._enqueue(
            _Call(
                "fsync-directory " + parent,
                lambda: image.find_directory(parent).sync(),
                future,
                self._sync_time(),
                None,
                group,
            )
        )
        return future

    def append_to(self, name: str, buffers: Sequence[Buffer]) -> asyncio.Future[int]:
        def act() -> int:
            # Opened, written and closed while nothing else happens on the lane.
            if self._append_error is not None:
                raise self._append_error
            return SimulatedFile(self, name, self._image.create_file(name)).append_now(buffers)

        def part(fraction: float) -> None:
            data = joined(buffers)
            self._image.create_file(name).append(data[: int(len(data) * fraction)])

        return self.call("append " + name, act, partial=part)

    def fsync_file(self, name: str) -> asyncio.Future[None]:
        def act() -> None:
            if self._append_error is not None:
                raise self._append_error
            self._image.find_file(name).sync()

        return self.call("fsync " + name, act, seconds=self._sync_time())

    def read_directories(
        self, names: Sequence[str], endings: tuple[str, ...], up_to_bytes: int
    ) -> asyncio.Future[Sequence[Contents]]:
        def contents_of(name: str) -> Contents:
            found: Contents = {}
            for entry, node in sorted(self._image.find_directory(name).entries.items()):
                if isinstance(node, DirectoryNode):
                    found[entry] = (True, 0, None)
                else:
                    is_wanted = len(node.data) <= up_to_bytes and entry.endswith(endings)
                    found[entry] = (False, len(node.data), bytes(node.data) if is_wanted else None)
            return found

        return self.call(f"read-directories {len(names)}", lambda: [contents_of(name) for name in names])

    def exists(self, name: str) -> asyncio.Future[bool]:
        return self.call("exists " + name, lambda: self._image.exists(name))

    def modified_ms(self, name: str) -> asyncio.Future[int]:
        def act() -> int:
            at_s = self._image.find_file(name).modified_s
            return EPOCH_MS + self._process.machine.clock_skew_ms + int(at_s * 1000)

        return self.call("modified " + name, act)

    def list(self, name: str = "") -> asyncio.Future[list[tuple[str, bool, int]]]:
        def act() -> list[tuple[str, bool, int]]:
            entries = self._image.find_directory(name).entries
            return [
                (entry, isinstance(node, DirectoryNode), len(node.data) if isinstance(node, FileNode) else 0)
                for entry, node in sorted(entries.items())
            ]

        return self.call("list " + name, act)

    def make_directory(self, name: str) -> asyncio.Future[None]:
        return self.call("mkdir " + name, lambda: self._image.make_directory(name))

    def rename(self, old: str, new: str) -> asyncio.Future[None]:
        return self.call(f"rename {old} {new}", lambda: self._image.rename(old, new))

    def delete(self, name: str) -> asyncio.Future[None]:
        return self.call("delete " + name, lambda: self._image.delete(name))

    def fsync_directory(self, name: str = "") -> asyncio.Future[None]:
        return self.call(
            "fsync-directory " + name, lambda: self._image.find_directory(name).sync(), seconds=self._sync_time()
        )

    def lock(self) -> asyncio.Future[bool]:
        def act() -> bool:
            self._image.create_file(_LOCK)
            if self._image.holder is None:
                self._image.holder = self
            return self._image.holder is self

        return self.call("lock", act)

    def free_bytes(self) -> asyncio.Future[int]:
        return self.call("free", lambda: self._image.capacity_bytes - self._image.used_bytes())

    def total_bytes(self) -> asyncio.Future[int]:
        return self.call("total", lambda: self._image.capacity_bytes)

    def check_space(self) -> asyncio.Future[tuple[int, int]]:
        image = self._image
        return self.call(
            "check_space", lambda: (max(0, image.capacity_bytes - image.used_bytes()), image.capacity_bytes)
        )

    def silent_s(self) -> float:
        return self._world.loop.time() - self._began if self._is_serving or self._is_waiting_for_wake else 0.0

    def probe(self) -> asyncio.Future[None]:
        """On no lane: answered unless the image hangs or fails."""
        future: asyncio.Future[None] = self._world.loop.create_future()
        image = self._image

        def answer() -> None:
            if future.done() or not self._process.alive:
                return
            if image.is_hung:
                image.waiting.append(answer)
                return
            self._world.trace.event("disk-probe", self._process.name, image.failure or 0)
            if image.failure is None:
                future.set_result(None)
            else:
                future.set_exception(OSError(image.failure, os.strerror(image.failure), self.path))
                future.exception()

        self._world.call_later(self._sync_time(), answer)
        return future

    def write_out(self) -> asyncio.Future[None]:
        """On no lane and without effect: that a file's bytes reach the disk early is nothing to rely on."""
        future: asyncio.Future[None] = self._world.loop.create_future()
        image = self._image

        def answer() -> None:
            if not self._process.alive:
                return
            if image.is_hung and not self._is_closed:
                image.waiting.append(answer)
                return
            self._written_out.remove(future)
            if not future.done():
                future.set_result(None)

        self._written_out.append(future)
        self._world.call_later(self._sync_time(), answer)
        return future

    def take_offline(self, error: OSError) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        calls, self._lane = list(self._lane), deque()
        self._hanging = self._image.is_hung and bool(calls)
        calls = [call for call, _, _ in self._served] + calls
        self._served.clear()
        for call in calls:
            if call.future is not None and not call.future.done():
                call.future.set_exception(OSError(error.errno, str(error), self.path))
                call.future.exception()
                if call.on_done is not None:
                    call.future.add_done_callback(call.on_done, context=call.context)
        for file in self._files:
            file.is_open = False
        for future in self._written_out:
            if not future.done():
                future.set_result(None)
        if not self._hanging:
            self._end()

    @property
    def has_ended(self) -> bool:
        return self._is_closed and not self._hanging

    def reopened(self) -> SimulatedDisk:
        return SimulatedDisk(self._process, self._image, self.path)

    def _end(self) -> None:
        if self._image.holder is self:
            self._image.holder = None

    def boot_id(self) -> str:
        return self._process.machine.boot_id

    def close(self) -> None:
        """What is queued still takes effect (the lane ends after it); later calls fail."""
        if self._is_closed:
            return
        self._is_closed = True
        while self._lane:
            self._serve_one()
        self._post()
        for file in self._files:
            file.is_open = False
        self._end()

    # -- the lane ---------------------------------------------------------------------------------------------------

    def call(
        self,
        kind: str,
        act: Callable[[], Any],
        *,
        seconds: float | None = None,
        partial: Callable[[float], None] | None = None,
        on_done: Callable[[asyncio.Future[Any]], None] | None = None,
    ) -> asyncio.Future[Any]:
        """Queues one call. `on_done` gets the future once it is done."""
        future = self._world.loop.create_future()
        if on_done is not None and not self._world.is_posting_together:
            future.add_done_callback(on_done)
            on_done = None
        self._enqueue(_Call(kind, act, future, self._short() if seconds is None else seconds, partial, on_done=on_done))
        return future

    def read_now(self, kind: str, act: Callable[[], Any]) -> asyncio.Future[Any]:
        """A read that the page cache may answer at once."""
        is_idle = not self._lane and not self._is_closed and self._image.failure is None
        if is_idle and self._process.alive and self._random.random() < 0.7:
            future = self._world.loop.create_future()
            self._world.trace.event("disk-now", self._process.name, kind)
            future.set_result(act())
            return future
        return self.call(kind, act)

    def _short(self) -> float:
        draw = self._random.random
        return 0.00001 + 0.0001 * draw() + (0.03 * draw() if draw() < 0.01 else 0.0)

    def _sync_time(self) -> float:
        return 0.0002 + 0.002 * self._random.random()

    def _enqueue(self, call: _Call) -> None:
        if not self._process.alive:
            return
        if self._is_closed:
            if call.future is not None and not call.future.done():
                call.future.set_exception(OSError(errno.EBADF, f"{self.path} is closed"))
                if call.on_done is not None:
                    call.future.add_done_callback(call.on_done, context=call.context)
            return
        self._joinable = None
        self._lane.append(call)
        self._schedule()

    def joined(
        self, file: SimulatedFile, buffers: Sequence[Buffer], on_done: Callable[[asyncio.Future[int]], None] | None
    ) -> asyncio.Future[int] | None:
        """The future of the append that this one joins, if there is one."""
        found = self._joinable
        if found is None or found.file is not file or found.on_done is not on_done:
            return None
        found.buffers.extend(buffers)
        return found.future

    def may_be_joined(self, append: _Joinable) -> None:
        """Until the end of this turn, and until another call is made."""
        if self._world.is_writing_on_loop and self._process.alive and not self._is_closed:
            self._joinable = append
            self._world.loop.call_soon(self._end_turn, append, context=self._world.context)

    def _end_turn(self, append: _Joinable) -> None:
        if self._joinable is append:
            self._joinable = None

    def append_seconds(self) -> float:
        """How long an append takes: none where the production Disk writes on the loop."""
        seconds = self._short()
        is_on_loop = self._world.is_writing_on_loop and not self._lane and self._on_loop.random() < 0.7
        return 0.0 if is_on_loop else seconds

    def _schedule(self) -> None:
        if not self._lane or self._is_serving or self._is_waiting_for_wake:
            return
        world, image = self._world, self._image
        self._began = now = world.loop.time()
        if image.is_hung:
            self._is_waiting_for_wake = True
            image.waiting.append(self.wake)
            return
        self._is_serving = True
        seconds = self._lane[0].seconds
        if image.slow_s:
            seconds += image.slow_s * self._random.random()
        world.loop.call_at(now + seconds, self._serve, context=world.context)

    def wake(self) -> None:
        """The image hangs no longer."""
        self._is_waiting_for_wake = False
        if self._hanging:
            self._hanging = False
            self._end()
        elif not self._is_closed:
            self._schedule()

    def _serve(self) -> None:
        self._is_serving = False
        if self._is_closed or not self._process.alive:
            return
        if self._image.is_hung:
            self._is_waiting_for_wake = True
            self._image.waiting.append(self.wake)
            return
        if self._process.step():
            self._serve_one()
            if not self._lane or len(self._served) >= self._most_served:
                self._post()
            self._schedule()

    def _serve_one(self) -> None:
        call = self._lane.popleft()
        self._world.counters.disk_operations += 1
        error: OSError | None = None
        result: Any = None
        try:
            if call.group is not None and call.group.error is not None:
                raise call.group.error
            self._image.count_call()
            if self._image.failure is not None:
                for look in self._world.last_looks:
                    look()
                raise OSError(self._image.failure, os.strerror(self._image.failure), self.path)
            result = call.act()
        except OSError as raised:
            error = raised
            if call.group is not None:
                call.group.error = raised
            is_final = call.kind.startswith(("append ", "fsync", "truncate ", "write "))
            if is_final and raised.errno != errno.ENOSPC and self._append_error is None:
                self._append_error = raised
        self._world.trace.event("disk", self._process.name, call.kind, error.errno if error else 0)
        self._served.append((call, result, error))

    def _post(self) -> None:
        """All futures first: who is told of one sees that the others of the turn are done as well."""
        served, self._served = self._served, []
        if self._world.is_posting_together:
            self._most_served = self._posts.randrange(1, _MOST_POSTED + 1)
        told: list[tuple[_Call, asyncio.Future[Any]]] = []
        for call, result, error in served:
            future = call.future
            if future is None or future.done():
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)
            if call.on_done is not None:
                told.append((call, future))
        for call, future in told:
            assert call.context is not None and call.on_done is not None
            call.context.run(call.on_done, future)

    def _die(self, power_loss: bool) -> None:
        """The process is gone: a few queued calls may still have reached the kernel, the last one in part."""
        if not self._image.is_hung and not self._is_closed:
            reached = 0
            while reached < len(self._lane) and self._random.random() < 0.4:
                reached += 1
            for _ in range(reached):
                call = self._lane.popleft()
                call.future = None
                self._lane.appendleft(call)
                self._serve_one()
            if self._lane and self._random.random() < 0.5:
                partial = self._lane[0].partial
                if partial is not None and self._image.failure is None:
                    partial(self._random.random())
        self._lane.clear()
        self._served.clear()
        if self._image.holder is self:
            self._image.holder = None


class SimulatedFile:
    """See `ottla_broker.ports.disk.File`."""

    def __init__(self, disk: SimulatedDisk, name: str, node: FileNode) -> None:
        self.name = name
        self.is_open = True
        self._disk = disk
        self._node = node
        self._size = len(node.data)
        self._pins = 0
        self._closing: asyncio.Future[None] | None = None
        self._lack_of_room: OSError | None = None

    @property
    def size(self) -> int:
        return self._size

    def append(
        self, buffers: Sequence[Buffer], on_done: Callable[[asyncio.Future[int]], None] | None = None
    ) -> asyncio.Future[int]:
        disk = self._disk
        joined_to = disk.joined(self, buffers, on_done)
        if joined_to is not None:
            return joined_to
        pieces = list(buffers)

        def act() -> int:
            self._check_open()
            if disk._append_error is not None:
                raise disk._append_error
            if self._lack_of_room is not None:
                raise self._lack_of_room
            try:
                return self.append_now(pieces)
            except OSError as error:
                self._lack_of_room = error
                raise

        def part(fraction: float) -> None:
            data = joined(pieces)
            self._node.append(data[: int(len(data) * fraction)])

        seconds = disk.append_seconds()
        future: asyncio.Future[int] = disk.call(
            "append " + self.name, act, seconds=seconds, partial=part, on_done=on_done
        )
        if on_done is not None:
            disk.may_be_joined(_Joinable(self, on_done, pieces, future))
        return future

    def append_now(self, buffers: Sequence[Buffer]) -> int:
        """The effect of an append; gives the new size. OSError ENOSPC: there is no room, and nothing has been done."""
        disk = self._disk
        # Joined only now: a buffer that was changed after the call shows as a wrong byte, as it would in writev.
        data = joined(buffers)
        if disk._image.check_space(len(data)) < len(data):
            # The part that would have fitted is cut off again, as the lane does.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.name)
        self._node.append(data)
        self._node.modified_s = disk._world.loop.time()
        self._size = len(self._node.data)
        disk._world.trace.event("append", disk._process.name, self.name, self._size, zlib.crc32(data))
        return self._size

    def read(self, position: int, length: int) -> asyncio.Future[bytes]:
        def act() -> bytes:
            self._check_open()
            return bytes(memoryview(self._node.data)[position : position + length])

        return self._disk.read_now("read " + self.name, act)

    def range(self, position: int, length: int) -> SimulatedRange:
        if position < 0 or length < 0 or position + length > self._size:
            raise ValueError(f"{self.name}: range {position}+{length} is beyond the {self._size} bytes written")
        self._check_open()
        self._pins += 1
        return SimulatedRange(self, position, length)

    def is_cached(self, position: int, length: int) -> bool:
        return self._disk._random.random() < 0.9

    def read_ahead(self, position: int, length: int) -> asyncio.Future[None]:
        return self._disk.call("read-ahead " + self.name, self._check_open)

    def map(self) -> asyncio.Future[memoryview]:
        def act() -> memoryview:
            self._check_open()
            return memoryview(bytes(self._node.data))

        return self._disk.call("map " + self.name, act)

    def truncate(self, size: int) -> asyncio.Future[None]:
        def act() -> None:
            self._check_open()
            self._node.truncate(size)
            self._node.modified_s = self._disk._world.loop.time()
            self._size = len(self._node.data)
            self._lack_of_room = None

        self._node.cuts.append(size)
        return self._disk.call("truncate " + self.name, act)

    def fsync(self) -> asyncio.Future[None]:
        def act() -> None:
            self._check_open()
            if self._disk._append_error is not None:
                raise self._disk._append_error
            if self._lack_of_room is not None:
                raise self._lack_of_room
            self._node.sync()

        return self._disk.call("fsync " + self.name, act, seconds=self._disk._sync_time())

    def write_out(self) -> asyncio.Future[None]:
        return self._disk.write_out()

    def close(self) -> asyncio.Future[None]:
        closed: asyncio.Future[None] = self._disk._world.loop.create_future()
        if self._disk._is_closed:
            closed.set_result(None)
            return closed

        def act() -> None:
            self.is_open = False
            if self in self._disk._files:
                self._disk._files.remove(self)
            self._closing = closed
            self._close_when_unpinned()

        def failed(call: asyncio.Future[None]) -> None:
            error = None if call.cancelled() else call.exception()
            if error is not None and not closed.done():
                closed.set_exception(error)

        self._disk.call("close " + self.name, act).add_done_callback(failed)
        return closed

    def _close_when_unpinned(self) -> None:
        if self._closing is not None and not self._pins and not self._closing.done():
            self._closing.set_result(None)

    def _unpin(self) -> None:
        self._pins -= 1
        self._close_when_unpinned()

    def _check_open(self) -> None:
        if not self.is_open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.name)


class SimulatedRange:
    """See `ottla_broker.ports.disk.FileRange`. Reading a released one is a mistake of the caller."""

    def __init__(self, file: SimulatedFile, position: int, length: int) -> None:
        self.length = length
        self._file: SimulatedFile | None = file
        self._position = position
        self._cuts = file._node.cuts
        self._cuts_before = len(self._cuts)

    @property
    def is_stale(self) -> bool:
        since = self._cuts[self._cuts_before :]
        return bool(since) and min(since) < self._position + self.length

    def read(self) -> bytes:
        if self._file is None:
            raise AssertionError("a FileRange was read after its release")
        if self.is_stale:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), self._file.name)
        data = memoryview(self._file._node.data)
        return bytes(data[self._position : self._position + self.length])

    def release(self) -> None:
        if self._file is not None:
            self._file._unpin()
            self._file = None

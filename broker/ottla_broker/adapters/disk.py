"""The production Disk: the calls of a log directory run on its own lane, reads from the page cache on the loop.

Lives here: names, descriptors and pins, all on the loop. Not here: the thread and the order of calls (`lane.py`), the
system calls (`disk_calls.py`). Cached bytes are read at once with RWF_NOWAIT; on a file system that does not know it
(EOPNOTSUPP) every read goes through the lane. `write_out`, which takes long and needs no order, has a second lane.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from ottla_broker.adapters import disk_calls, disk_probe
from ottla_broker.adapters.descriptors import RESERVE
from ottla_broker.adapters.lane import BlockingCallGuard, Lane
from ottla_broker.adapters.lane_calls import LaneFile
from ottla_broker.adapters.pinned_range import FileTruncations, PinnedRange, Truncations
from ottla_broker.ports.disk import Buffer, Contents, File
from ottla_broker.ports.futures import pass_on

_WRITE_OUT_BYTES = 4 * 1024 * 1024
"""A sync of fewer bytes is fast enough without `write_out`."""

_INLINE_READ_BYTES = 1024 * 1024
"""Longer reads go through the lane even when cached: copying them would block the loop."""

LOCK_FILE = ".lock"

_Entries: TypeAlias = list[tuple[str, bool, int]]


class DiskFile:
    """See `ottla_broker.ports.disk.File`."""

    __slots__ = ("_closing", "_disk", "_lane", "_lane_file", "_pins", "_truncations", "_written_out", "name")

    def __init__(
        self, disk: DirectoryDisk, lane: Lane, name: str, fd: int, size: int, truncations: Truncations
    ) -> None:
        self.name = name
        self._disk = disk
        self._lane = lane
        self._lane_file = LaneFile(fd, size)
        self._pins = 0
        self._truncations = truncations
        self._written_out = size
        """`write_out` has been called for the bytes before this position, or they did not need it."""
        self._closing: asyncio.Future[None] | None = None

    @property
    def size(self) -> int:
        return self._lane_file.written

    def append(
        self, buffers: Sequence[Buffer], on_done: Callable[[asyncio.Future[int]], None] | None = None
    ) -> asyncio.Future[int]:
        return self._lane.append(self._lane_file, buffers, on_done)

    def read(self, position: int, length: int) -> asyncio.Future[bytes]:
        fd = self._lane_file.fd
        if self._closing is not None:
            return self._refused()
        wanted = min(length, self.size - position)
        if 0 < wanted <= _INLINE_READ_BYTES and self._disk.can_probe:
            try:
                data = disk_calls.read_cached(fd, position, wanted)
            except OSError as error:
                self._disk.cannot_probe(error)
            else:
                if data is not None:
                    future: asyncio.Future[bytes] = self._disk.loop.create_future()
                    future.set_result(data)
                    return future
        return self._lane.call(partial(disk_calls.read_at, fd, position, length))

    def range(self, position: int, length: int) -> PinnedRange:
        if position < 0 or length < 0 or position + length > self.size:
            raise ValueError(f"{self.name}: bytes {position}+{length} are not written (size {self.size})")
        if self._closing is not None:
            raise ValueError(f"{self.name}: the file is closed")
        self._pin()
        return PinnedRange(self, self._lane_file.fd, position, length, self._truncations)

    def is_cached(self, position: int, length: int) -> bool:
        if not self._disk.can_probe or self._closing is not None:
            return False
        try:
            return disk_calls.is_cached(self._lane_file.fd, position)
        except OSError as error:
            self._disk.cannot_probe(error)
            return False

    def read_ahead(self, position: int, length: int) -> asyncio.Future[None]:
        if self._closing is not None:
            return self._refused()
        return self._lane.call(partial(disk_calls.read_ahead, self._lane_file.fd, position, length))

    def map(self) -> asyncio.Future[memoryview]:
        if self._closing is not None:
            return self._refused()
        return self._lane.call(partial(disk_calls.map_file, self._lane_file.fd))

    def truncate(self, size: int) -> asyncio.Future[None]:
        self._truncations.sizes.append(size)
        return self._lane.call(partial(self._truncate, size), is_guarded=True)

    def fsync(self) -> asyncio.Future[None]:
        return self._lane.fsync(self._lane_file)

    def write_out(self) -> asyncio.Future[None]:
        if self._closing is not None or self.size - self._written_out < _WRITE_OUT_BYTES:
            done: asyncio.Future[None] = self._disk.loop.create_future()
            done.set_result(None)
            return done
        self._written_out = self.size
        self._pin()
        future = self._disk.write_out(self._lane_file.fd)
        future.add_done_callback(lambda _: self.unpin())
        return future

    def close(self) -> asyncio.Future[None]:
        if self._closing is None:
            self._closing = self._disk.loop.create_future()
            if not self._pins:
                self._close_now()
        return self._closing

    def _pin(self) -> None:
        self._pins += 1
        self._disk.pinned[self._lane_file.fd] = None

    def unpin(self) -> None:
        self._pins -= 1
        if not self._pins:
            self._disk.unpin(self._lane_file.fd)
            if self._closing is not None:
                self._close_now()

    def _refused(self) -> asyncio.Future[Any]:
        """Refuses a read after `close`: the number of the descriptor may name another file when the lane gets to it."""
        future: asyncio.Future[Any] = self._disk.loop.create_future()
        future.set_exception(OSError(errno.EBADF, "the file is closed", self.name))
        return future

    def _close_on_lane(self) -> None:
        fd, self._lane_file.fd = self._lane_file.fd, -1
        self._disk.close_descriptor(fd)

    def _truncate(self, size: int) -> None:
        os.ftruncate(self._lane_file.fd, size)
        self._lane_file.written = size
        self._written_out = min(self._written_out, size)
        self._lane_file.lack_of_room = None

    def _close_now(self) -> None:
        closing = self._closing
        assert closing is not None
        if closing.done():
            return
        closed = self._lane.call(self._close_on_lane)
        closed.add_done_callback(partial(pass_on, target=closing))


class DirectoryDisk:
    """See `ottla_broker.ports.disk.LogDisk`. Used on one loop; the thread starts with the first call."""

    def __init__(
        self,
        path: str,
        loop: asyncio.AbstractEventLoop | None = None,
        guard: BlockingCallGuard | None = None,
    ) -> None:
        """`path` is kept as given, for messages; a relative path needs the same working directory. `guard`: as of
        `Lane`."""
        self.path = path
        self.loop = loop or asyncio.get_running_loop()
        self._guard = guard
        self.can_probe = True
        self._root = os.path.abspath(path)
        self._lane = Lane(self.loop, path, guard)
        self._writing_out = Lane(self.loop, f"{path}, writing out")
        """For `write_out`: no other call waits for it."""
        self.pinned: dict[int, None] = {}
        """Descriptors that a FileRange needs: they stay open after `close`, so that their numbers do not name another
        file while a socket sends from them."""
        self._descriptors: dict[int, None] = {}
        self._truncations = FileTruncations()
        """Used on the lane only."""
        self._lock: int | None = None
        self._is_closed = False
        self._is_offline = False
        self._place: tuple[int, int] | None = None
        """(device, inode) of the directory that was locked: another one at this path is not used."""

    def open(self, name: str, *, create: bool = False) -> asyncio.Future[File]:
        return self._lane.call(partial(self._open, name, create))

    def read_file(self, name: str) -> asyncio.Future[bytes]:
        return self._call(disk_calls.read_file, name)

    def write_file(self, name: str, data: bytes, *, is_private: bool = False) -> asyncio.Future[None]:
        return self._lane.call(_brief(self._write_file, name, data, is_private), is_guarded=True)

    def append_to(self, name: str, buffers: Sequence[Buffer]) -> asyncio.Future[int]:
        return self._lane.call(_brief(self._append_to, name, buffers), is_guarded=True)

    def fsync_file(self, name: str) -> asyncio.Future[None]:
        return self._lane.call(_brief(disk_calls.fsync_file, self._path(name)), is_guarded=True)

    def read_directories(
        self, names: Sequence[str], endings: tuple[str, ...], up_to_bytes: int
    ) -> asyncio.Future[Sequence[Contents]]:
        paths = [self._path(name) for name in names]
        return self._lane.call(_brief(disk_calls.read_directories, paths, endings, up_to_bytes))

    def exists(self, name: str) -> asyncio.Future[bool]:
        return self._call(os.path.exists, name)

    def modified_ms(self, name: str) -> asyncio.Future[int]:
        return self._call(disk_calls.modified_ms, name)

    def list(self, name: str = "") -> asyncio.Future[_Entries]:
        return self._call(disk_calls.list_directory, name)

    def make_directory(self, name: str) -> asyncio.Future[None]:
        return self._call(disk_calls.make_directory, name)

    def rename(self, old: str, new: str) -> asyncio.Future[None]:
        return self._lane.call(partial(self._rename, old, new))

    def delete(self, name: str) -> asyncio.Future[None]:
        if not name:
            raise ValueError("the log directory itself is not deleted")
        return self._call(disk_calls.delete, name)

    def fsync_directory(self, name: str = "") -> asyncio.Future[None]:
        return self._lane.call(_brief(disk_calls.fsync_directory, self._path(name)), is_guarded=True)

    def lock(self) -> asyncio.Future[bool]:
        return self._lane.call(self._take_lock)

    def free_bytes(self) -> asyncio.Future[int]:
        return self._call(disk_calls.free_bytes, "")

    def total_bytes(self) -> asyncio.Future[int]:
        return self._call(disk_calls.total_bytes, "")

    def boot_id(self) -> str:
        return disk_calls.boot_id()

    def check_space(self) -> asyncio.Future[tuple[int, int]]:
        return self._lane.call(self._check_space)

    def silent_s(self) -> float:
        return self._lane.silent_s()

    def probe(self) -> asyncio.Future[None]:
        return disk_probe.probe(self.loop, self._root, self._place)

    def take_offline(self, error: OSError) -> None:
        self._is_closed = self._is_offline = True
        self._writing_out.take_offline(error, _nothing)
        self._lane.take_offline(error, self._close_all)

    @property
    def has_ended(self) -> bool:
        return self._lane.has_ended and self._writing_out.has_ended

    def reopened(self) -> DirectoryDisk:
        return DirectoryDisk(self.path, self.loop, self._guard)

    def close(self) -> None:
        """Cancels queued calls, as a crash would: a clean shutdown awaits what it needs first."""
        self._is_closed = True
        self._writing_out.close(_nothing)
        self._lane.close(self._close_all)

    def write_out(self, fd: int) -> asyncio.Future[None]:
        """See `File.write_out`; the caller pins the descriptor until this is done."""
        done: asyncio.Future[None] = self.loop.create_future()
        written = self._writing_out.call(partial(disk_calls.write_out, fd))
        written.add_done_callback(partial(_settle, done))
        return done

    def cannot_probe(self, error: OSError) -> None:
        """Reads through the lane from now on when the file system does not know RWF_NOWAIT."""
        if error.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            self.can_probe = False

    def unpin(self, fd: int) -> None:
        """The last range of the descriptor is released: closes it if the disk is closed or offline."""
        self.pinned.pop(fd, None)
        if self._is_offline:
            # Some file systems (FUSE, NFS) wait for the disk when a file is closed.
            threading.Thread(target=self.close_descriptor, args=(fd,), name=f"closes {self.path}", daemon=True).start()
        elif self._is_closed:
            self.close_descriptor(fd)

    # -- on the thread of the lane ----------------------------------------------------------------------------

    def close_descriptor(self, fd: int) -> None:
        """Closes a descriptor once, whichever threads call."""
        if self._descriptors.pop(fd, False) is None:
            os.close(fd)

    def _check_place(self) -> None:
        """Raises OSError when the mount is gone: new files would go to the file system below it."""
        if self._place is not None and disk_probe.locate(self._root) != self._place:
            raise OSError(errno.ENODEV, "another directory, or none, is at the path now: the mount is gone", self._root)

    def _check_space(self) -> tuple[int, int]:
        self._check_place()
        return disk_probe.check_space(self._root)

    def _write_file(self, name: str, data: bytes, is_private: bool) -> None:
        self._check_place()
        disk_calls.write_file(self._path(name), data, is_private)

    def _append_to(self, name: str, buffers: Sequence[Buffer]) -> int:
        self._check_place()
        return disk_calls.append_to(self._path(name), buffers)

    def _rename(self, old: str, new: str) -> None:
        self._check_place()
        os.rename(self._path(old), self._path(new))

    def _open(self, name: str, create: bool) -> DiskFile:
        if create:
            self._check_place()
        fd, size, file = disk_calls.open_file(self._path(name), create)
        self._descriptors[fd] = None
        return DiskFile(self, self._lane, name, fd, size, self._truncations.of(file))

    def _take_lock(self) -> bool:
        if self._lock is None:
            self._lock = disk_calls.lock_file(self._path(LOCK_FILE))
            self._place = disk_probe.locate(self._root)
        return self._lock is not None

    def _close_all(self) -> None:
        for fd in tuple(self._descriptors):
            if fd not in self.pinned:
                try:
                    self.close_descriptor(fd)
                except OSError:
                    # A dead disk may fail here as well; the descriptor is closed all the same.
                    continue
        if self._lock is not None:
            lock, self._lock = self._lock, None
            try:
                os.close(lock)
            except OSError:
                return

    # -- on the loop or the lane ----------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return os.path.join(self._root, name) if name else self._root

    def _call(self, call: Callable[[str], Any], name: str) -> asyncio.Future[Any]:
        return self._lane.call(_brief(call, self._path(name)))


def _brief(call: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    """A call that leaves no descriptor open: it uses the reserve when no descriptor is left."""
    return partial(RESERVE.run, partial(call, *arguments))


def _nothing() -> None:
    return


def _settle(target: asyncio.Future[None], source: asyncio.Future[None]) -> None:
    """Completes `target` without the error of `source`."""
    if source.cancelled():
        target.cancel()
        return
    source.exception()
    if not target.done():
        target.set_result(None)

"""The Disk of a worker process: every call runs at once, and its future is done when it returns.

A worker process has one job, so it needs no lane. Not for a broker's loop, which a hung disk would block.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ottla_broker.adapters import disk_calls
from ottla_broker.adapters.pinned_range import FileTruncations, PinnedRange, Truncations
from ottla_broker.ports.disk import Buffer, Contents, File

_Entries: TypeAlias = list[tuple[str, bool, int]]


def _done(call: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
    """A future that has the result, or the OSError, of the call."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    try:
        future.set_result(call(*arguments))
    except OSError as error:
        future.set_exception(error)
        future.exception()  # the caller may drop it
    return future


class DirectFile:
    """See `ottla_broker.ports.disk.File`."""

    __slots__ = ("_disk", "_fd", "_is_closing", "_pins", "_size", "_truncations", "name")

    def __init__(self, disk: DirectDisk, name: str, fd: int, size: int, truncations: Truncations) -> None:
        self.name = name
        self._disk = disk
        self._fd = fd
        self._size = size
        self._pins = 0
        self._truncations = truncations
        self._is_closing = False

    @property
    def size(self) -> int:
        return self._size

    def append(
        self, buffers: Sequence[Buffer], on_done: Callable[[asyncio.Future[int]], None] | None = None
    ) -> asyncio.Future[int]:
        future: asyncio.Future[int] = self._disk.guarded(self._append, buffers)
        if on_done is not None:
            future.add_done_callback(on_done)
        return future

    def read(self, position: int, length: int) -> asyncio.Future[bytes]:
        return _done(disk_calls.read_at, self._fd, position, length)

    def range(self, position: int, length: int) -> PinnedRange:
        if position < 0 or length < 0 or position + length > self._size:
            raise ValueError(f"{self.name}: bytes {position}+{length} are not written (size {self._size})")
        if self._is_closing:
            raise ValueError(f"{self.name}: the file is closed")
        self._pins += 1
        return PinnedRange(self, self._fd, position, length, self._truncations)

    def is_cached(self, position: int, length: int) -> bool:
        try:
            return disk_calls.is_cached(self._fd, position)
        except OSError:
            return False

    def read_ahead(self, position: int, length: int) -> asyncio.Future[None]:
        return _done(disk_calls.read_ahead, self._fd, position, length)

    def map(self) -> asyncio.Future[memoryview]:
        return _done(disk_calls.map_file, self._fd)

    def truncate(self, size: int) -> asyncio.Future[None]:
        self._truncations.sizes.append(size)
        return self._disk.guarded(self._truncate, size)

    def fsync(self) -> asyncio.Future[None]:
        return self._disk.guarded(os.fdatasync, self._fd)

    def write_out(self) -> asyncio.Future[None]:
        return _done(lambda: None)

    def close(self) -> asyncio.Future[None]:
        if not self._is_closing:
            self._is_closing = True
            if not self._pins:
                self._disk.close_descriptor(self._fd)
        return _done(lambda: None)

    def unpin(self) -> None:
        self._pins -= 1
        if not self._pins and self._is_closing:
            self._disk.close_descriptor(self._fd)

    def _append(self, buffers: Sequence[Buffer]) -> int:
        self._size += disk_calls.write_all(self._fd, buffers)
        return self._size

    def _truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._size = size


class DirectDisk:
    """See `ottla_broker.ports.disk.Disk`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._root = os.path.abspath(path)
        self._descriptors: dict[int, None] = {}
        self._truncations = FileTruncations()
        self._lock: int | None = None
        self._failure: OSError | None = None
        self._is_closed = False

    def open(self, name: str, *, create: bool = False) -> asyncio.Future[File]:
        return _done(self._open, name, create)

    def read_file(self, name: str) -> asyncio.Future[bytes]:
        return _done(self._on_path, disk_calls.read_file, name)

    def write_file(self, name: str, data: bytes, *, is_private: bool = False) -> asyncio.Future[None]:
        return self.guarded(self._on_path, disk_calls.write_file, name, data, is_private)

    def append_to(self, name: str, buffers: Sequence[Buffer]) -> asyncio.Future[int]:
        return self.guarded(self._on_path, disk_calls.append_to, name, buffers)

    def fsync_file(self, name: str) -> asyncio.Future[None]:
        return self.guarded(self._on_path, disk_calls.fsync_file, name)

    def read_directories(
        self, names: Sequence[str], endings: tuple[str, ...], up_to_bytes: int
    ) -> asyncio.Future[Sequence[Contents]]:
        paths = [self._path(name) for name in names]
        return _done(disk_calls.read_directories, paths, endings, up_to_bytes)

    def exists(self, name: str) -> asyncio.Future[bool]:
        return _done(self._on_path, os.path.exists, name)

    def modified_ms(self, name: str) -> asyncio.Future[int]:
        return _done(self._on_path, disk_calls.modified_ms, name)

    def list(self, name: str = "") -> asyncio.Future[_Entries]:
        return _done(self._on_path, disk_calls.list_directory, name)

    def make_directory(self, name: str) -> asyncio.Future[None]:
        return _done(self._on_path, disk_calls.make_directory, name)

    def rename(self, old: str, new: str) -> asyncio.Future[None]:
        return _done(self._rename, old, new)

    def delete(self, name: str) -> asyncio.Future[None]:
        if not name:
            raise ValueError("the log directory itself is not deleted")
        return _done(self._on_path, disk_calls.delete, name)

    def fsync_directory(self, name: str = "") -> asyncio.Future[None]:
        return self.guarded(self._on_path, disk_calls.fsync_directory, name)

    def lock(self) -> asyncio.Future[bool]:
        return _done(self._take_lock)

    def free_bytes(self) -> asyncio.Future[int]:
        return _done(disk_calls.free_bytes, self._root)

    def total_bytes(self) -> asyncio.Future[int]:
        return _done(disk_calls.total_bytes, self._root)

    def boot_id(self) -> str:
        return disk_calls.boot_id()

    def close(self) -> None:
        self._is_closed = True
        for fd in tuple(self._descriptors):
            self.close_descriptor(fd)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def guarded(self, call: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """A write: after one has failed, all later ones fail."""
        return _done(self._guard, call, arguments)

    def close_descriptor(self, fd: int) -> None:
        if fd in self._descriptors:
            del self._descriptors[fd]
            os.close(fd)

    def _on_path(self, call: Callable[..., Any], name: str, *arguments: Any) -> Any:
        return call(self._path(name), *arguments)

    def _rename(self, old: str, new: str) -> None:
        os.rename(self._path(old), self._path(new))

    def _guard(self, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if self._failure is not None:
            raise OSError(self._failure.errno, f"an earlier write of this directory failed: {self._failure}")
        try:
            return call(*arguments)
        except OSError as error:
            self._failure = error
            raise

    def _open(self, name: str, create: bool) -> DirectFile:
        fd, size, file = disk_calls.open_file(self._path(name), create)
        self._descriptors[fd] = None
        return DirectFile(self, name, fd, size, self._truncations.of(file))

    def _take_lock(self) -> bool:
        if self._lock is None:
            self._lock = disk_calls.lock_file(self._path(".lock"))
        return self._lock is not None

    def _path(self, name: str) -> str:
        if self._is_closed:
            raise OSError(errno.EBADF, "the disk is closed", self.path)
        return os.path.join(self._root, name) if name else self._root

"""The blocking file calls of both production Disks, on absolute paths or descriptors.

Lives here: the system calls and their order (what is synced before what is renamed). Not here: which thread makes them
and in which order they are queued: `lane.py` calls them on the thread of a directory, `direct_disk.py` directly in a
worker process.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

from ottla_broker.ports.disk import Buffer, Contents

_IOV_MAX = 1024
"""Linux takes at most this many buffers in one writev."""

_FLOCK = struct.Struct("@hhqqi4x")
"""struct flock of 64-bit Linux: type, whence, start, length, pid (0 for open-file-description locks)."""

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def write_all(descriptor: int, buffers: Sequence[Buffer]) -> int:
    """Writes every byte at the descriptor's position (files are opened with O_APPEND). Returns the bytes written.

    One writev unless there are more than 1024 buffers or the kernel writes only a part. Raises OSError; then some bytes
    may be in the file.
    """
    total = 0
    if len(buffers) <= _IOV_MAX:
        expected = sum(map(len, buffers))
        if not expected:
            return 0
        total = os.writev(descriptor, buffers)
        if total == expected:
            return total
    rest = [memoryview(buffer) for buffer in buffers if len(buffer)]
    skip = total
    start = 0
    while start < len(rest):
        if skip >= len(rest[start]):
            skip -= len(rest[start])
            start += 1
            continue
        if skip:
            rest[start] = rest[start][skip:]
        skip = os.writev(descriptor, rest[start : start + _IOV_MAX])
        if not skip:
            raise OSError(errno.EIO, "the kernel took no byte of a write")
        total += skip
    return total


def open_file(path: str, create: bool) -> tuple[int, int, tuple[int, int]]:
    """Opens for reading and appending. Returns the descriptor, the size, and (device, inode)."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    descriptor = os.open(path, flags, 0o644)
    found = os.fstat(descriptor)
    return descriptor, found.st_size, (found.st_dev, found.st_ino)


def read_at(descriptor: int, position: int, length: int) -> bytes:
    """Reads up to `length` bytes; fewer only at the end of the file."""
    data = os.pread(descriptor, length, position)
    if len(data) == length or not data:
        return data
    parts = [data]
    have = len(data)
    while have < length:
        more = os.pread(descriptor, length - have, position + have)
        if not more:
            break
        parts.append(more)
        have += len(more)
    return b"".join(parts)


def read_cached(descriptor: int, position: int, length: int) -> bytes | None:
    """The bytes if all of them are in the page cache, else None. Raises OSError EOPNOTSUPP when the file system does
    not know RWF_NOWAIT."""
    data = bytearray(length)
    try:
        got = os.preadv(descriptor, [data], position, os.RWF_NOWAIT)
    except BlockingIOError:
        return None
    if got < length:
        return None
    return bytes(data)


def is_cached(descriptor: int, position: int) -> bool:
    """Whether the byte at `position` is in the page cache (True past the end). Raises OSError EOPNOTSUPP."""
    try:
        os.preadv(descriptor, [bytearray(1)], position, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    return True


def read_ahead(descriptor: int, position: int, length: int) -> None:
    """Reads the range into the page cache and drops the bytes."""
    buffer = bytearray(min(length, 256 * 1024))
    end = position + length
    os.posix_fadvise(descriptor, position, length, os.POSIX_FADV_WILLNEED)
    while position < end:
        got = os.preadv(descriptor, [memoryview(buffer)[: end - position]], position)
        if not got:
            return
        position += got


def map_file(descriptor: int) -> memoryview:
    """Maps the whole file read-only; empty for an empty file. The mapping ends with the last view of it."""
    if not os.fstat(descriptor).st_size:
        return memoryview(b"")
    return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))


def read_file(path: str) -> bytes:
    """The contents of a file."""
    with open(path, "rb") as file:
        return file.read()


def write_file(path: str, data: bytes, is_private: bool = False) -> None:
    """Replaces a file durably and atomically: `<path>.tmp`, fsync, rename, fsync of the directory."""
    temporary = path + ".tmp"
    mode = 0o600 if is_private else 0o644
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        write_all(descriptor, [data])
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, path)
    fsync_directory(os.path.dirname(path))


def append_to(path: str, buffers: Sequence[Buffer]) -> int:
    """Appends to a file that is not open, creating it if absent. Returns its size. A failed append leaves nothing."""
    descriptor, size, _ = open_file(path, create=True)
    try:
        return size + write_all(descriptor, buffers)
    except OSError:
        os.ftruncate(descriptor, size)
        raise
    finally:
        os.close(descriptor)


def write_out(descriptor: int) -> None:
    """Writes and syncs an open file through an open file description of its own, and ignores failures: Linux reports a
    failure once to each description that was open, so a later sync through `descriptor` reports it too."""
    try:
        own = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.fdatasync(own)
    except OSError:
        return
    finally:
        os.close(own)


def fsync_file(path: str) -> None:
    """Every failure is EIO, lack of room too: a file system that finds it so late has lost what was written."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(descriptor)
    except OSError as failure:
        raise OSError(errno.EIO, f"a sync failed: {failure}", path) from failure
    finally:
        os.close(descriptor)


def read_directories(paths: Sequence[str], endings: tuple[str, ...], up_to_bytes: int) -> list[Contents]:
    """The entries of each directory, with the bytes of small files whose names end with one of `endings`."""
    found: list[Contents] = []
    for path in paths:
        contents: Contents = {}
        for name, is_directory, size in list_directory(path):
            is_wanted = not is_directory and size <= up_to_bytes and name.endswith(endings)
            data: bytes | None = None
            if is_wanted:
                # An empty file need not be opened to be read; many indexes are.
                data = read_file(f"{path}/{name}") if size else b""
            contents[name] = (is_directory, size, data)
        found.append(contents)
    return found


def list_directory(path: str) -> list[tuple[str, bool, int]]:
    """(name, is_directory, size in bytes), sorted by name, without entries that are deleted meanwhile."""
    entries: list[tuple[str, bool, int]] = []
    with os.scandir(path) as scan:
        for entry in scan:
            try:
                is_directory = entry.is_dir()
                entries.append((entry.name, is_directory, 0 if is_directory else entry.stat().st_size))
            except FileNotFoundError:
                continue
    entries.sort()
    return entries


def make_directory(path: str) -> None:
    """Creates a directory and its parents, if absent."""
    os.makedirs(path, exist_ok=True)


def delete(path: str) -> None:
    """Deletes a file, or a directory with its contents; does nothing when it is absent."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except IsADirectoryError:
        shutil.rmtree(path)


def fsync_directory(path: str) -> None:
    """Makes the names in a directory durable. Every failure is EIO, as with `fsync_file`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as failure:
        raise OSError(errno.EIO, f"a sync failed: {failure}", path) from failure
    finally:
        os.close(descriptor)


def lock_file(path: str) -> int | None:
    """Locks the file exclusively. Returns the descriptor that has the lock, None when another one has it.

    An open-file-description lock: it conflicts with the POSIX lock that a JVM takes on the same file, and also with a
    second broker in this process.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except (BlockingIOError, PermissionError):
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def modified_ms(path: str) -> int:
    """When the file was last written, in wall-clock ms."""
    return os.stat(path).st_mtime_ns // 1_000_000


def free_bytes(path: str) -> int:
    """Bytes that an unprivileged process may still write."""
    stat = os.statvfs(path)
    return stat.f_bavail * stat.f_frsize


def total_bytes(path: str) -> int:
    """The size of the file system."""
    stat = os.statvfs(path)
    return stat.f_blocks * stat.f_frsize


def boot_id() -> str:
    """The kernel's boot id; "" where the kernel has none, and then no power loss is ever detected."""
    try:
        return Path(_BOOT_ID).read_text().strip()
    except OSError:
        return ""

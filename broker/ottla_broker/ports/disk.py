"""The Disk port: the only way to a file. One Disk per log directory; names are relative to it ("t-0/0.log").

Completion-based: every call gives a future, which the adapter may already have completed (a read that the page cache
holds, anything in a worker process). Calls on one Disk take effect in the order they were made (one lane), so an
fsync after an append covers it. Futures are completed on the broker's event loop. Errors are OSError with errno;
after a failed append the same file and every later append of the directory fail too. Lack of room (ENOSPC, EDQUOT) is
less: nothing of such an append is left, and appends and syncs of that file fail until it is truncated; others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

Contents: TypeAlias = dict[str, tuple[bool, int, bytes | None]]
"""A directory's entries by name: is_directory, size in bytes, and the bytes of a small file that was asked for."""


class FileRange(Protocol):
    """A run of bytes of a file, pinned: the file stays readable until `release`, even if deleted meanwhile.

    When the file is cut below its end it is stale, from the call of `truncate` on: other bytes may come to stand there.
    That holds for whichever open File of it was told to.

    `Connection.send` consumes it with sendfile and releases it; whoever drops one unsent releases it.
    """

    length: int

    @property
    def is_stale(self) -> bool: ...

    def release(self) -> None: ...

    def read(self) -> bytes:
        """The bytes themselves (conversion, TLS, the simulator). Does not release. OSError ESTALE when it is stale."""
        ...


class File(Protocol):
    """An open file. Position arguments and sizes are bytes."""

    name: str

    @property
    def size(self) -> int:
        """Bytes written so far: appends count once completed."""
        ...

    def append(
        self, buffers: Sequence[Buffer], on_done: Callable[[asyncio.Future[int]], None] | None = None
    ) -> asyncio.Future[int]:
        """Writes at the end in one vectored write; completes with the new `size`.

        Buffers must not change until then. `on_done` gets the future once it is done, never within this call, and
        where the adapter can in the same turn of the loop: a turn earlier than the future's own callbacks.
        """
        ...

    def read(self, position: int, length: int) -> asyncio.Future[bytes]:
        """Up to `length` bytes (fewer only at the end of the file)."""
        ...

    def range(self, position: int, length: int) -> FileRange:
        """Pins bytes that are already written (position + length <= size)."""
        ...

    def is_cached(self, position: int, length: int) -> bool:
        """True when the page cache holds the start of the range, so that sending it does not wait for the disk."""
        ...

    def read_ahead(self, position: int, length: int) -> asyncio.Future[None]:
        """Brings the range into the page cache on the lane."""
        ...

    def map(self) -> asyncio.Future[memoryview]:
        """The whole file read-only (closed indexes); empty for an empty file."""
        ...

    def truncate(self, size: int) -> asyncio.Future[None]: ...

    def fsync(self) -> asyncio.Future[None]: ...

    def write_out(self) -> asyncio.Future[None]:
        """Has the disk written what the page cache holds of the file, beside all other calls: none of them waits for
        it, and an `fsync` that follows has little left to do. It promises nothing and never fails: what it meets,
        `fsync` meets again."""
        ...

    def close(self) -> asyncio.Future[None]:
        """Closes once the last FileRange is released."""
        ...


class Disk(Protocol):
    """One log directory."""

    path: str
    """The configured path, for messages and for Workers."""

    def open(self, name: str, *, create: bool = False) -> asyncio.Future[File]:
        """Opens for reading and appending. FileNotFoundError without `create`."""
        ...

    def read_file(self, name: str) -> asyncio.Future[bytes]:
        """A small file whole; FileNotFoundError when absent."""
        ...

    def write_file(self, name: str, data: bytes, *, is_private: bool = False) -> asyncio.Future[None]:
        """Replaces a small file durably and atomically: `<name>.tmp`, fsync, rename, fsync of its directory.

        A private file can be read by the broker's user alone (mode 0600): it holds a secret.
        """
        ...

    def append_to(self, name: str, buffers: Sequence[Buffer]) -> asyncio.Future[int]:
        """As `open(create=True)`, `File.append` and `File.close` in one call: for files that are written too rarely to
        be worth a descriptor. Completes with the file's size; a failure counts as that of an append, but for lack of
        room: that leaves the file as it was, and the next call is free to try again."""
        ...

    def fsync_file(self, name: str) -> asyncio.Future[None]:
        """As `File.fsync`, for a file that is not kept open. FileNotFoundError when absent."""
        ...

    def exists(self, name: str) -> asyncio.Future[bool]: ...

    def modified_ms(self, name: str) -> asyncio.Future[int]:
        """When a file was last written, in ms of the wall clock. FileNotFoundError when absent."""
        ...

    def read_directories(
        self, names: Sequence[str], endings: tuple[str, ...], up_to_bytes: int
    ) -> asyncio.Future[Sequence[Contents]]:
        """The entries of several directories in one call, in the order of `names`; the bytes too of files of at most
        `up_to_bytes` whose names end with one of `endings`. FileNotFoundError when a directory is absent."""
        ...

    def list(self, name: str = "") -> asyncio.Future[list[tuple[str, bool, int]]]:
        """Entries of a directory as (name, is_directory, size in bytes), sorted by name."""
        ...

    def make_directory(self, name: str) -> asyncio.Future[None]:
        """Parents included; an existing one is fine ("" makes the log directory itself)."""
        ...

    def rename(self, old: str, new: str) -> asyncio.Future[None]:
        """Atomic, for files and directories; open files stay usable. Not durable before fsync_directory."""
        ...

    def delete(self, name: str) -> asyncio.Future[None]:
        """A file, or a directory with all it holds; an absent one is fine."""
        ...

    def fsync_directory(self, name: str = "") -> asyncio.Future[None]: ...

    def lock(self) -> asyncio.Future[bool]:
        """Takes the directory's `.lock` for this process's life or until `close`; False when another holds it."""
        ...

    def free_bytes(self) -> asyncio.Future[int]: ...

    def total_bytes(self) -> asyncio.Future[int]: ...

    def boot_id(self) -> str:
        """The kernel's boot id: a change of it without a clean shutdown means power loss."""
        ...

    def close(self) -> None:
        """Gives the lock back and ends the lane; open files are closed."""
        ...


class LogDisk(Disk, Protocol):
    """The Disk of one of a broker's log directories: it can be watched, given up while a call hangs, and had anew."""

    def look(self) -> asyncio.Future[tuple[int, int]]:
        """(free, total) bytes, in the order of the lane. OSError when the mount is gone or read-only."""
        ...

    def silent_s(self) -> float:
        """For how long the call under way has not returned; 0.0 without one."""
        ...

    def probe(self) -> asyncio.Future[None]:
        """Writes and syncs a few bytes beside the lane: a disk that is only busy answers, a dead one does not.

        OSError when that fails, or when another directory is at the path than the one that was locked; a full one
        passes. It may never be done.
        """
        ...

    def give_up(self, error: OSError) -> None:
        """Fails every call that waits, the one under way too, and all later ones; waits for nothing."""
        ...

    @property
    def has_ended(self) -> bool:
        """After `give_up` or `close`: no call is under way any more, and the lock is given back."""
        ...

    def reopened(self) -> LogDisk:
        """Another Disk on the same directory, for when this one has ended."""
        ...

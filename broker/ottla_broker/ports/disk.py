"""The Disk port: the files of one log directory. Names are relative to the directory ("t-0/0.log").

Every call returns a future, which may be done already (a read from the page cache, every call in a worker process).
Calls on one Disk take effect in the order in which they are made (one lane), so an fsync after an append covers it.
Futures complete on the broker's event loop. Errors are OSErrors with errno.

After a failed append, that append's file and every later append to the directory fail too. After lack of room (ENOSPC,
EDQUOT) only the file is affected: nothing of the append is left, and appends and syncs of the file fail until it is
truncated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

Contents: TypeAlias = dict[str, tuple[bool, int, bytes | None]]
"""The entries of a directory by name: is_directory, size in bytes, and the bytes of a small file if requested."""


class FileRange(Protocol):
    """A pinned range of a file: it can be read until `release`, even if the file is deleted meanwhile.

    It is stale once `truncate` is called below its end, on whichever open File: other bytes may be written there.
    `Connection.send` sends it with sendfile and releases it; whoever does not send it releases it.
    """

    length: int

    @property
    def is_stale(self) -> bool:
        """Whether the file was truncated below the end of the range."""
        ...

    def release(self) -> None:
        """Unpins the range."""
        ...

    def read(self) -> bytes:
        """The bytes (for conversion, TLS, the simulator). Does not release. OSError ESTALE when it is stale."""
        ...


class File(Protocol):
    """An open file. Position arguments and sizes are bytes."""

    name: str

    @property
    def size(self) -> int:
        """Bytes written: an append counts once it is complete."""
        ...

    def append(
        self, buffers: Sequence[Buffer], on_done: Callable[[asyncio.Future[int]], None] | None = None
    ) -> asyncio.Future[int]:
        """Appends the buffers in one vectored write; completes with the new `size`.

        Appends with the same `on_done` in one turn of the loop may be joined. Then they succeed or fail together, share
        one future, which completes with the size behind the last of them, and `on_done` is called once.

        Args:
            buffers: must not change until the future is done.
            on_done: called with the future once it is done, never within this call; if the adapter can, in the same
                turn of the loop, one turn before the future's own callbacks.
        """
        ...

    def read(self, position: int, length: int) -> asyncio.Future[bytes]:
        """Reads up to `length` bytes; fewer only at the end of the file."""
        ...

    def range(self, position: int, length: int) -> FileRange:
        """Pins bytes that are written (position + length <= size)."""
        ...

    def is_cached(self, position: int, length: int) -> bool:
        """Whether the page cache holds the start of the range: then sending it does not wait for the disk."""
        ...

    def read_ahead(self, position: int, length: int) -> asyncio.Future[None]:
        """Reads the range into the page cache, on the lane."""
        ...

    def map(self) -> asyncio.Future[memoryview]:
        """Maps the whole file read-only (closed indexes); empty for an empty file."""
        ...

    def truncate(self, size: int) -> asyncio.Future[None]:
        """Truncates the file to `size` bytes."""
        ...

    def fsync(self) -> asyncio.Future[None]:
        """Returns once every earlier append is durable."""
        ...

    def write_out(self) -> asyncio.Future[None]:
        """Writes the file's pages to the disk beside the lane, so that a later `fsync` has little left to do. Promises
        nothing and never fails: a later `fsync` reports the error."""
        ...

    def close(self) -> asyncio.Future[None]:
        """Closes the file once its last FileRange is released."""
        ...


class Disk(Protocol):
    """The files of one log directory. See the module."""

    path: str
    """The path as configured, for messages and for Workers."""

    def open(self, name: str, *, create: bool = False) -> asyncio.Future[File]:
        """Opens a file for reading and appending. FileNotFoundError when it is absent, without `create`."""
        ...

    def read_file(self, name: str) -> asyncio.Future[bytes]:
        """Reads a small file. FileNotFoundError when absent."""
        ...

    def write_file(self, name: str, data: bytes, *, is_private: bool = False) -> asyncio.Future[None]:
        """Replaces a small file durably and atomically: `<name>.tmp`, fsync, rename, fsync of its directory.

        `is_private`: the file holds a secret, only the broker's user can read it (mode 0600).
        """
        ...

    def append_to(self, name: str, buffers: Sequence[Buffer]) -> asyncio.Future[int]:
        """`open(create=True)`, `File.append` and `File.close` in one call, for files that are written rarely.

        Completes with the file's size. A failure counts as a failed append, except for lack of room: that leaves the
        file as it was, and the next call may try again.
        """
        ...

    def fsync_file(self, name: str) -> asyncio.Future[None]:
        """`File.fsync` for a file that is not open. FileNotFoundError when absent."""
        ...

    def exists(self, name: str) -> asyncio.Future[bool]:
        """Whether there is a file or directory of this name."""
        ...

    def modified_ms(self, name: str) -> asyncio.Future[int]:
        """When the file was last written, in wall-clock ms. FileNotFoundError when absent."""
        ...

    def read_directories(
        self, names: Sequence[str], endings: tuple[str, ...], up_to_bytes: int
    ) -> asyncio.Future[Sequence[Contents]]:
        """Reads the entries of several directories in one call, in the order of `names`, with the bytes of files of at
        most `up_to_bytes` whose names end with one of `endings`. FileNotFoundError when a directory is absent."""
        ...

    def list(self, name: str = "") -> asyncio.Future[list[tuple[str, bool, int]]]:
        """Entries of a directory as (name, is_directory, size in bytes), sorted by name."""
        ...

    def make_directory(self, name: str) -> asyncio.Future[None]:
        """Parents included; an existing one is fine ("" makes the log directory itself)."""
        ...

    def rename(self, old: str, new: str) -> asyncio.Future[None]:
        """Renames a file or directory atomically; open files stay usable. Durable after `fsync_directory`."""
        ...

    def delete(self, name: str) -> asyncio.Future[None]:
        """Deletes a file, or a directory with its contents; does nothing when it is absent."""
        ...

    def fsync_directory(self, name: str = "") -> asyncio.Future[None]:
        """Makes the names in a directory durable."""
        ...

    def lock(self) -> asyncio.Future[bool]:
        """Locks the directory's `.lock` until `close` or the end of the process; False when another process has it."""
        ...

    def free_bytes(self) -> asyncio.Future[int]:
        """Bytes that the broker may still write."""
        ...

    def total_bytes(self) -> asyncio.Future[int]:
        """The size of the file system."""
        ...

    def boot_id(self) -> str:
        """The kernel's boot id; if it differs after an unclean shutdown, there was a power loss."""
        ...

    def close(self) -> None:
        """Closes the open files, releases the lock and ends the lane."""
        ...


class LogDisk(Disk, Protocol):
    """The Disk of a broker's log directory: it can be monitored, taken offline while a call hangs, and reopened."""

    def check_space(self) -> asyncio.Future[tuple[int, int]]:
        """Free and total bytes, in the order of the lane. OSError when the mount is gone or read-only."""
        ...

    def silent_s(self) -> float:
        """For how many seconds the call in progress has not returned; 0.0 without one."""
        ...

    def probe(self) -> asyncio.Future[None]:
        """Writes and syncs a few bytes beside the lane: a busy disk answers, a dead one may never do.

        OSError when that fails, or when another directory than the locked one is at the path. A full directory passes.
        """
        ...

    def take_offline(self, error: OSError) -> None:
        """Fails every waiting call, the one in progress and all later ones, without waiting."""
        ...

    @property
    def has_ended(self) -> bool:
        """After `take_offline` or `close`: whether no call is in progress any more and the lock is released."""
        ...

    def reopened(self) -> LogDisk:
        """Another Disk on the same directory, once this one has ended."""
        ...

"""Probes whether a log directory is there, writable and answering, beside its lane.

A lane whose call does not return may wait for a disk that writes back gigabytes, or for a dead one: a probe of a few
bytes, on a thread of its own, distinguishes them. Not here: when to probe and what follows
(`storage/log_dirs/monitor.py`).
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from functools import partial

from ottla_broker.adapters.descriptors import RESERVE
from ottla_broker.ports.os_errors import is_lack_of_room

PROBE_FILE = ".ottla-probe"
_CONTENT = b"is anybody there?\n"


def locate(path: str) -> tuple[int, int]:
    """(device, inode) of the directory that is at the path now. Raises OSError."""
    found = os.stat(path)
    return found.st_dev, found.st_ino


def check_space(path: str) -> tuple[int, int]:
    """Free and total bytes. Raises OSError EROFS when the file system is read-only."""
    stat = os.statvfs(path)
    if stat.f_flag & os.ST_RDONLY:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
    return stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize


def probe(loop: asyncio.AbstractEventLoop, path: str, expected: tuple[int, int] | None) -> asyncio.Future[None]:
    """Writes, syncs and deletes a small file, on a thread of its own, which may never return.

    The future has an OSError when that fails, when another directory than the `expected` one is at the path, or, of a
    shortage (`ports.os_errors`), when no probe could run. A full directory passes.
    """
    future: asyncio.Future[None] = loop.create_future()

    def finish(error: OSError | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
            future.exception()

    def run() -> None:
        error: OSError | None = None
        try:
            RESERVE.run(partial(_probe, path, expected))
        except OSError as failure:
            error = failure
        try:
            loop.call_soon_threadsafe(finish, error)
        except RuntimeError:
            return  # the loop is closed; nobody waits

    try:
        threading.Thread(target=run, name=f"probe {path}", daemon=True).start()
    except RuntimeError as error:  # no memory or thread left, which says nothing about the disk
        finish(OSError(errno.EAGAIN, f"no probe could be started: {error}", path))
    return future


def _probe(path: str, expected: tuple[int, int] | None) -> None:
    if expected is not None and locate(path) != expected:
        raise OSError(errno.ENODEV, "another directory, or none, is at the path now: the mount is gone", path)
    check_space(path)
    name = os.path.join(path, PROBE_FILE)
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            os.write(descriptor, _CONTENT)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if not is_lack_of_room(error):
            raise
    try:
        os.unlink(name)
    except FileNotFoundError:
        pass

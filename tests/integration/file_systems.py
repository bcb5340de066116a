"""Real file systems that fail: an ext4 on a loop device, and a FUSE file system that fails or hangs. Root only.

Each is a context manager that always unmounts at the end.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MIB = 1024 * 1024


@functools.cache
def skip_reason() -> str:
    """Why this machine cannot mount, "" when it can."""
    if os.geteuid() != 0:
        return "mounts need root"
    for path in ("/dev/fuse", "/dev/loop-control"):
        if not os.path.exists(path):
            return f"{path} is missing"
    return ""


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"


def _unmount(path: Path) -> None:
    """Whatever is mounted there; a dead file system cannot be asked, so the kernel's list is."""
    while any(line.split()[1] == str(path) for line in Path("/proc/self/mounts").read_text().splitlines()):
        _run("umount", "-l", str(path))


class Mount(ABC):
    """A mounted file system. `path` is where."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def mount(self) -> None: ...

    def vanish(self) -> None:
        """The mount is gone from the path, though files that are open go on (`umount -l`)."""
        _run("umount", "-l", str(self.path))

    def close(self) -> None:
        _unmount(self.path)


class LoopMount(Mount):
    """An ext4 on a loop device over a file. `platter` limits what that file may take up: a sparse one on a file system
    of so many bytes, so that what is written back beyond them fails with EIO, as on a disk that breaks. Without a
    journal the file system goes on after that: only who syncs the file is told."""

    def __init__(
        self, folder: Path, size_bytes: int, platter_bytes: int | None = None, *, has_journal: bool = True
    ) -> None:
        super().__init__(folder / "mount")
        self.path.mkdir(parents=True)
        self._below = folder / "platter"
        self._below.mkdir()
        self._image = self._below / "image"
        self._platter_bytes = platter_bytes
        self._size_bytes = size_bytes
        self._has_journal = has_journal

    def make(self) -> None:
        """Formats and mounts."""
        if self._platter_bytes is not None:
            _run("mount", "-t", "tmpfs", "-o", f"size={self._platter_bytes}", "tmpfs", str(self._below))
        with self._image.open("wb") as image:
            image.truncate(self._size_bytes)
        features = () if self._has_journal else ("-O", "^has_journal")
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0", *features, str(self._image))
        self.mount()

    def mount(self) -> None:
        on_error = "remount-ro" if self._has_journal else "continue"
        _run("mount", "-o", f"loop,errors={on_error}", str(self._image), str(self.path))

    def fill(self, leave_bytes: int = 0) -> Path:
        """Takes all room but so many bytes, as another program's files do; gives the file to delete."""
        filler = self.path / "filler"
        with filler.open("wb", buffering=0) as file:
            for piece in (_MIB, 64 * 1024, 4096, 512):
                try:
                    while self.free_bytes() >= leave_bytes + piece:
                        file.write(bytes(piece))
                except OSError:
                    continue
        return filler

    def free_bytes(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def abort(self) -> None:
        """The kernel gives the file system up, as after an error: it is read-only from here on."""
        _run("mount", "-o", "remount,abort", str(self.path))

    def widen_platter(self) -> None:
        """What lies below takes writes again, as a repaired disk does."""
        _run("mount", "-o", f"remount,size={2 * self._size_bytes}", str(self._below))

    def fill_platter(self) -> None:
        """What lies below takes no further block."""
        with (self._below / "filler").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(64 * 1024))
            except OSError:
                return

    def close(self) -> None:
        super().close()
        _unmount(self._below)


@contextmanager
def loop_mount(
    folder: Path, size_mib: int, platter_mib: int | None = None, *, has_journal: bool = True
) -> Iterator[LoopMount]:
    """An ext4 of `size_mib`, mounted."""
    platter_bytes = None if platter_mib is None else platter_mib * _MIB
    made = LoopMount(folder, size_mib * _MIB, platter_bytes, has_journal=has_journal)
    try:
        made.make()
        yield made
    finally:
        made.close()


class FuseMount(Mount):
    """A file system whose every call passes, fails or hangs as told (`fuse_server.py`)."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "mount")
        self._backing = folder / "backing"
        self._server: subprocess.Popen[str] | None = None

    def mount(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self._backing.mkdir(exist_ok=True)
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.fuse_server", str(self._backing), str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._expect("ready")

    def say(self, mode: str) -> None:
        """ "ok", "eio" or "hang"; in force when this returns."""
        assert self._server is not None and self._server.stdin is not None
        self._server.stdin.write(f"{mode}\n")
        self._server.stdin.flush()
        self._expect(mode)

    def _expect(self, word: str) -> None:
        assert self._server is not None and self._server.stdout is not None
        line = self._server.stdout.readline().strip()
        assert line == word, f"the FUSE server says {line!r}, not {word!r}"

    def close(self) -> None:
        if self._server is not None:
            self._server.kill()  # every call on it returns now
            self._server.wait()
        super().close()


@contextmanager
def fuse_mount(folder: Path) -> Iterator[FuseMount]:
    """A FUSE file system, mounted and answering."""
    made = FuseMount(folder)
    try:
        made.mount()
        yield made
    finally:
        made.close()

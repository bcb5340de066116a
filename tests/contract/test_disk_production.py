"""The Disk port on real files: the broker's Disk with its lane, and the Disk of worker processes."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ottla_broker.adapters import disk_calls
from ottla_broker.adapters.direct_disk import DirectDisk
from ottla_broker.adapters.disk import DirectoryDisk
from ottla_broker.adapters.lane_calls import POST_BYTES
from ottla_broker.ports.disk import Buffer
from tests.contract.disk_contract import DiskContract, HeldWriteOut


class TestDirectoryDisk(DiskContract):
    @pytest.fixture
    async def disk(self, tmp_path: Path) -> Iterator[DirectoryDisk]:
        disk = DirectoryDisk(str(tmp_path))
        yield disk
        disk.close()

    @pytest.fixture
    async def other_disk(self, tmp_path: Path) -> Iterator[DirectoryDisk]:
        disk = DirectoryDisk(str(tmp_path))
        yield disk
        disk.close()

    async def test_a_failed_append_fails_every_later_write_of_the_directory(
        self, disk: DirectoryDisk, tmp_path: Path
    ) -> None:
        healthy = await disk.open("healthy", create=True)
        await healthy.append([b"x"])
        # Every write to /dev/full fails with ENOSPC, and it cannot be truncated; reads succeed.
        (tmp_path / "full").symlink_to("/dev/full")
        full = await disk.open("full")
        with pytest.raises(OSError) as caught:
            await full.append([b"y"])
        assert caught.value.errno == errno.EIO
        with pytest.raises(OSError):
            await healthy.append([b"z"])
        with pytest.raises(OSError):
            await healthy.fsync()
        with pytest.raises(OSError):
            await disk.write_file("checkpoint", b"")
        assert await healthy.read(0, 9) == b"x"

    async def test_the_first_appends_of_a_long_queue_complete_while_the_rest_is_written(
        self, disk: DirectoryDisk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = await disk.open("long", create=True)
        head_is_answered = threading.Event()
        write_all, sizes = disk_calls.write_all, []

        def write(descriptor: int, buffers: Sequence[Buffer]) -> int:
            if sizes:
                assert head_is_answered.wait(60)
            sizes.append(sum(map(len, buffers)))
            return write_all(descriptor, buffers)

        monkeypatch.setattr(disk_calls, "write_all", write)
        blocks = [bytes([number]) * (POST_BYTES // 2) for number in range(5)]
        appends = [file.append([block]) for block in blocks]
        assert await appends[0] == POST_BYTES // 2
        assert not appends[-1].done()
        head_is_answered.set()
        assert await asyncio.gather(*appends) == [POST_BYTES // 2 * number for number in range(1, 6)]
        assert sizes == [POST_BYTES, POST_BYTES, POST_BYTES // 2]
        assert await file.read(0, len(blocks) * POST_BYTES) == b"".join(blocks)

    async def test_no_call_waits_while_a_file_is_written_out(
        self, disk: DirectoryDisk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        held = HeldWriteOut(monkeypatch)
        file = await disk.open("large", create=True)
        await file.append([bytes(8 * 1024 * 1024)])
        under_way = file.write_out()
        await held.until_begun()
        await file.append([b"x"])
        await file.fsync()
        assert await file.read(8 * 1024 * 1024, 9) == b"x"
        closed = file.close()
        await disk.exists("large")
        assert not under_way.done() and not closed.done(), "its descriptor is still needed"
        held.may_go_on.set()
        await under_way
        await closed

    async def test_taking_a_disk_offline_does_not_wait_for_write_out(
        self, disk: DirectoryDisk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        held = HeldWriteOut(monkeypatch)
        closing: list[str] = []
        close_descriptor = disk.close_descriptor

        def close(fd: int) -> None:
            closing.append(threading.current_thread().name)
            close_descriptor(fd)

        monkeypatch.setattr(disk, "close_descriptor", close)
        file = await disk.open("large", create=True)
        await file.append([bytes(8 * 1024 * 1024)])
        under_way = file.write_out()
        await held.until_begun()
        disk.take_offline(OSError(errno.EIO, "gone"))
        await under_way
        with pytest.raises(OSError):
            await file.fsync()
        assert not disk.has_ended
        held.may_go_on.set()
        for thread in threading.enumerate():
            if disk.path in thread.name:
                thread.join(60)
        assert disk.has_ended
        assert closing and threading.main_thread().name not in closing, "a dead disk may hold up a close as well"

    async def test_a_pinned_range_survives_the_closing_of_the_disk(self, disk: DirectoryDisk) -> None:
        file = await disk.open("a", create=True)
        await file.append([b"0123456789"])
        part = file.range(0, 4)
        disk.close()
        assert os.pread(part.fd, part.length, part.position) == b"0123"
        part.release()
        with pytest.raises(OSError):
            os.fstat(part.fd)

    async def test_close_cancels_waiting_calls(self, disk: DirectoryDisk) -> None:
        file = await disk.open("a", create=True)
        futures = [file.append([b"x" * 1000]) for _ in range(2000)]
        disk.close()
        results = await asyncio.gather(*futures, return_exceptions=True)
        kept = sum(isinstance(result, int) for result in results)
        assert all(isinstance(result, int) for result in results[:kept])
        assert all(isinstance(result, asyncio.CancelledError) for result in results[kept:])


class _Here:
    """A loop on which no call is ever stuck."""

    def begin_call(self) -> int:
        return 0

    def end_call(self, token: int) -> bool:
        return True


class TestDirectoryDiskThatWritesOnTheLoop(DiskContract):
    @pytest.fixture
    async def disk(self, tmp_path: Path) -> Iterator[DirectoryDisk]:
        disk = DirectoryDisk(str(tmp_path), guard=_Here())
        yield disk
        disk.close()

    @pytest.fixture
    async def other_disk(self, tmp_path: Path) -> Iterator[DirectoryDisk]:
        disk = DirectoryDisk(str(tmp_path), guard=_Here())
        yield disk
        disk.close()


class TestDirectDisk(DiskContract):
    @pytest.fixture
    async def disk(self, tmp_path: Path) -> Iterator[DirectDisk]:
        disk = DirectDisk(str(tmp_path))
        yield disk
        disk.close()

    @pytest.fixture
    async def other_disk(self, tmp_path: Path) -> Iterator[DirectDisk]:
        disk = DirectDisk(str(tmp_path))
        yield disk
        disk.close()

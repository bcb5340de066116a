"""Writes on the loop: what is written there, what is not, and what a stuck one leaves to others."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from ottla_broker.adapters import disk_calls, lane
from ottla_broker.adapters.disk import DirectoryDisk, DiskFile
from ottla_broker.adapters.event_loop import TakeoverLoop
from ottla_broker.ports.disk import Buffer, File

_LIMIT_S = 60.0


class Writes:
    """The threads that wrote, by the text they wrote; a text in `held` is not written before it is taken out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: dict[bytes, int] = {}
        self.order: list[bytes] = []
        self.held: dict[bytes, threading.Event] = {}
        self.error: OSError | None = None
        self._write_all = disk_calls.write_all
        monkeypatch.setattr(disk_calls, "write_all", self._write)

    def _write(self, descriptor: int, buffers: Sequence[Buffer]) -> int:
        text = b"".join(buffers)
        self.threads[text] = threading.get_ident()
        if text in self.held:
            assert self.held[text].wait(_LIMIT_S)
            if self.error is not None:
                raise self.error
        self.order.append(text)
        return self._write_all(descriptor, buffers)

    def hold(self, text: bytes) -> None:
        self.held[text] = threading.Event()

    def release(self, text: bytes) -> None:
        self.held[text].set()


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> Writes:
    return Writes(monkeypatch)


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(main(), _LIMIT_S)

    with asyncio.Runner(loop_factory=TakeoverLoop) as runner:
        runner.run(limited())


def open_disk(path: Path) -> DirectoryDisk:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, TakeoverLoop)
    path.mkdir(exist_ok=True)
    return DirectoryDisk(str(path), loop, loop)


def append(file: File, text: bytes) -> asyncio.Future[int]:
    return file.append([text])


def test_small_appends_are_written_on_the_loop_and_anything_else_by_the_thread(writes: Writes, tmp_path: Path) -> None:
    async def main() -> None:
        disk = open_disk(tmp_path)
        file, here = await disk.open("a", create=True), threading.get_ident()
        assert await append(file, b"small") == 5
        assert writes.threads[b"small"] == here
        large = bytes(lane.LOOP_BYTES + 1)
        await append(file, large)
        assert writes.threads[large] != here
        written, synced = append(file, b"with a sync"), file.fsync()
        await asyncio.gather(written, synced)
        assert writes.threads[b"with a sync"] != here
        await append(file, b"small again")
        assert writes.threads[b"small again"] == here
        disk.close()

    run(main)


def test_a_directory_that_was_stuck_for_a_moment_is_written_on_the_loop_again(
    writes: Writes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "SLOW_FACTOR", 1e-9)

    async def main() -> None:
        disk = open_disk(tmp_path)
        file, other = await disk.open("a", create=True), await disk.open("b", create=True)
        writes.hold(b"stuck")
        stuck = append(file, b"stuck")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert b"stuck" in writes.threads
        behind = append(other, b"behind")
        writes.release(b"stuck")
        await asyncio.gather(stuck, behind)
        assert writes.threads[b"stuck"] != threading.get_ident(), "another thread has gone on with the loop"
        loop, takeovers, number = asyncio.get_running_loop(), -1, 0
        assert isinstance(loop, TakeoverLoop)
        while takeovers != loop.takeovers:  # the kernel may hold up any write
            takeovers, number = loop.takeovers, number + 1
            await append(file, b"%d" % number)
        assert writes.threads[b"%d" % number] == threading.get_ident()
        disk.close()

    run(main)


def test_appends_of_one_turn_are_one_write_and_one_answer(writes: Writes, tmp_path: Path) -> None:
    async def main() -> None:
        disk = open_disk(tmp_path)
        first, second = await disk.open("a", create=True), await disk.open("b", create=True)
        told: list[int] = []

        def on_done(future: asyncio.Future[int]) -> None:
            told.append(future.result())

        futures = [file.append([text], on_done) for text in (b"1", b"22", b"333") for file in (first, second)]
        await asyncio.gather(*futures)
        assert writes.order == [b"122333", b"122333"]
        assert told == [6, 6] and first.size == second.size == 6
        disk.close()

    run(main)


def test_an_append_behind_another_call_of_the_turn_is_made_behind_it(writes: Writes, tmp_path: Path) -> None:
    async def main() -> None:
        disk = open_disk(tmp_path)
        file = await disk.open("a", create=True)
        before = file.append([b"before"], _ignore)
        cut = file.truncate(2)
        after = file.append([b"after"], _ignore)
        assert await before == 6
        await cut
        assert await after == 7
        assert await file.read(0, 99) == b"beafter"
        disk.close()

    run(main)


def test_a_stuck_write_holds_up_only_its_directory(
    writes: Writes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "SLOW_FACTOR", 1e9)

    async def main() -> None:
        bad, good = open_disk(tmp_path / "bad"), open_disk(tmp_path / "good")
        stuck_file, file = await bad.open("a", create=True), await good.open("a", create=True)
        writes.hold(b"stuck")
        stuck = append(stuck_file, b"stuck")
        for number in range(20):
            await append(file, b"%d" % number)
        assert not stuck.done() and bad.silent_s() > 0.0 and good.silent_s() == 0.0
        behind = [append(stuck_file, b"behind"), append(stuck_file, b"last")]
        await append(file, b"more")
        assert not behind[0].done() and writes.order[-1] == b"more"
        writes.release(b"stuck")
        assert await asyncio.gather(stuck, *behind) == [5, 11, 15]
        assert await stuck_file.read(0, 99) == b"stuckbehindlast"
        assert bad.silent_s() == 0.0
        await append(stuck_file, b"by the thread")
        assert writes.threads[b"by the thread"] != threading.get_ident(), "the directory has just been slow"
        bad.close()
        good.close()

    run(main)


def test_a_stuck_write_that_fails_in_the_end_fails_the_directory(writes: Writes, tmp_path: Path) -> None:
    async def main() -> None:
        bad = open_disk(tmp_path)
        file = await bad.open("a", create=True)
        writes.hold(b"stuck")
        stuck = append(file, b"stuck")
        await asyncio.sleep(0.05)
        behind = append(file, b"behind")
        writes.error = OSError(errno.EIO, os.strerror(errno.EIO))
        writes.release(b"stuck")
        for failed in (stuck, behind, append(file, b"later")):
            with pytest.raises(OSError):
                await failed
        bad.close()

    run(main)


def test_a_directory_whose_write_is_stuck_can_be_taken_offline_and_opened_again(writes: Writes, tmp_path: Path) -> None:
    async def main() -> None:
        bad = open_disk(tmp_path)
        assert await bad.lock()
        file = await bad.open("a", create=True)
        assert isinstance(file, DiskFile)
        await append(file, b"kept")
        writes.hold(b"stuck")
        stuck = append(file, b"stuck")
        await asyncio.sleep(0.05)
        behind = append(file, b"behind")
        await asyncio.sleep(0)
        bad.take_offline(OSError(errno.EIO, "given up"))
        for failed in (stuck, behind, append(file, b"later")):
            with pytest.raises(OSError):
                await failed
        assert not bad.has_ended, "the call is still in progress"
        writes.release(b"stuck")
        while not bad.has_ended:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.001)
        again = bad.reopened()
        assert await again.lock()
        file = await again.open("a")
        assert await file.read(0, 99) == b"keptstuck", "the call went through, what was behind it did not"
        await append(file, b"!")
        again.close()

    run(main)


def test_writes_behind_a_stuck_one_of_their_turn_are_not_made_once_the_directory_is_offline(
    writes: Writes, tmp_path: Path
) -> None:
    async def main() -> None:
        bad = open_disk(tmp_path)
        first, second = await bad.open("a", create=True), await bad.open("b", create=True)
        writes.hold(b"stuck")
        stuck, behind = append(first, b"stuck"), append(second, b"behind")
        await asyncio.sleep(0.05)
        bad.take_offline(OSError(errno.EIO, "given up"))
        for failed in (stuck, behind):
            with pytest.raises(OSError):
                await failed
        writes.release(b"stuck")
        while not bad.has_ended:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.001)
        assert writes.order == [b"stuck"]

    run(main)


def test_a_directory_whose_write_is_stuck_does_not_hold_up_its_close_for_good(
    writes: Writes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "_JOIN_S", 0.05)

    async def main() -> None:
        bad = open_disk(tmp_path)
        file = await bad.open("a", create=True)
        writes.hold(b"stuck")
        stuck = append(file, b"stuck")
        await asyncio.sleep(0.05)
        behind = append(file, b"behind")
        await asyncio.sleep(0)
        bad.close()
        assert not bad.has_ended
        writes.release(b"stuck")
        assert await stuck == 5
        with pytest.raises(asyncio.CancelledError):
            await behind
        while not bad.has_ended:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.001)

    run(main)


def _ignore(_: asyncio.Future[int]) -> None:
    return

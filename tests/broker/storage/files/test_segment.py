"""The order of calls on the files of a segment."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.adapters.disk import DirectoryDisk
from ottla_broker.ports.disk import Buffer
from ottla_broker.storage.files.segment import Segment
from tests.broker.storage.agreement import disagreements
from tests.broker.storage.logs import Make, batch, written


async def test_index_entries_are_written_after_their_batches(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of a segment that is rolled before its files are open."""
    ahead: list[str] = []
    append_to = DirectoryDisk._append_to

    def looked_at(disk: DirectoryDisk, name: str, buffers: Sequence[Buffer]) -> int:
        path = tmp_path / name
        entries = b"".join(map(bytes, buffers))
        if path.suffix == ".index" and entries:
            position = int.from_bytes(entries[-4:], "big")
            if position >= path.with_suffix(".log").stat().st_size:
                ahead.append(f"{path.name}: byte {position}")
        return append_to(disk, name, buffers)

    monkeypatch.setattr(DirectoryDisk, "_append_to", looked_at)
    log = await make(segment_bytes=400, index_interval_bytes=0).open()
    for number in range(50):
        log.append_as_leader(batch(b"in one turn %d" % number), 99)
    assert len(log.state.segments) > 3
    await written(log)
    await log.closer.close()
    assert ahead == []
    assert disagreements(tmp_path / "t-0") == []


PARTS = (b"first", b"second", b"third", b"fourth")


@pytest.fixture
async def segment(tmp_path):
    (tmp_path / "t-0").mkdir()
    disk = DirectoryDisk(str(tmp_path))
    yield Segment(disk, "t-0", 0, 0, 0, 0)
    disk.close()


async def test_appends_keep_their_order_while_the_file_of_a_new_segment_opens(segment, tmp_path) -> None:
    """Offsets and positions have been given by then: a file in another order is damaged for good."""
    loop = asyncio.get_running_loop()
    told = []
    ended = []

    def append(part) -> None:
        ended.append(segment.append((memoryview(part),), lambda _: told.append(part)))

    segment.start()
    append(PARTS[0])
    while not segment.opening.done():  # noqa: ASYNC110 -- its callbacks have not run when this ends
        await asyncio.sleep(0)
    assert segment.file is None and segment.is_open
    loop.call_soon(append, PARTS[2])  # runs before the calls that wait for the file
    append(PARTS[1])
    await segment.opened()
    append(PARTS[3])
    await asyncio.gather(*ended)
    assert (tmp_path / "t-0" / "00000000000000000000.log").read_bytes() == b"".join(PARTS)
    assert sorted(told) == sorted(PARTS)


async def test_every_call_on_a_segment_fails_when_its_files_cannot_be_created(segment, tmp_path) -> None:
    (tmp_path / "t-0").rmdir()
    segment.start()
    waiting = segment.append((memoryview(PARTS[0]),), lambda _: None)
    with pytest.raises(FileNotFoundError):
        await waiting
    assert not segment.is_open
    with pytest.raises(FileNotFoundError):
        await segment.append((memoryview(PARTS[1]),), lambda _: None)


@pytest.mark.parametrize("what", ["sync", "make_ready", "close"])
async def test_a_segment_closes_every_file_also_right_after_they_were_opened(tmp_path: Path, what: str) -> None:
    """Before the callback that follows the opening of the files has run."""
    disk = DirectoryDisk(str(tmp_path))
    await disk.make_directory("t-0")
    segment = Segment(disk, "t-0", 0, 0, 0, 0)
    segment.start()
    write = segment.append((memoryview(b"record"),), lambda _: None)
    opening: Any = segment._opening
    await opening._children[-1]  # after the last of them, before the segment's own callback
    assert opening.done() and segment.file is None
    await getattr(segment, what)()
    await write
    await disk.exists("t-0")  # the disk has made all earlier calls
    assert (segment.file is None) == (what == "close")
    assert len(disk._descriptors) == (0 if what == "close" else 1)
    disk.close()

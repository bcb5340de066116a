"""A new segment takes calls before its files are there; their order is that in which they were made."""

import asyncio

import pytest

from ottla_broker.adapters.disk import DirectoryDisk
from ottla_broker.storage.files.segment import Segment

PARTS = (b"first", b"second", b"third", b"fourth")


@pytest.fixture
async def segment(tmp_path):
    (tmp_path / "t-0").mkdir()
    disk = DirectoryDisk(str(tmp_path))
    yield Segment(disk, "t-0", 0, 0, 0, 0)
    disk.close()


async def test_appends_in_the_turns_in_which_the_file_opens_keep_their_order(segment, tmp_path):
    """Offsets and positions have been given by then: a file in another order is damaged for good."""
    loop = asyncio.get_running_loop()
    told = []
    ended = []

    def append(part):
        ended.append(segment.append((memoryview(part),), lambda _: told.append(part)))

    segment.start()
    append(PARTS[0])
    while not segment.opening.done():  # noqa: ASYNC110 -- its callbacks have not run when this ends
        await asyncio.sleep(0)
    assert segment.file is None and segment.is_open
    loop.call_soon(append, PARTS[2])  # of somebody whose turn comes before that of what waits for the file
    append(PARTS[1])
    await segment.opened()
    append(PARTS[3])
    await asyncio.gather(*ended)
    assert (tmp_path / "t-0" / "00000000000000000000.log").read_bytes() == b"".join(PARTS)
    assert sorted(told) == sorted(PARTS)


async def test_calls_on_a_segment_that_cannot_be_made_fail_and_none_is_forgotten(segment, tmp_path):
    (tmp_path / "t-0").rmdir()
    segment.start()
    waiting = segment.append((memoryview(PARTS[0]),), lambda _: None)
    with pytest.raises(FileNotFoundError):
        await waiting
    assert not segment.is_open
    with pytest.raises(FileNotFoundError):
        await segment.append((memoryview(PARTS[1]),), lambda _: None)

"""Truncations, fetches and writes that are interrupted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.adapters.disk import DirectoryDisk
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.batch import CONTROL_MASK, TRANSACTIONAL_MASK
from ottla_broker.records.record import Record, build_batch
from ottla_broker.storage.files.segment import Segment
from tests.broker.storage.logs import LogSetup, batch, read_values, written


async def test_a_log_cut_below_its_start_keeps_what_follows_over_a_restart(tmp_path: Path) -> None:
    """An unclean election may cut a follower below the offset to which records had been deleted."""
    setup = LogSetup(str(tmp_path))
    log = await setup.open()
    for number in range(10):
        log.append_as_leader(batch(b"%d" % number), 0)
    await written(log)
    log.maybe_advance_high_watermark(10)
    await log.advance_log_start_offset(8)
    await log.truncate_to(5)
    assert log.log_start_offset <= log.log_end_offset == 5
    for number in range(2):
        log.append_as_leader(batch(b"new %d" % number), 1)
    await written(log)
    start = log.log_start_offset
    await log.close()
    setup.crash()
    log = await setup.open(log_start_offset=start)
    assert await read_values(log, 5) == [(5, b"new 0"), (6, b"new 1")]
    assert setup.owner.log_start_checkpoints
    setup.close()


@pytest.mark.parametrize("what", ["sync", "make_ready", "close"])
async def test_a_segment_whose_files_have_just_been_opened_opens_none_twice_and_closes_all(
    tmp_path: Path, what: str
) -> None:
    """In the turn of the loop between the opening of its files and the callback by which the segment hears of it."""
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
    await disk.exists("t-0")  # the lane has done all that was asked of it before
    assert (segment.file is None) == (what == "close")
    assert len(disk._descriptors) == (0 if what == "close" else 1)
    disk.close()


async def test_a_marker_that_cannot_be_read_leaves_nothing_of_its_fetch_behind(tmp_path: Path) -> None:
    """Offsets given to the batch before it, whose bytes are then never written, would stop the follower for good."""
    setup = LogSetup(str(tmp_path))
    log = await setup.open()
    record = Record(1, 1, b"\x00", b"\x00")
    attributes = CONTROL_MASK | TRANSACTIONAL_MASK
    marker = build_batch([record], attributes=attributes, producer_id=5, producer_epoch=0)
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(memoryview(bytes(batch(b"a")) + bytes(marker)))
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert log.assigned_offset == 0
    log.append_as_follower(batch(b"a"))
    await written(log)
    assert await read_values(log, 0) == [(0, b"a")]
    setup.close()


async def test_a_write_that_fails_for_no_reason_of_the_disk_fails_the_directory_all_the_same(tmp_path: Path) -> None:
    """A lane whose thread ended would leave a broker that leads, is in the ISR, and never answers."""
    disk = DirectoryDisk(str(tmp_path))
    file = await disk.open("f", create=True)
    nothing: Any = None
    for buffers in ([nothing], [b"x"]):
        async with asyncio.timeout(60):
            with pytest.raises(OSError):
                await file.append(buffers)
    assert await disk.exists("f")
    disk.close()

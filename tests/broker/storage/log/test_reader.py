"""Reads of a log: which bytes, and what happens when segments go away meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla_broker.ports.disk import File
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.batch import read_header
from ottla_broker.records.record import decode_records
from ottla_broker.storage.files.names import offset_name
from ottla_broker.storage.files.segment import Segment
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.reader import LogRead
from tests.broker.storage.logs import Make, batch, read_bytes, read_values, written
from tests.broker.storage.numbered import COUNT, closed


async def test_a_read_returns_max_bytes_or_the_whole_first_batch(make: Make) -> None:
    log = await make().open()
    size = 0
    for _ in range(5):
        one = batch(bytes(100))
        size = len(one)
        log.append_as_leader(one, 0)
    await written(log)
    assert len(await read_bytes(log, 0, 2 * size + 10)) == 2 * size + 10
    assert len(await read_bytes(log, 2, 10)) == size
    for too_few in (0, 10, size - 1):
        assert log.read(2, too_few, 5, False) == LogRead((), 0)
    cut = log.read(2, size + 10, 5, False)
    assert isinstance(cut, LogRead) and cut.size == size + 10
    assert len(await read_bytes(log, 1, 10_000, upper=3)) == 2 * size
    assert log.read(5, 100, 5, True) == LogRead((), 0)
    assert log.bytes_between(1, 4) == 3 * size
    assert log.bytes_between(4, 4) == 0
    for offset in (-1, 6):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 100, 5, True)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_read_from_the_middle_of_a_batch_returns_the_whole_batch(make: Make) -> None:
    log = await make().open()
    log.append_as_leader(batch(b"a"), 0)
    log.append_as_leader(batch(b"b", b"c", b"d"), 0)
    await written(log)
    data = await read_bytes(log, 2)
    assert read_header(data).base_offset == 1


@pytest.mark.parametrize("is_idle", [False, True], ids=["open", "closed as idle meanwhile"])
async def test_a_file_range_does_not_send_new_records_after_a_truncation(make: Make, is_idle: bool) -> None:
    """A slow client has a range of a file that the truncation opens again."""
    log = await make(segment_bytes=300 if is_idle else 1 << 20).open()
    for number in range(10):
        log.append_as_leader(batch(b"old%d" % number), 0)
    await written(log)
    log.state.maybe_advance_high_watermark(10)
    read = log.read(0, 1 << 20, log.state.log_end_offset, True)
    if not isinstance(read, tuple):
        read = await read
    if is_idle:
        assert len(log.state.segments) > 2
        for _ in range(2):
            await log.closer.close_idle_segments()
    await log.truncation.truncate_to(1)
    for number in range(1, 10):
        log.append_as_leader(batch(b"new%d" % number), 1)
    await written(log)
    with pytest.raises(OSError, match="truncated"):
        for chunk in read.chunks:
            chunk.read()
    for chunk in read.chunks:
        chunk.release()


async def test_a_file_range_stays_readable_after_retention_deletes_its_segment(make: Make) -> None:
    setup = make(segment_bytes=300, retention_bytes=0, file_delete_delay_ms=0)
    log = await setup.open()
    for number in range(8):
        log.append_as_leader(batch(b"%d" % number), 0)
    await written(log)
    log.state.maybe_advance_high_watermark(8)
    result = log.read(0, 1000, 8, True)
    read = result if isinstance(result, LogRead) else await result
    assert await log.retention.delete_old_segments() > 0
    data = b"".join(chunk.read() for chunk in read.chunks)
    assert decode_records(data)[0].value == b"0"
    for chunk in read.chunks:
        chunk.release()


async def test_a_read_of_a_damaged_segment_fails_and_the_log_directory_stays_online(make: Make, tmp_path: Path) -> None:
    setup, bases = await closed(make)
    path = tmp_path / "t-0" / offset_name(bases[1], ".log")
    path.write_bytes(bytes(path.stat().st_size))
    log = await setup.open()
    reading = log.read(bases[1] + 1, 1000, COUNT, True)
    assert not isinstance(reading, tuple)
    with pytest.raises(KafkaError, match="no batch at byte 0") as caught:
        await reading
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert (await read_values(log, bases[2]))[-1] == (COUNT - 1, b"%03d" % (COUNT - 1))
    assert setup.owner.failures == []


async def fill(log: Log, *timestamps: int) -> None:
    """Appends a record for each timestamp and moves the high watermark to the end."""
    for timestamp in timestamps:
        log.append_as_leader(batch(b"v", timestamp=timestamp), 0)
    await written(log)
    log.state.maybe_advance_high_watermark(log.state.log_end_offset)


async def test_a_read_succeeds_when_the_roll_of_its_segment_ends_meanwhile(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segment is flushed and closed as idle before its roll ends, which drops its index."""
    setup = make(segment_bytes=100)
    log = await setup.open()
    is_written_out, is_opening, may_open = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def write_out_late(_: Segment) -> None:
        await is_written_out.wait()

    monkeypatch.setattr(Segment, "write_out", write_out_late)
    await fill(log, *[setup.clock.wall_ms] * 2)
    rolling = log.flusher.rolling
    assert len(log.state.segments) == 2 and rolling is not None
    async with log.state.lock:
        await log.flusher.flush_locked()
    await log.closer.close_idle_segments()
    assert log.state.segments[0].file is None
    open_file = log.state.disk.open

    async def open_late(name: str, *, create: bool = False) -> File:
        if name == log.state.segments[0].name(".log"):
            is_opening.set()
            await may_open.wait()
        return await open_file(name, create=create)

    monkeypatch.setattr(
        log.state.disk, "open", lambda *names, **options: asyncio.ensure_future(open_late(*names, **options))
    )
    reading = asyncio.ensure_future(log.read_bytes(0, 1 << 20))
    await is_opening.wait()
    is_written_out.set()
    await asyncio.wait([rolling], timeout=0.5)
    may_open.set()
    assert await reading and not setup.owner.failures
    await rolling

"""Logs in a full log directory: what is lost, and how they continue when there is room."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from ottla_broker.adapters import disk_calls
from ottla_broker.ports.disk import Buffer
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.storage.log.log import Log
from tests.broker.storage.cleaner.cleaning import T0, Storage, append, close_segment, consume, keyed, pairs
from tests.broker.storage.logs import FullDisk, LogSetup, batch, read_values, until, written


async def test_appends_are_refused_until_a_truncation_that_found_no_room_is_repeated(tmp_path: Path) -> None:
    """Else old records come back between the new ones: the truncation must write the index before the log file."""
    setup = LogSetup(str(tmp_path), {"index.interval.bytes": 0})
    disk = setup.disk = FullDisk(str(tmp_path), "index")
    log = await setup.open()
    disk.is_full = True
    for number in range(4):
        log.append_as_leader(batch(b"old %d" % number), 0)
    await written(log)
    for _ in range(2):
        with pytest.raises(KafkaError, match="is full"):
            await log.truncation.truncate_to(1)
        with pytest.raises(KafkaError, match="is full"):
            log.append_as_leader(batch(b"too early"), 1)
    log.truncation.resume_appends()  # but there is none: it stays as it is
    with pytest.raises(KafkaError, match="is full"):
        await log.truncation.truncate_to(1)  # runs after the truncation that this started
    with pytest.raises(KafkaError, match="is full"):
        log.append_as_leader(batch(b"too early"), 1)

    disk.is_full = False
    ready = asyncio.Event()
    log.state.on_append = ready.set
    log.truncation.resume_appends()
    async with asyncio.timeout(60):
        await ready.wait()
    log.append_as_leader(batch(b"new"), 1)
    await written(log)
    expected = [(0, b"old 0"), (1, b"new")]
    assert await read_values(log, 0) == expected
    setup.crash()
    assert await read_values(await setup.open(is_clean=False), 0) == expected
    setup.close()


LOST = b"lost"
"""The value of the one record whose write fails; later writes would succeed."""


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """An errno in it is what writes of LOST fail with."""
    found: list[int] = []
    write_all = disk_calls.write_all

    def write(descriptor: int, buffers: Sequence[Buffer]) -> int:
        if found and any(LOST in bytes(buffer) for buffer in buffers):
            raise OSError(found[0], "the write failed")
        return write_all(descriptor, buffers)

    monkeypatch.setattr(disk_calls, "write_all", write)
    return found


async def _lose_the_end_of_a_segment(setup: LogSetup) -> Log:
    """Offset 1, the last of its segment, is not written; 2, for which another segment is begun, was on its way too."""
    log = await setup.open()
    log.append_as_leader(batch(b"kept"), 0)
    await written(log)
    failed = asyncio.Event()
    log.state.on_failure = failed.set
    log.append_as_leader(batch(LOST), 0)
    log.append_as_leader(batch(b"next"), 0)
    assert [segment.base_offset for segment in log.state.segments] == [0, 2]
    async with asyncio.timeout(60):
        await failed.wait()
    for _ in range(10):
        await setup.disk.exists("t-0")  # whatever was still to follow has been done
    return log


@pytest.mark.parametrize("flush_messages", [1, 1 << 60])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
async def test_a_failed_write_leaves_no_hole_before_the_next_segment(
    tmp_path: Path, losses: list[int], error: int, flush_messages: int
) -> None:
    """The next start would take the hole for one that compaction has left, and consumers would be led over it."""
    size = len(batch(b"kept"))
    setup = LogSetup(str(tmp_path), {"segment.bytes": 2 * size, "flush.messages": flush_messages})
    losses.append(error)
    log = await _lose_the_end_of_a_segment(setup)
    with suppress(KafkaError):  # it cannot be closed in order
        await log.closer.close()
    setup.crash()
    losses.clear()

    log = await setup.open(is_clean=False)
    log.append_as_leader(batch(b"new"), 1)
    await written(log)
    assert await read_values(log, 0) == [(0, b"kept"), (1, b"new")]
    setup.close()


async def test_a_log_continues_at_the_lost_offset_when_there_is_room_also_after_a_roll(
    tmp_path: Path, losses: list[int]
) -> None:
    setup = LogSetup(str(tmp_path), {"segment.bytes": 2 * len(batch(b"kept"))})
    losses.append(errno.ENOSPC)
    log = await _lose_the_end_of_a_segment(setup)
    with pytest.raises(KafkaError, match="is full"):
        log.append_as_leader(batch(b"too early"), 0)

    losses.clear()
    ready = asyncio.Event()
    log.state.on_append = ready.set
    log.truncation.resume_appends()
    async with asyncio.timeout(60):
        await ready.wait()
    for number in range(3):
        log.append_as_leader(batch(b"new%d" % number), 0)
    await written(log)
    expected = [(0, b"kept"), (1, b"new0"), (2, b"new1"), (3, b"new2")]
    assert await read_values(log, 0) == expected
    assert not setup.owner.failures
    await log.closer.close()
    setup.crash()
    assert await read_values(await setup.open(recovery_point=4), 0) == expected
    setup.close()


@pytest.mark.parametrize("looks", [2, 4])
async def test_acknowledged_records_stay_however_often_the_log_directory_gets_room(
    tmp_path: Path, losses: list[int], looks: int
) -> None:
    """The log directory is checked several times while the truncation of the unwritten records runs: a second
    truncation must not drop records that are appended after the first."""
    setup = LogSetup(str(tmp_path), {"segment.bytes": 2 * len(batch(b"kept"))})
    losses.append(errno.ENOSPC)
    log = await _lose_the_end_of_a_segment(setup)
    losses.clear()
    end = log.state.log_end_offset
    for _ in range(looks):
        log.truncation.resume_appends()
    acknowledged = 0
    async with asyncio.timeout(60):
        while acknowledged < 20:  # a client that tries again and again, and is in luck at the first moment
            if log.state.assigned_offset < 30:
                with suppress(KafkaError):
                    log.append_as_leader(batch(b"new"), 0)
            await asyncio.sleep(0)
            assert log.state.log_end_offset >= end, "written records are gone"
            end, acknowledged = log.state.log_end_offset, log.state.log_end_offset - 1
    await log.closer.close()
    setup.close()


@pytest.mark.parametrize("is_full_first", [True, False])
async def test_a_log_keeps_its_records_when_compaction_replaces_the_segment_that_it_ends_with(
    tmp_path: Path, losses: list[int], is_full_first: bool
) -> None:
    """Nothing of the next segment is written: the log ends with the segment that compaction replaces, and is truncated
    to its end when there is room."""
    storage = Storage(tmp_path)
    log = await storage.start()
    append(log, keyed((b"k", b"1")))
    append(log, keyed((b"k", b"2")))
    await close_segment(log)
    if not is_full_first:
        assert await storage.cleaner.clean_dirtiest() == T0
    losses.append(errno.ENOSPC)
    append(log, keyed((b"j", LOST)))
    await until(lambda: log.state.is_full)
    if is_full_first:
        assert await storage.cleaner.clean_dirtiest() == T0

    losses.clear()
    log.truncation.resume_appends()
    await until(lambda: not log.state.is_full)
    append(log, keyed((b"j", b"new")))
    expected = [(1, b"k", b"2"), (2, b"j", b"new")]
    assert pairs(await consume(log, 0)) == expected
    log = await storage.again()
    assert pairs(await consume(log, 0)) == expected
    assert not storage.failures
    storage.close()


async def test_retention_deletes_in_the_next_run_what_it_could_not_rename_for_lack_of_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new segment needs the snapshot of its producers first; then the old ones make room."""
    setup = LogSetup(str(tmp_path), {"retention.bytes": 0, "file.delete.delay.ms": 0})
    log = await setup.open()
    for _ in range(3):
        log.append_as_leader(batch(b"old"), 0)
    await written(log)
    log.state.maybe_advance_high_watermark(3)
    write_file = disk_calls.write_file

    def write(path: str, data: bytes, is_private: bool = False) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(disk_calls, "write_file", write)
    with pytest.raises(KafkaError):
        await log.retention.delete_old_segments()
    monkeypatch.setattr(disk_calls, "write_file", write_file)
    log.truncation.resume_appends()
    assert await log.retention.delete_old_segments() == 1
    await setup.disk.exists("t-0")
    logs = [name for name, _, size in await setup.disk.list("t-0") if name.endswith(".log")]
    assert logs == [f"{3:020d}.log"] and (log.state.log_start_offset, log.state.size_bytes) == (3, 0)
    log.append_as_leader(batch(b"new"), 0)
    await written(log)
    assert await read_values(log, 3) == [(3, b"new")]
    await log.closer.close()
    setup.close()


async def test_a_write_without_room_that_cannot_be_undone_marks_the_log_directory_offline(
    tmp_path: Path, losses: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lane writes nothing any more. Taken for lack of room, that would never end: there is enough of it."""
    setup = LogSetup(str(tmp_path))
    log = await setup.open()
    log.append_as_leader(batch(b"kept"), 0)
    await written(log)
    failed = asyncio.Event()
    log.state.on_failure = failed.set
    losses.append(errno.ENOSPC)

    def refuse(descriptor: int, size: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "ftruncate", refuse)
    log.append_as_leader(batch(LOST), 0)
    async with asyncio.timeout(60):
        await failed.wait()
    assert log.state.is_failed and setup.owner.failures and not setup.owner.full
    setup.close()


async def test_a_directory_sync_that_finds_no_room_marks_the_log_directory_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with the sync of a file: what was to be durable is lost, and what relies on it must not go on."""
    setup = LogSetup(str(tmp_path), {"segment.bytes": 2 * len(batch(b"kept"))})
    log = await setup.open()
    fsync = os.fsync
    is_refused = [False]

    def refuse(descriptor: int) -> None:
        if is_refused[0] and os.path.isdir(f"/proc/self/fd/{descriptor}"):
            is_refused[0] = False
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    is_refused[0] = True
    for _ in range(3):
        log.append_as_leader(batch(b"kept"), 0)
    with suppress(KafkaError, OSError):
        await written(log)
        await log.flusher.flush()
    await setup.disk.exists("t-0")
    assert not is_refused[0]
    assert log.state.is_failed or log.state.recovery_point == 0, (
        "records count as durable whose file may not be found again"
    )
    setup.close()

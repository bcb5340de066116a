"""Truncations: what they drop from a log."""

from __future__ import annotations

import asyncio
import errno
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ottla_broker.adapters import disk_calls
from ottla_broker.ports.disk import Buffer, File
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from tests.broker.storage.logs import LogSetup, Make, batch, read_values, refused, rolled, until, written
from tests.broker.storage.numbered import SMALL, fill


async def test_a_truncation_drops_records_leader_epochs_and_producer_state(make: Make) -> None:
    setup = make(segment_bytes=700, index_interval_bytes=150)
    log = await setup.open()
    for number in range(40):
        log.append_as_leader(batch(b"%02d" % number, producer=(4, 0, number)), number // 10)
    await written(log)
    log.state.maybe_advance_high_watermark(40)
    await log.flusher.flush()
    assert log.state.recovery_point == 40
    await log.truncation.truncate_to(40)
    assert log.state.log_end_offset == 40
    await log.truncation.truncate_to(17)
    assert (
        log.state.log_end_offset
        == log.state.assigned_offset
        == log.state.high_watermark
        == log.state.recovery_point
        == 17
    )
    assert setup.owner.recovery_point_checkpoints == 1
    assert log.state.epochs.entries == [(0, 0), (1, 10)]
    assert [value for _, value in await read_values(log, 0)] == [b"%02d" % number for number in range(17)]
    assert refused(log, batch(b"x", producer=(4, 0, 40))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    duplicate = log.append_as_leader(batch(b"16", producer=(4, 0, 16)), 1)
    assert duplicate.is_duplicate and duplicate.first_offset == 16
    for number in range(17, 40):
        log.append_as_leader(batch(b"n%d" % number, producer=(4, 0, number)), 9)
    await written(log)
    values = [value for _, value in await read_values(log, 0, 300)]
    assert values == [b"%02d" % number for number in range(17)] + [b"n%d" % number for number in range(17, 40)]
    assert log.end_of_epoch(1) == (1, 17) and log.end_of_epoch(9) == (9, 40)


async def test_a_truncation_in_the_middle_of_a_batch_drops_the_whole_batch(make: Make) -> None:
    log = await make().open()
    log.append_as_leader(batch(b"a", b"b"), 0)
    log.append_as_leader(batch(b"c", b"d"), 0)
    await written(log)
    await log.truncation.truncate_to(3)
    assert log.state.log_end_offset == 2
    assert await read_values(log, 0) == [(0, b"a"), (1, b"b")]


async def test_a_full_truncation_starts_an_empty_log_at_any_offset(make: Make, tmp_path: Path) -> None:
    log = await make(segment_bytes=300).open()
    for _ in range(10):
        log.append_as_leader(batch(b"a"), 3)
    await log.truncation.truncate_fully_and_start_at(1000)
    assert (log.state.log_start_offset, log.state.log_end_offset, log.state.high_watermark) == (1000, 1000, 1000)
    assert log.state.epochs.latest == -1
    assert log.append_as_leader(batch(b"b"), 4).first_offset == 1000
    await written(log)
    assert await read_values(log, 1000) == [(1000, b"b")]
    assert [path.name for path in sorted((tmp_path / "t-0").glob("*.log"))] == [f"{1000:020d}.log"]


COUNT = 45


DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "torn": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "nonsense": lambda path: path.write_bytes(random.Random(1).randbytes(path.stat().st_size)),
    "one bit": lambda path: path.write_bytes(bytes([path.read_bytes()[0] ^ 0x40]) + path.read_bytes()[1:]),
}


async def test_a_truncation_succeeds_when_a_snapshot_is_damaged(make: Make, tmp_path: Path) -> None:
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, COUNT)
    await rolled(log)
    for path in (tmp_path / "t-0").glob("*.snapshot"):
        DAMAGE["nonsense"](path)
    await log.truncation.truncate_to(30)
    assert log.append_as_leader(batch(b"029", producer=(4, 0, 29)), 9).first_offset == 29
    assert setup.owner.failures == [] and setup.owner.notices


async def test_a_truncation_of_a_replaced_log_truncates_its_successor_and_reports_errors_of_that_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setups = [LogSetup(str(tmp_path / name)) for name in ("old", "new")]
    old, new = [await setup.open() for setup in setups]
    for log in (old, new):
        for value in (b"a", b"b", b"c"):
            log.append_as_leader(batch(value), 0)
        await written(log)
    old.state.replaced_by(new)
    await old.truncation.truncate_to(2)
    assert (old.state.log_end_offset, new.state.log_end_offset) == (3, 2)

    def fail(name: str, *, create: bool = False) -> asyncio.Future[File]:
        failed: asyncio.Future[File] = asyncio.get_running_loop().create_future()
        failed.set_exception(OSError(errno.EIO, "Input/output error", name))
        return failed

    monkeypatch.setattr(new.state.disk, "open", fail)
    with pytest.raises(KafkaError) as caught:
        await old.truncation.truncate_to(1)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert [len(setup.owner.failures) for setup in setups] == [0, 1]
    for setup in setups:
        setup.close()


async def test_records_after_a_truncation_below_the_log_start_offset_survive_a_restart(tmp_path: Path) -> None:
    """An unclean election may truncate a follower below its log start offset."""
    setup = LogSetup(str(tmp_path))
    log = await setup.open()
    for number in range(10):
        log.append_as_leader(batch(b"%d" % number), 0)
    await written(log)
    log.state.maybe_advance_high_watermark(10)
    await log.retention.advance_log_start_offset(8)
    await log.truncation.truncate_to(5)
    assert log.state.log_start_offset <= log.state.log_end_offset == 5
    for number in range(2):
        log.append_as_leader(batch(b"new %d" % number), 1)
    await written(log)
    start = log.state.log_start_offset
    await log.closer.close()
    setup.crash()
    log = await setup.open(log_start_offset=start)
    assert await read_values(log, 5) == [(5, b"new 0"), (6, b"new 1")]
    assert setup.owner.log_start_checkpoints
    setup.close()


async def test_a_log_ends_with_its_last_written_record_when_a_write_that_a_truncation_awaits_finds_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The truncation keeps offsets 2 and 3, whose write is still under way and then fails."""
    setup = LogSetup(str(tmp_path))
    log = await setup.open()
    for number in range(2):
        log.append_as_leader(batch(b"kept%d" % number), 0)
    await written(log)
    write_all, may_fail = disk_calls.write_all, threading.Event()

    def write(descriptor: int, buffers: Sequence[Buffer]) -> int:
        if any(b"lost" in bytes(buffer) for buffer in buffers):
            may_fail.wait(60)
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_all(descriptor, buffers)

    monkeypatch.setattr(disk_calls, "write_all", write)
    for _ in range(4):
        log.append_as_leader(batch(b"lost"), 0)
    truncating = log.truncation.truncate_to(4)
    await until(lambda: log.state.is_truncating)
    may_fail.set()
    await truncating
    log.truncation.resume_appends()
    await until(lambda: not log.state.is_full)
    log.append_as_leader(batch(b"new"), 1)
    await written(log)
    expected = [(0, b"kept0"), (1, b"kept1"), (2, b"new")]
    assert await read_values(log, 0) == expected
    setup.crash()
    assert await read_values(await setup.open(is_clean=False), 0) == expected
    setup.close()

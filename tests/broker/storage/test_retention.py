"""When segments roll by time, which of them go and when, how their files go, and when a log is flushed by itself."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.ports.clock import Timer
from ottla_broker.ports.disk import File
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.segment import Segment
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.reader import LogReader
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from tests.broker.replication.fleet import until
from tests.broker.storage.agreement import disagreements
from tests.broker.storage.log_dirs.brokers import TOPIC_ID, BrokerStorage
from tests.broker.storage.logs import LogSetup, batch, read_values, written

Make = Callable[..., LogSetup]
HOUR_MS = 3_600_000


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    setups: list[LogSetup] = []

    def make_setup(**config: Any) -> LogSetup:
        setup = LogSetup(str(tmp_path), {key.replace("_", "."): value for key, value in config.items()})
        setups.append(setup)
        return setup

    yield make_setup
    for setup in setups:
        setup.close()


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerStorage]:
    made = BrokerStorage(tmp_path, 2, {"segment.bytes": 300, "retention.bytes": 600}, LogManagerSettings())
    yield made
    made.stop()
    await made.workers.wait_closed()


async def fill(log: Log, *timestamps: int) -> None:
    """One record for each; everything is below the high watermark then."""
    for timestamp in timestamps:
        log.append_as_leader(batch(b"v", timestamp=timestamp), 0)
    await written(log)
    log.maybe_advance_high_watermark(log.log_end_offset)


def deleted(path: Path) -> list[str]:
    return sorted(file.name for file in (path / "t-0").glob("*.deleted"))


async def test_the_jitter_brings_each_roll_forward_by_another_time_also_after_a_restart(make: Make) -> None:
    setup = make(segment_ms=10_000, segment_jitter_ms=5_000)
    log = await setup.open()
    drawn = [log.segments[0].roll_jitter_ms]
    for _ in range(20):
        log.roll()
        drawn.append(log.state.active_segment.roll_jitter_ms)
    assert all(0 <= jitter < 5_000 for jitter in drawn) and len(set(drawn)) > 10
    begin = setup.clock.wall_ms
    limit = 10_000 - log.state.active_segment.roll_jitter_ms
    await fill(log, begin, begin + limit)
    count = len(log.segments)
    await fill(log, begin + limit + 1)
    assert len(log.segments) == count + 1
    await log.close()
    again = []
    for _ in range(10):
        setup.crash()
        again.append((await setup.open()).state.active_segment.roll_jitter_ms)
    assert all(0 <= jitter < 5_000 for jitter in again) and any(again)


async def test_the_largest_timestamp_of_a_segment_decides_whatever_its_order(make: Make) -> None:
    setup = make(segment_bytes=300, retention_ms=HOUR_MS)
    log = await setup.open()
    now = setup.clock.wall_ms
    await fill(log, now - 5 * HOUR_MS, now, *[now - 5 * HOUR_MS] * 10)
    assert len(log.segments) > 2
    assert await log.delete_old_segments() == 0, "its second record keeps the first segment, and that what follows"
    setup.clock.wall_ms += HOUR_MS + 1
    assert await log.delete_old_segments() == 3
    assert log.log_start_offset == log.log_end_offset == 12


async def test_who_the_producers_are_outlives_the_last_segment(make: Make, tmp_path: Path) -> None:
    """A kill right after: the snapshots of the segments are gone with them."""
    setup = make(retention_ms=HOUR_MS)
    log = await setup.open()
    log.append_as_leader(batch(b"a", timestamp=setup.clock.wall_ms - 2 * HOUR_MS, producer=(7, 3, 0)), 0)
    await written(log)
    log.maybe_advance_high_watermark(log.log_end_offset)
    assert await log.delete_old_segments() == 1
    setup.crash()
    log = await setup.open(log_start_offset=1, recovery_point=1)
    assert [(entry.producer_id, entry.epoch) for entry in log.producers.entries] == [(7, 3)]


async def test_nobody_who_asks_for_what_is_going_is_given_what_comes_behind_it(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the snapshot of what stays is written, which the roll has left for later."""
    setup = make(retention_ms=HOUR_MS)
    log = await setup.open()
    await fill(log, setup.clock.wall_ms - 2 * HOUR_MS)
    write_file = log.disk.write_file
    seen: list[ErrorCode] = []

    def look_first(name: str, data: bytes) -> asyncio.Future[None]:
        log.append_as_leader(batch(b"behind", timestamp=setup.clock.wall_ms), 0)
        with pytest.raises(KafkaError) as refused:
            log.read(0, 1 << 20, log.log_end_offset, True)
        seen.append(refused.value.code)
        return write_file(name, data)

    monkeypatch.setattr(log.disk, "write_file", look_first)
    assert await log.delete_old_segments() == 1
    assert seen and set(seen) == {ErrorCode.OFFSET_OUT_OF_RANGE}


async def test_a_read_that_begins_behind_the_deletion_of_what_it_asks_for_is_out_of_range(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = make(segment_bytes=100, retention_ms=HOUR_MS)
    log = await setup.open()
    await fill(log, setup.clock.wall_ms - 2 * HOUR_MS, setup.clock.wall_ms - 2 * HOUR_MS, setup.clock.wall_ms)
    is_deleted = asyncio.Event()
    find = LogReader._locate

    async def late(*arguments: Any) -> Any:
        await is_deleted.wait()
        return await find(*arguments)

    monkeypatch.setattr(LogReader, "_locate", late)
    reading = asyncio.ensure_future(log.read_bytes(0, 1 << 20))
    await asyncio.sleep(0)
    assert await log.delete_old_segments() == 2
    is_deleted.set()
    with pytest.raises(KafkaError) as refused:
        await reading
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_record_from_the_future_keeps_its_segment_and_is_told_of_once(make: Make) -> None:
    setup = make(segment_bytes=300, retention_ms=HOUR_MS)
    log = await setup.open()
    now = setup.clock.wall_ms
    await fill(log, now, now + 100 * HOUR_MS, *[now] * 10)
    setup.clock.wall_ms += 50 * HOUR_MS
    for _ in range(3):
        assert await log.delete_old_segments() == 0
    assert len(setup.owner.notices) == 1 and str(now + 100 * HOUR_MS) in setup.owner.notices[0]
    setup.clock.wall_ms += 52 * HOUR_MS
    assert await log.delete_old_segments() == 3


@pytest.mark.parametrize("is_clean", [True, False])
async def test_records_without_timestamps_age_from_the_last_change_of_their_file_also_over_restarts(
    make: Make, tmp_path: Path, is_clean: bool
) -> None:
    setup = make(segment_bytes=300, retention_ms=HOUR_MS)
    log = await setup.open()
    await fill(log, *[-1] * 12)
    assert len(log.segments) == 3
    if is_clean:
        await log.close()
    setup.crash()
    now = setup.clock.wall_ms
    for path, age_ms in zip(sorted((tmp_path / "t-0").glob("*.log")), (3 * HOUR_MS, HOUR_MS + 1, HOUR_MS), strict=True):
        os.utime(path, ns=(0, (now - age_ms) * 1_000_000))
    log = await setup.open(is_clean=is_clean)
    log.maybe_advance_high_watermark(12)
    assert await log.delete_old_segments() == 2


@pytest.mark.parametrize("is_rolled", [False, True])
async def test_what_is_appended_while_the_age_of_a_file_is_asked_for_stays(make: Make, is_rolled: bool) -> None:
    """The loop is busy until the disk has told the age, and written what came behind the question."""
    setup = make(segment_bytes=150, retention_ms=HOUR_MS)
    log = await setup.open()
    await fill(log, -1)
    os.utime(Path(setup.path) / "t-0" / f"{0:020d}.log", ns=(0, (setup.clock.wall_ms - 2 * HOUR_MS) * 1_000_000))
    retention = asyncio.ensure_future(log.delete_old_segments())
    await asyncio.sleep(0)
    for _ in range(1 + is_rolled):
        log.append_as_leader(batch(b"v", timestamp=-1), 0)
    await asyncio.sleep(0)
    time.sleep(0.1)  # noqa: ASYNC251 -- the lane posts both answers meanwhile, for one turn of the loop
    assert await retention == 0
    await written(log)
    assert [offset for offset, _ in await read_values(log, 0)] == [0, 1, 2][: 2 + is_rolled]


async def test_size_retention_keeps_at_least_what_it_promises(make: Make) -> None:
    setup = make(segment_bytes=300, retention_bytes=700)
    log = await setup.open()
    await fill(log, *[setup.clock.wall_ms] * 40)
    await log.delete_old_segments()
    assert 700 <= log.size_bytes < 700 + 300


async def test_retention_bytes_counts_for_each_partition(broker: BrokerStorage) -> None:
    manager = await broker.start()
    logs = [await manager.get_or_create(TopicPartition("t", number), TOPIC_ID, True) for number in range(3)]
    for log in logs:
        await fill(log, *[broker.clock.wall_ms] * 40)
    assert await manager.background_tasks.delete_old_segments() > 0
    assert all(600 <= log.size_bytes < 900 for log in logs)


async def test_files_of_deleted_segments_are_renamed_at_once_and_go_after_the_delay(make: Make, tmp_path: Path) -> None:
    setup = make(segment_bytes=300, retention_bytes=250, file_delete_delay_ms=HOUR_MS)
    log = await setup.open()
    later: list[tuple[float, Callable[[], object]]] = []
    call_later = setup.clock.call_later

    def remember(delay_s: float, callback: Callable[..., object], *arguments: object) -> Timer:
        later.append((delay_s, lambda: callback(*arguments)))
        return call_later(delay_s, callback, *arguments)

    setup.clock.call_later = remember  # type: ignore[method-assign]
    await fill(log, *[setup.clock.wall_ms] * 12)
    assert await log.delete_old_segments() == 2
    names = deleted(tmp_path)
    for base in (0, 4):
        for suffix in (".log", ".index", ".timeindex"):
            assert f"{base:020d}{suffix}.deleted" in names
    assert f"{4:020d}.snapshot.deleted" in names
    assert disagreements(tmp_path / "t-0", was_killed=True) == []
    due = [callback for delay_s, callback in later if delay_s == HOUR_MS / 1000]
    assert due
    for unlink in due:
        unlink()
    await until(lambda: not deleted(tmp_path), "the files are unlinked")


@pytest.mark.parametrize("is_clean", [True, False])
async def test_files_whose_delay_did_not_pass_before_the_end_go_at_the_next_start(
    make: Make, tmp_path: Path, is_clean: bool
) -> None:
    setup = make(segment_bytes=300, retention_bytes=250)
    log = await setup.open()
    await fill(log, *[setup.clock.wall_ms] * 12)
    assert await log.delete_old_segments() == 2
    start = log.log_start_offset
    if is_clean:
        await log.close()
    setup.crash()
    assert deleted(tmp_path)
    log = await setup.open(is_clean=is_clean, log_start_offset=start)
    assert deleted(tmp_path) == []
    assert [offset for offset, _ in await read_values(log, start)] == list(range(start, 12))
    with pytest.raises(KafkaError) as caught:
        log.read(start - 1, 100, 12, True)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_segment_whose_roll_ends_while_it_is_opened_to_be_read_is_there(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flushed and closed as idle before its roll has come to its end, which takes its index away."""
    setup = make(segment_bytes=100)
    log = await setup.open()
    is_written_out, is_opening, may_open = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def write_out_late(_: Segment) -> None:
        await is_written_out.wait()

    monkeypatch.setattr(Segment, "write_out", write_out_late)
    await fill(log, *[setup.clock.wall_ms] * 2)
    rolling = log.rolling
    assert len(log.segments) == 2 and rolling is not None
    async with log.lock:
        await log._flusher.flush_locked()
    await log.close_idle_segments()
    assert log.segments[0].file is None
    open_file = log.disk.open

    async def open_late(name: str, *, create: bool = False) -> File:
        if name == log.segments[0].name(".log"):
            is_opening.set()
            await may_open.wait()
        return await open_file(name, create=create)

    monkeypatch.setattr(log.disk, "open", lambda *names, **options: asyncio.ensure_future(open_late(*names, **options)))
    reading = asyncio.ensure_future(log.read_bytes(0, 1 << 20))
    await is_opening.wait()
    is_written_out.set()
    await asyncio.wait([rolling], timeout=0.5)
    may_open.set()
    assert await reading and not setup.owner.failures
    await rolling


async def test_a_log_is_flushed_when_flush_ms_have_passed(broker: BrokerStorage) -> None:
    broker.config = type(broker.config)({"flush.ms": 5_000})
    manager = await broker.start()
    log = await manager.get_or_create(TopicPartition("t", 0), TOPIC_ID, True)
    await fill(log, broker.clock.wall_ms)
    broker.clock.wall_ms += 4_999
    await manager.background_tasks.flush_due()
    assert log.flushed_offset == 0
    broker.clock.wall_ms += 1
    await manager.background_tasks.flush_due()
    assert log.flushed_offset == 1
    await fill(log, broker.clock.wall_ms)
    await manager.background_tasks.flush_due()
    assert log.flushed_offset == 1, "the next one is due five seconds after this one"

"""Retention of one log by size, time and log start offset."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.config import TopicValues
from ottla_broker.ports.clock import Timer
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.reader import LogReader
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from tests.broker.replication.fleet import until
from tests.broker.storage.agreement import disagreements
from tests.broker.storage.log_dirs.brokers import TOPIC_ID, BrokerStorage
from tests.broker.storage.logs import Make, batch, read_values, written


async def test_retention_deletes_segments_by_size_time_and_log_start_offset(make: Make, tmp_path: Path) -> None:
    setup = make(segment_bytes=300, retention_ms=10_000, file_delete_delay_ms=0)
    log = await setup.open()
    for number in range(20):
        log.append_as_leader(batch(b"v", timestamp=setup.clock.wall_ms + number), number)
    await written(log)
    assert await log.retention.delete_old_segments() == 0
    setup.clock.wall_ms += 10_008
    assert await log.retention.delete_old_segments() == 0  # nothing below the high watermark
    log.state.maybe_advance_high_watermark(20)
    assert await log.retention.delete_old_segments() == 2
    assert log.state.log_start_offset == 8 == log.state.segments[0].base_offset
    assert log.state.epochs.entries[0] == (8, 8)
    assert setup.owner.log_start_checkpoints == 1
    with pytest.raises(KafkaError):
        log.read(7, 100, 20, True)

    log.configure(LogConfig(TopicValues({"segment.bytes": 300, "retention.ms": -1, "retention.bytes": 500})))
    assert await log.retention.delete_old_segments() == 1
    assert log.state.log_start_offset == 12

    log.configure(LogConfig(TopicValues({"segment.bytes": 300, "cleanup.policy": "compact", "retention.bytes": 0})))
    assert await log.retention.delete_old_segments() == 0
    await log.retention.advance_log_start_offset(17)
    assert await log.retention.delete_old_segments() == 1
    assert log.state.log_start_offset == 17 and log.state.segments[0].base_offset == 16
    assert [offset for offset, _ in await read_values(log, 17)] == [17, 18, 19]
    with pytest.raises(KafkaError):
        log.retention.advance_log_start_offset(21)


async def test_retention_deletes_the_active_segment_of_an_idle_log(make: Make) -> None:
    setup = make(retention_ms=10_000)
    log = await setup.open()
    log.append_as_leader(batch(b"v", timestamp=setup.clock.wall_ms), 0)
    await written(log)
    log.state.maybe_advance_high_watermark(1)
    setup.clock.wall_ms += 20_000
    assert await log.retention.delete_old_segments() == 1
    assert (log.state.log_start_offset, log.state.log_end_offset, len(log.state.segments)) == (1, 1, 1)
    assert log.append_as_leader(batch(b"w"), 0).first_offset == 1
    await written(log)
    assert await read_values(log, 1) == [(1, b"w")]


HOUR_MS = 3_600_000


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerStorage]:
    made = BrokerStorage(tmp_path, 2, {"segment.bytes": 300, "retention.bytes": 600}, LogManagerSettings())
    yield made
    made.stop()
    await made.workers.wait_closed()


async def fill(log: Log, *timestamps: int) -> None:
    """Appends a record for each timestamp and moves the high watermark to the end."""
    for timestamp in timestamps:
        log.append_as_leader(batch(b"v", timestamp=timestamp), 0)
    await written(log)
    log.state.maybe_advance_high_watermark(log.state.log_end_offset)


def deleted(path: Path) -> list[str]:
    return sorted(file.name for file in (path / "t-0").glob("*.deleted"))


async def test_retention_ms_counts_from_the_largest_timestamp_of_a_segment(make: Make) -> None:
    setup = make(segment_bytes=300, retention_ms=HOUR_MS)
    log = await setup.open()
    now = setup.clock.wall_ms
    await fill(log, now - 5 * HOUR_MS, now, *[now - 5 * HOUR_MS] * 10)
    assert len(log.state.segments) > 2
    assert await log.retention.delete_old_segments() == 0, (
        "its second record keeps the first segment, and that what follows"
    )
    setup.clock.wall_ms += HOUR_MS + 1
    assert await log.retention.delete_old_segments() == 3
    assert log.state.log_start_offset == log.state.log_end_offset == 12


async def test_the_producer_state_survives_the_deletion_of_all_segments(make: Make, tmp_path: Path) -> None:
    """After a kill: the snapshots of the segments are deleted with them."""
    setup = make(retention_ms=HOUR_MS)
    log = await setup.open()
    log.append_as_leader(batch(b"a", timestamp=setup.clock.wall_ms - 2 * HOUR_MS, producer=(7, 3, 0)), 0)
    await written(log)
    log.state.maybe_advance_high_watermark(log.state.log_end_offset)
    assert await log.retention.delete_old_segments() == 1
    setup.crash()
    log = await setup.open(log_start_offset=1, recovery_point=1)
    assert [(entry.producer_id, entry.epoch) for entry in log.state.producers.entries] == [(7, 3)]


async def test_a_read_of_records_that_are_being_deleted_is_out_of_range(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While retention writes the snapshot of the remaining segment."""
    setup = make(retention_ms=HOUR_MS)
    log = await setup.open()
    await fill(log, setup.clock.wall_ms - 2 * HOUR_MS)
    write_file = log.state.disk.write_file
    seen: list[ErrorCode] = []

    def look_first(name: str, data: bytes) -> asyncio.Future[None]:
        log.append_as_leader(batch(b"behind", timestamp=setup.clock.wall_ms), 0)
        with pytest.raises(KafkaError) as refused:
            log.read(0, 1 << 20, log.state.log_end_offset, True)
        seen.append(refused.value.code)
        return write_file(name, data)

    monkeypatch.setattr(log.state.disk, "write_file", look_first)
    assert await log.retention.delete_old_segments() == 1
    assert seen and set(seen) == {ErrorCode.OFFSET_OUT_OF_RANGE}


async def test_a_read_that_starts_after_the_deletion_of_its_records_is_out_of_range(
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
    assert await log.retention.delete_old_segments() == 2
    is_deleted.set()
    with pytest.raises(KafkaError) as refused:
        await reading
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_timestamp_in_the_future_keeps_its_segment_and_is_reported_once(make: Make) -> None:
    setup = make(segment_bytes=300, retention_ms=HOUR_MS)
    log = await setup.open()
    now = setup.clock.wall_ms
    await fill(log, now, now + 100 * HOUR_MS, *[now] * 10)
    setup.clock.wall_ms += 50 * HOUR_MS
    for _ in range(3):
        assert await log.retention.delete_old_segments() == 0
    assert len(setup.owner.notices) == 1 and str(now + 100 * HOUR_MS) in setup.owner.notices[0]
    setup.clock.wall_ms += 52 * HOUR_MS
    assert await log.retention.delete_old_segments() == 3


@pytest.mark.parametrize("is_clean", [True, False])
async def test_records_without_timestamps_age_from_the_modification_time_of_their_file(
    make: Make, tmp_path: Path, is_clean: bool
) -> None:
    setup = make(segment_bytes=300, retention_ms=HOUR_MS)
    log = await setup.open()
    await fill(log, *[-1] * 12)
    assert len(log.state.segments) == 3
    if is_clean:
        await log.closer.close()
    setup.crash()
    now = setup.clock.wall_ms
    for path, age_ms in zip(sorted((tmp_path / "t-0").glob("*.log")), (3 * HOUR_MS, HOUR_MS + 1, HOUR_MS), strict=True):
        os.utime(path, ns=(0, (now - age_ms) * 1_000_000))
    log = await setup.open(is_clean=is_clean)
    log.state.maybe_advance_high_watermark(12)
    assert await log.retention.delete_old_segments() == 2


@pytest.mark.parametrize("is_rolled", [False, True])
async def test_records_that_are_appended_while_retention_reads_a_time_are_kept(make: Make, is_rolled: bool) -> None:
    """The event loop is busy until the disk has answered and has written the append after it."""
    setup = make(segment_bytes=150, retention_ms=HOUR_MS)
    log = await setup.open()
    await fill(log, -1)
    os.utime(Path(setup.path) / "t-0" / f"{0:020d}.log", ns=(0, (setup.clock.wall_ms - 2 * HOUR_MS) * 1_000_000))
    retention = asyncio.ensure_future(log.retention.delete_old_segments())
    await asyncio.sleep(0)
    for _ in range(1 + is_rolled):
        log.append_as_leader(batch(b"v", timestamp=-1), 0)
    await asyncio.sleep(0)
    time.sleep(0.1)  # noqa: ASYNC251 -- the disk posts both answers meanwhile, for one iteration of the loop
    assert await retention == 0
    await written(log)
    assert [offset for offset, _ in await read_values(log, 0)] == [0, 1, 2][: 2 + is_rolled]


async def test_retention_keeps_at_least_retention_bytes(make: Make) -> None:
    setup = make(segment_bytes=300, retention_bytes=700)
    log = await setup.open()
    await fill(log, *[setup.clock.wall_ms] * 40)
    await log.retention.delete_old_segments()
    assert 700 <= log.state.size_bytes < 700 + 300


async def test_retention_bytes_applies_to_each_partition(broker: BrokerStorage) -> None:
    manager = await broker.start()
    logs = [await manager.get_or_create(TopicPartition("t", number), TOPIC_ID, True) for number in range(3)]
    for log in logs:
        await fill(log, *[broker.clock.wall_ms] * 40)
    assert await manager.background_tasks.delete_old_segments() > 0
    assert all(600 <= log.state.size_bytes < 900 for log in logs)


async def test_files_of_deleted_segments_are_deleted_after_file_delete_delay_ms(make: Make, tmp_path: Path) -> None:
    setup = make(segment_bytes=300, retention_bytes=250, file_delete_delay_ms=HOUR_MS)
    log = await setup.open()
    later: list[tuple[float, Callable[[], object]]] = []
    call_later = setup.clock.call_later

    def remember(delay_s: float, callback: Callable[..., object], *arguments: object) -> Timer:
        later.append((delay_s, lambda: callback(*arguments)))
        return call_later(delay_s, callback, *arguments)

    setup.clock.call_later = remember  # type: ignore[method-assign]
    await fill(log, *[setup.clock.wall_ms] * 12)
    assert await log.retention.delete_old_segments() == 2
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
async def test_renamed_files_are_deleted_at_the_next_start(make: Make, tmp_path: Path, is_clean: bool) -> None:
    setup = make(segment_bytes=300, retention_bytes=250)
    log = await setup.open()
    await fill(log, *[setup.clock.wall_ms] * 12)
    assert await log.retention.delete_old_segments() == 2
    start = log.state.log_start_offset
    if is_clean:
        await log.closer.close()
    setup.crash()
    assert deleted(tmp_path)
    log = await setup.open(is_clean=is_clean, log_start_offset=start)
    assert deleted(tmp_path) == []
    assert [offset for offset, _ in await read_values(log, start)] == list(range(start, 12))
    with pytest.raises(KafkaError) as caught:
        log.read(start - 1, 100, 12, True)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE

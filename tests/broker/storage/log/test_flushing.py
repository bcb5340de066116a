"""When segments roll, and the order of disk calls in a roll and a flush."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.adapters import disk_calls
from ottla_broker.adapters.disk import DirectoryDisk, DiskFile
from ottla_broker.config import TopicValues
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from tests.broker.storage.log_dirs.brokers import TOPIC_ID, BrokerStorage
from tests.broker.storage.logs import Make, batch, read_values, rolled, written
from tests.contract.disk_contract import HeldWriteOut


async def test_a_segment_rolls_by_size_and_has_the_files_of_kafka(make: Make, tmp_path: Path) -> None:
    log = await make(segment_bytes=1000, index_interval_bytes=200).open()
    for number in range(30):
        log.append_as_leader(batch(b"%03d" % number, producer=(3, 0, number)), 0)
    await written(log)
    await log.flusher.flush()
    bases = [segment.base_offset for segment in log.state.segments]
    assert len(bases) > 2
    await rolled(log)
    files = {path.name for path in (tmp_path / "t-0").iterdir()}
    for base in bases:
        assert {f"{base:020d}.log", f"{base:020d}.index", f"{base:020d}.timeindex"} <= files
        assert (tmp_path / "t-0" / f"{base:020d}.log").stat().st_size <= 1000
    assert {f"{base:020d}.snapshot" for base in bases[1:]} <= files
    closed = tmp_path / "t-0" / f"{bases[0]:020d}.index"
    assert closed.stat().st_size % 8 == 0 and closed.stat().st_size > 0
    times = (tmp_path / "t-0" / f"{bases[0]:020d}.timeindex").read_bytes()
    assert int.from_bytes(times[-12:-4], "big") == 1_700_000_000_000
    assert (tmp_path / "t-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    assert [value for _, value in await read_values(log, 0, 150)] == [b"%03d" % number for number in range(30)]


async def test_appends_continue_while_a_rolled_segment_is_written_out(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sync takes as long as the disk does for a gigabyte, and would have everything else on the disk wait."""
    held, log = await nearly_full(make, monkeypatch)
    synced = syncs_of(monkeypatch)
    log.append_as_leader(batch(b"rolls", bytes(900_000)), 0)
    assert [segment.base_offset for segment in log.state.segments] == [0, 5]
    await written(log)
    await held.until_begun()
    log.append_as_leader(batch(b"meanwhile"), 0)
    await written(log)
    assert (log.state.log_end_offset, log.state.recovery_point) == (8, 0)
    assert synced == [], "a sync of anything waits in the file system's journal for the segment"
    held.may_go_on.set()
    await rolled(log)
    assert (log.state.recovery_point, log.state.flushed_offset) == (5, 5)
    assert (tmp_path / "t-0" / f"{5:020d}.snapshot").exists()
    await log.flusher.flush()
    assert (log.state.recovery_point, log.state.flushed_offset) == (8, 8)


async def test_a_flush_writes_the_snapshot_of_a_roll_before_the_recovery_point_passes_it(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is below it may be compacted: who the producers were is then known from the snapshot alone."""
    held, log = await nearly_full(make, monkeypatch)
    log.append_as_leader(batch(bytes(900_000)), 0)
    await held.until_begun()
    snapshot = tmp_path / "t-0" / f"{5:020d}.snapshot"
    assert not snapshot.exists()
    await log.flusher.flush_locked()
    assert log.state.recovery_point == 6 and snapshot.exists()
    held.may_go_on.set()
    await rolled(log)


async def test_a_roll_syncs_the_directory_before_records_of_the_new_segment_and_before_the_next_roll(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, log = await nearly_full(make, monkeypatch, flush_messages=7)
    synced = syncs_of(monkeypatch)
    log.append_as_leader(batch(bytes(900_000)), 0)
    await written(log)
    assert len(log.state.segments) == 2 and synced == []
    log.append_as_leader(batch(b"the seventh"), 0)
    await written(log)
    assert synced[0] == "fsync_directory" and "fdatasync" in synced

    del synced[:]
    log.configure(LogConfig(TopicValues({"segment.bytes": 5_000_000, "max.message.bytes": 1_000_000})))
    for _ in range(10):
        log.append_as_leader(batch(bytes(900_000)), 0)
    await written(log)
    # Rolled twice: no more than one segment may be in danger.
    assert len(log.state.segments) == 4 and synced == ["fsync_directory"]
    held.may_go_on.set()
    await rolled(log)


async def nearly_full(make: Make, monkeypatch: pytest.MonkeyPatch, **config: Any) -> tuple[HeldWriteOut, Log]:
    """(a log whose next batch of 900 000 bytes rolls its first segment, the control of that segment's write-out)."""
    held = HeldWriteOut(monkeypatch)
    log = await make(segment_bytes=5_000_000, max_message_bytes=1_000_000, **config).open()
    for _ in range(5):
        log.append_as_leader(batch(bytes(900_000)), 0)
    await written(log)
    return held, log


def syncs_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is made durable from now on, by the name of the call that does it."""
    called: list[str] = []

    def noted(where: object, name: str) -> None:
        original = getattr(where, name)

        def call(*arguments: Any) -> Any:
            called.append(name)
            return original(*arguments)

        monkeypatch.setattr(where, name, call)

    for name in ("fsync_directory", "fsync_file", "write_file"):
        noted(disk_calls, name)
    noted(os, "fdatasync")
    return called


async def test_a_roll_creates_files_only_after_the_earlier_appends_are_queued(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a kill in between leaves a hole that looks like a gap of compaction."""
    log = await make(segment_bytes=200).open()
    calls: list[str] = []
    open_file, append = DirectoryDisk.open, DiskFile.append

    def open_and_note(disk: DirectoryDisk, name: str, *, create: bool = False) -> Any:
        calls.append(f"open {name}")
        return open_file(disk, name, create=create)

    def append_and_note(file: DiskFile, *arguments: Any) -> Any:
        calls.append(f"append {file.name}")
        return append(file, *arguments)

    monkeypatch.setattr(DirectoryDisk, "open", open_and_note)
    monkeypatch.setattr(DiskFile, "append", append_and_note)
    for number in range(4):  # within one turn
        log.append_as_leader(batch(b"%d" % number * 100), 0)
    await written(log)
    names = [f"t-0/{base:020d}.log" for base in range(4)]
    assert [call for call in calls if call.endswith(".log")] == [
        f"append {names[0]}",
        *[f"{call} {name}" for name in names[1:] for call in ("open", "append")],
    ]
    assert [value for _, value in await read_values(log, 0)] == [b"%d" % number * 100 for number in range(4)]


async def test_a_segment_rolls_by_the_timestamps_of_its_records(make: Make) -> None:
    log = await make(segment_ms=1000).open()
    log.append_as_leader(batch(b"a", timestamp=5000), 0)
    log.append_as_leader(batch(b"b", timestamp=6000), 0)
    log.append_as_leader(batch(b"c", timestamp=6001), 0)
    assert [segment.base_offset for segment in log.state.segments] == [0, 2]
    await written(log)


async def test_a_segment_rolls_when_its_index_is_full(make: Make) -> None:
    log = await make(segment_index_bytes=48, index_interval_bytes=0).open()
    for number in range(12):
        log.append_as_leader(batch(b"v", timestamp=1000 + number), 0)
    await written(log)
    assert len(log.state.segments) > 2
    assert len(await read_values(log, 0)) == 12


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


async def test_a_segment_rolls_earlier_by_a_random_jitter_also_after_a_restart(make: Make) -> None:
    setup = make(segment_ms=10_000, segment_jitter_ms=5_000)
    log = await setup.open()
    drawn = [log.state.segments[0].roll_jitter_ms]
    for _ in range(20):
        log.flusher.roll()
        drawn.append(log.state.active_segment.roll_jitter_ms)
    assert all(0 <= jitter < 5_000 for jitter in drawn) and len(set(drawn)) > 10
    begin = setup.clock.wall_ms
    limit = 10_000 - log.state.active_segment.roll_jitter_ms
    await fill(log, begin, begin + limit)
    count = len(log.state.segments)
    await fill(log, begin + limit + 1)
    assert len(log.state.segments) == count + 1
    await log.closer.close()
    again = []
    for _ in range(10):
        setup.crash()
        again.append((await setup.open()).state.active_segment.roll_jitter_ms)
    assert all(0 <= jitter < 5_000 for jitter in again) and any(again)


async def test_a_log_is_flushed_after_flush_ms(broker: BrokerStorage) -> None:
    broker.config = LogConfig(TopicValues({"flush.ms": 5_000}))
    manager = await broker.start()
    log = await manager.get_or_create(TopicPartition("t", 0), TOPIC_ID, True)
    await fill(log, broker.clock.wall_ms)
    broker.clock.wall_ms += 4_999
    await manager.background_tasks.flush_due()
    assert log.state.flushed_offset == 0
    broker.clock.wall_ms += 1
    await manager.background_tasks.flush_due()
    assert log.state.flushed_offset == 1
    await fill(log, broker.clock.wall_ms)
    await manager.background_tasks.flush_due()
    assert log.state.flushed_offset == 1, "the next one is due five seconds after this one"

"""A log on real files: what a leader accepts, what readers get, what is left after each kind of change."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.adapters import disk_calls
from ottla_broker.adapters.disk import DirectoryDisk, DiskFile
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.batch import is_intact, read_header
from ottla_broker.records.compression import Codec
from ottla_broker.records.control_records import ControlType, EndTransactionMarker, build_marker
from ottla_broker.records.record import decode_records
from ottla_broker.storage.log.append_checks import PreparationNeeded
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.reader import LogRead
from ottla_broker.storage.log.timestamps import TimestampAndOffset
from tests.broker.storage.logs import LogSetup, batch, read_bytes, read_values, rolled, written
from tests.contract.disk_contract import HeldWriteOut

Make = Callable[..., LogSetup]


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


def refused(log: Log, records: memoryview) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(records, 0)
    assert caught.value.message
    return caught.value.code


async def test_offsets_are_assigned_at_once_and_visible_when_written(make: Make) -> None:
    log = await make().open()
    grown: list[int] = []
    log.on_append = lambda: grown.append(log.log_end_offset)
    info = log.append_as_leader(batch(b"a", b"b", b"c"), 4)
    assert (info.first_offset, info.last_offset, info.log_append_time_ms) == (0, 2, -1)
    assert log.assigned_offset == 3 and log.log_end_offset == 0
    assert log.read(0, 100, 3, True) == LogRead((), 0)
    await written(log)
    assert log.log_end_offset == 3 and grown == [3]
    assert log.append_as_leader(batch(b"d"), 4).first_offset == 3
    await written(log)
    assert await read_values(log, 1) == [(1, b"b"), (2, b"c"), (3, b"d")]


async def test_offset_and_epoch_are_patched_into_the_received_bytes_and_nothing_else(make: Make) -> None:
    log = await make().open()
    log.append_as_leader(batch(b"first"), 0)
    received = batch(b"x", b"y")
    before = bytes(received)
    log.append_as_leader(received, 7)
    await written(log)
    stored = await read_bytes(log, 1)
    assert stored == bytes(received)
    assert stored[:8] == (1).to_bytes(8, "big") and stored[12:16] == (7).to_bytes(4, "big")
    assert stored[8:12] + stored[16:] == before[8:12] + before[16:]
    assert is_intact(stored)


async def test_a_read_only_buffer_is_accepted(make: Make) -> None:
    log = await make().open()
    log.append_as_leader(batch(b"a"), 0)
    assert log.append_as_leader(memoryview(bytes(batch(b"b"))), 0).first_offset == 1
    await written(log)
    assert await read_values(log, 0) == [(0, b"a"), (1, b"b")]


async def test_what_is_not_one_ordinary_batch_is_refused_with_kafkas_code(make: Make) -> None:
    log = await make(max_message_bytes=500, segment_bytes=400).open()
    good = bytes(batch(b"v"))

    def changed(position: int, value: bytes) -> memoryview:
        return memoryview(bytearray(good[:position] + value + good[position + len(value) :]))

    assert refused(log, memoryview(b"")) == ErrorCode.INVALID_RECORD
    assert refused(log, memoryview(good[:40])) == ErrorCode.INVALID_RECORD
    assert refused(log, memoryview(good + good)) == ErrorCode.INVALID_RECORD
    assert refused(log, memoryview(good[:-1])) == ErrorCode.INVALID_RECORD
    for old in (b"\x00", b"\x01"):
        with pytest.raises(PreparationNeeded):
            log.append_as_leader(changed(16, old), 0)
    assert refused(log, changed(16, b"\x03")) == ErrorCode.CORRUPT_MESSAGE
    assert refused(log, changed(17, b"\x00\x00\x00\x00")) == ErrorCode.CORRUPT_MESSAGE
    assert refused(log, changed(57, b"\x00\x00\x00\x02")) == ErrorCode.INVALID_RECORD
    assert refused(log, changed(23, b"\xff\xff\xff\xff")) == ErrorCode.INVALID_RECORD
    assert refused(log, changed(8, b"\x7f\xff\xff\xff")) == ErrorCode.INVALID_RECORD
    assert refused(log, changed(8, b"\xff\xff\xff\xff")) == ErrorCode.CORRUPT_MESSAGE
    assert refused(log, changed(21, b"\x00\x07")) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert refused(log, batch(b"v", attributes=0x20)) == ErrorCode.INVALID_RECORD
    assert (
        refused(log, batch(b"v", attributes=0x10, producer=(1, 0, 0)))
        == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )
    assert refused(log, batch(b"v", attributes=0x08)) == ErrorCode.INVALID_TIMESTAMP
    assert refused(log, batch(b"v", producer=(1, 0, -1))) == ErrorCode.INVALID_RECORD
    assert refused(log, batch(bytes(450))) == ErrorCode.MESSAGE_TOO_LARGE
    assert refused(log, batch(bytes(380))) == ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.assigned_offset == 0
    assert log.append_as_leader(memoryview(bytearray(good)), 0).first_offset == 0


@pytest.mark.parametrize(
    ("config", "ordinary"),
    [
        ({"compression_type": "producer"}, True),
        ({"compression_type": "uncompressed"}, True),  # what it is already
        ({"compression_type": "gzip"}, False),
        ({"cleanup_policy": "compact"}, False),
        ({"message_timestamp_before_max_ms": 1000}, False),
        ({"message_timestamp_after_max_ms": 1000}, True),  # the header tells the largest
        ({"message_timestamp_after_max_ms": 0}, False),
        ({"message_timestamp_type": "LogAppendTime", "message_timestamp_before_max_ms": 1000}, True),
    ],
)
async def test_only_what_a_rule_needs_looked_into_has_to_be_prepared(
    make: Make, config: dict[str, Any], ordinary: bool
) -> None:
    setup = make(**config)
    log = await setup.open()
    sent = batch(b"v", timestamp=setup.clock.wall_ms + 500)
    if not ordinary:
        with pytest.raises(PreparationNeeded):
            log.append_as_leader(sent, 0)
    assert log.append_as_leader(sent, 0, is_prepared=not ordinary).first_offset == 0


async def test_what_comes_while_others_are_prepared_has_to_wait(make: Make) -> None:
    log = await make().open()
    log.set_preparing(True)
    with pytest.raises(PreparationNeeded):
        log.append_as_leader(batch(b"v"), 0)
    assert refused(log, batch(b"v", attributes=0x20)) == ErrorCode.INVALID_RECORD
    assert log.append_as_leader(batch(b"v"), 0, is_prepared=True).first_offset == 0
    log.set_preparing(False)
    assert log.append_as_leader(batch(b"v"), 0).first_offset == 1


async def test_log_append_time_is_patched_into_the_header_alone(make: Make) -> None:
    setup = make(message_timestamp_type="LogAppendTime")
    log = await setup.open()
    now = setup.clock.wall_ms
    for sent in (batch(b"a", b"b", timestamp=5), memoryview(bytes(batch(b"c", timestamp=2**45, codec=Codec.ZSTD)))):
        before = bytes(sent)
        info = log.append_as_leader(sent, 0)
        assert info.log_append_time_ms == now
        await written(log)
        stored = await read_bytes(log, info.first_offset)
        header = read_header(stored)
        assert is_intact(stored) and header.has_append_time and header.max_timestamp == now
        assert stored[43:] == before[43:] and stored[23:35] == before[23:35]
        assert {record.timestamp for record in decode_records(stored)} == {now}
    assert await log.offset_for_timestamp(now, 3) == TimestampAndOffset(now, 0, 0)
    setup.clock.wall_ms += 1000
    original = log.append_as_leader(batch(b"d", producer=(9, 0, 0)), 0)
    setup.clock.wall_ms += 1000
    again = log.append_as_leader(batch(b"d", producer=(9, 0, 0)), 0)
    assert again.is_duplicate and again.log_append_time_ms == original.log_append_time_ms == now + 1000


async def test_a_repeated_batch_gets_its_first_offsets_and_is_stored_once(make: Make) -> None:
    log = await make().open()
    log.append_as_leader(batch(b"other"), 0)
    first = log.append_as_leader(batch(b"a", b"b", producer=(9, 0, 0)), 0)
    again = log.append_as_leader(batch(b"a", b"b", producer=(9, 0, 0)), 0)
    assert (again.first_offset, again.last_offset, again.is_duplicate) == (first.first_offset, first.last_offset, True)
    assert refused(log, batch(b"c", producer=(9, 0, 5))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append_as_leader(batch(b"c", producer=(9, 1, 0)), 0).first_offset == 3
    assert refused(log, batch(b"d", producer=(9, 0, 2))) == ErrorCode.INVALID_PRODUCER_EPOCH
    await written(log)
    assert [value for _, value in await read_values(log, 0)] == [b"other", b"a", b"b", b"c"]


async def test_a_follower_keeps_the_leaders_bytes(make: Make, tmp_path: Path) -> None:
    leader = await make().open()
    for number in range(20):
        leader.append_as_leader(batch(b"x%d" % number, b"y", producer=(5, 0, 2 * number)), number // 7)
    await written(leader)
    fetched = await read_bytes(leader, 0)

    setup = LogSetup(str(tmp_path / "follower"), {"segment.bytes": 400, "index.interval.bytes": 100})
    follower = await setup.open()
    half = len(fetched) // 2
    info = follower.append_as_follower(memoryview(fetched[:half]))
    assert info.first_offset == 0 and info.last_offset % 2 == 1
    await written(follower)
    rest = await read_bytes(leader, follower.log_end_offset)
    follower.append_as_follower(memoryview(rest))
    await written(follower)
    assert len(follower.segments) > 3
    assert await read_values(follower, 0) == await read_values(leader, 0)
    assert follower.epochs.entries == leader.epochs.entries == [(0, 0), (1, 14), (2, 28)]
    assert follower.producers.dump() == leader.producers.dump()
    empty = follower.append_as_follower(memoryview(fetched[:30]))
    assert empty.last_offset < empty.first_offset
    setup.close()


async def test_a_follower_refuses_offsets_it_has_and_bad_checksums_whole(make: Make, tmp_path: Path) -> None:
    leader = await make().open()
    leader.append_as_leader(batch(b"a"), 0)
    leader.append_as_leader(batch(b"b"), 0)
    await written(leader)
    fetched = bytearray(await read_bytes(leader, 0))
    setup = LogSetup(str(tmp_path / "follower"))
    follower = await setup.open()
    fetched[-1] ^= 1
    with pytest.raises(KafkaError) as caught:
        follower.append_as_follower(memoryview(fetched))
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE and follower.assigned_offset == 0
    fetched[-1] ^= 1
    follower.append_as_follower(memoryview(fetched))
    with pytest.raises(KafkaError) as caught:
        follower.append_as_follower(memoryview(fetched))
    assert caught.value.code == ErrorCode.INVALID_RECORD
    setup.close()


async def test_a_follower_takes_transaction_markers_down(make: Make) -> None:
    log = await make().open()
    data = bytearray(batch(b"v", attributes=0x10, producer=(5, 0, 0)))
    marker = build_marker(EndTransactionMarker(ControlType.COMMIT, 3), producer_id=5, producer_epoch=0, timestamp=1)
    marker[:8] = (1).to_bytes(8, "big")
    log.append_as_follower(memoryview(bytes(data)))
    assert next(iter(log.producers.entries)).current_txn_first_offset == 0
    log.append_as_follower(memoryview(bytes(marker)))
    entry = next(iter(log.producers.entries))
    assert (entry.current_txn_first_offset, entry.coordinator_epoch) == (-1, 3)


async def test_reads_are_cut_at_whole_bytes_but_give_the_first_batch_whole(make: Make) -> None:
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


async def test_reading_from_the_middle_of_a_batch_gives_the_whole_batch(make: Make) -> None:
    log = await make().open()
    log.append_as_leader(batch(b"a"), 0)
    log.append_as_leader(batch(b"b", b"c", b"d"), 0)
    await written(log)
    data = await read_bytes(log, 2)
    assert read_header(data).base_offset == 1


async def test_segments_roll_by_size_and_hold_kafkas_files(make: Make, tmp_path: Path) -> None:
    log = await make(segment_bytes=1000, index_interval_bytes=200).open()
    for number in range(30):
        log.append_as_leader(batch(b"%03d" % number, producer=(3, 0, number)), 0)
    await written(log)
    await log.flush()
    bases = [segment.base_offset for segment in log.segments]
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


async def test_appends_go_on_while_a_large_segment_that_was_rolled_is_written_to_the_disk(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sync takes as long as the disk does for a gigabyte, and would have everything else on the disk wait."""
    held, log = await nearly_full(make, monkeypatch)
    synced = syncs_of(monkeypatch)
    log.append_as_leader(batch(b"rolls", bytes(900_000)), 0)
    assert [segment.base_offset for segment in log.segments] == [0, 5]
    await written(log)
    await held.until_begun()
    log.append_as_leader(batch(b"meanwhile"), 0)
    await written(log)
    assert (log.log_end_offset, log.recovery_point) == (8, 0)
    assert synced == [], "a sync of anything waits in the file system's journal for the segment"
    held.may_go_on.set()
    await rolled(log)
    assert (log.recovery_point, log.flushed_offset) == (5, 5)
    assert (tmp_path / "t-0" / f"{5:020d}.snapshot").exists()
    await log.flush()
    assert (log.recovery_point, log.flushed_offset) == (8, 8)


async def test_whatever_moves_the_recovery_point_beyond_a_roll_writes_its_snapshot_first(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is below it may be compacted: who the producers were is then known from the snapshot alone."""
    held, log = await nearly_full(make, monkeypatch)
    log.append_as_leader(batch(bytes(900_000)), 0)
    await held.until_begun()
    snapshot = tmp_path / "t-0" / f"{5:020d}.snapshot"
    assert not snapshot.exists()
    await log._flusher.flush_locked()
    assert log.recovery_point == 6 and snapshot.exists()
    held.may_go_on.set()
    await rolled(log)


async def test_the_name_of_a_new_segment_is_durable_before_its_records_and_before_the_next_one(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, log = await nearly_full(make, monkeypatch, flush_messages=7)
    synced = syncs_of(monkeypatch)
    log.append_as_leader(batch(bytes(900_000)), 0)
    await written(log)
    assert len(log.segments) == 2 and synced == []
    log.append_as_leader(batch(b"the seventh"), 0)
    await written(log)
    assert synced[0] == "fsync_directory" and "fdatasync" in synced

    del synced[:]
    log.configure(LogConfig({"segment.bytes": 5_000_000, "max.message.bytes": 1_000_000}))
    for _ in range(10):
        log.append_as_leader(batch(bytes(900_000)), 0)
    await written(log)
    # Rolled twice: no more than one segment may be in danger.
    assert len(log.segments) == 4 and synced == ["fsync_directory"]
    held.may_go_on.set()
    await rolled(log)


async def nearly_full(make: Make, monkeypatch: pytest.MonkeyPatch, **config: Any) -> tuple[HeldWriteOut, Log]:
    """A log whose next batch of 900 000 bytes rolls its first segment, and what holds that on the way to the disk."""
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


async def test_no_segment_is_made_before_what_comes_before_it_is_on_its_way(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill in between would leave a hole that nobody can tell from one that compaction left."""
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


async def test_segments_roll_by_the_time_of_their_records(make: Make) -> None:
    log = await make(segment_ms=1000).open()
    log.append_as_leader(batch(b"a", timestamp=5000), 0)
    log.append_as_leader(batch(b"b", timestamp=6000), 0)
    log.append_as_leader(batch(b"c", timestamp=6001), 0)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    await written(log)


async def test_segments_roll_when_an_index_is_full(make: Make) -> None:
    log = await make(segment_index_bytes=48, index_interval_bytes=0).open()
    for number in range(12):
        log.append_as_leader(batch(b"v", timestamp=1000 + number), 0)
    await written(log)
    assert len(log.segments) > 2
    assert len(await read_values(log, 0)) == 12


async def test_offsets_are_found_by_time_to_the_record(make: Make) -> None:
    log = await make(segment_bytes=600, index_interval_bytes=100).open()
    for number in range(20):
        log.append_as_leader(batch(b"a", b"b", b"c", timestamp=1000 + 10 * number), 1 + number // 10)
    await written(log)
    end = log.log_end_offset
    assert await log.offset_for_timestamp(0, end) == TimestampAndOffset(1000, 0, 1)
    assert await log.offset_for_timestamp(1001, end) == TimestampAndOffset(1001, 1, 1)
    assert await log.offset_for_timestamp(1003, end) == TimestampAndOffset(1010, 3, 1)
    assert await log.offset_for_timestamp(1152, end) == TimestampAndOffset(1152, 47, 2)
    assert await log.offset_for_timestamp(1193, end) is None
    assert await log.offset_for_timestamp(1152, 47) is None
    assert await log.max_timestamp() == TimestampAndOffset(1192, 59, 2)
    assert await log.max_timestamp(30) == TimestampAndOffset(1092, 29, 1)


async def test_truncation_drops_records_epochs_and_producer_state(make: Make) -> None:
    setup = make(segment_bytes=700, index_interval_bytes=150)
    log = await setup.open()
    for number in range(40):
        log.append_as_leader(batch(b"%02d" % number, producer=(4, 0, number)), number // 10)
    await written(log)
    log.maybe_advance_high_watermark(40)
    await log.flush()
    assert log.recovery_point == 40
    await log.truncate_to(40)
    assert log.log_end_offset == 40
    await log.truncate_to(17)
    assert log.log_end_offset == log.assigned_offset == log.high_watermark == log.recovery_point == 17
    assert setup.owner.recovery_point_checkpoints == 1
    assert log.epochs.entries == [(0, 0), (1, 10)]
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


@pytest.mark.parametrize("is_idle", [False, True], ids=["open", "closed as idle meanwhile"])
async def test_what_waits_to_be_sent_and_is_cut_off_is_not_sent_as_what_was_written_in_its_place(
    make: Make, is_idle: bool
) -> None:
    """A slow client holds a range of a file that the truncation opens anew."""
    log = await make(segment_bytes=300 if is_idle else 1 << 20).open()
    for number in range(10):
        log.append_as_leader(batch(b"old%d" % number), 0)
    await written(log)
    log.maybe_advance_high_watermark(10)
    read = log.read(0, 1 << 20, log.log_end_offset, True)
    if not isinstance(read, tuple):
        read = await read
    if is_idle:
        assert len(log.segments) > 2
        for _ in range(2):
            await log.close_idle_segments()
    await log.truncate_to(1)
    for number in range(1, 10):
        log.append_as_leader(batch(b"new%d" % number), 1)
    await written(log)
    with pytest.raises(OSError, match="truncated"):
        for chunk in read.chunks:
            chunk.read()
    for chunk in read.chunks:
        chunk.release()


async def test_truncation_in_the_middle_of_a_batch_takes_the_batch(make: Make) -> None:
    log = await make().open()
    log.append_as_leader(batch(b"a", b"b"), 0)
    log.append_as_leader(batch(b"c", b"d"), 0)
    await written(log)
    await log.truncate_to(3)
    assert log.log_end_offset == 2
    assert await read_values(log, 0) == [(0, b"a"), (1, b"b")]


async def test_truncating_fully_starts_an_empty_log_anywhere(make: Make, tmp_path: Path) -> None:
    log = await make(segment_bytes=300).open()
    for _ in range(10):
        log.append_as_leader(batch(b"a"), 3)
    await log.truncate_fully_and_start_at(1000)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (1000, 1000, 1000)
    assert log.latest_epoch == -1
    assert log.append_as_leader(batch(b"b"), 4).first_offset == 1000
    await written(log)
    assert await read_values(log, 1000) == [(1000, b"b")]
    assert [path.name for path in sorted((tmp_path / "t-0").glob("*.log"))] == [f"{1000:020d}.log"]


async def test_retention_by_size_time_and_start_offset(make: Make, tmp_path: Path) -> None:
    setup = make(segment_bytes=300, retention_ms=10_000, file_delete_delay_ms=0)
    log = await setup.open()
    for number in range(20):
        log.append_as_leader(batch(b"v", timestamp=setup.clock.wall_ms + number), number)
    await written(log)
    assert await log.delete_old_segments() == 0
    setup.clock.wall_ms += 10_008
    assert await log.delete_old_segments() == 0  # nothing below the high watermark
    log.maybe_advance_high_watermark(20)
    assert await log.delete_old_segments() == 2
    assert log.log_start_offset == 8 == log.segments[0].base_offset
    assert log.epochs.entries[0] == (8, 8)
    assert setup.owner.log_start_checkpoints == 1
    with pytest.raises(KafkaError):
        log.read(7, 100, 20, True)

    log.configure(LogConfig({"segment.bytes": 300, "retention.ms": -1, "retention.bytes": 500}))
    assert await log.delete_old_segments() == 1
    assert log.log_start_offset == 12

    log.configure(LogConfig({"segment.bytes": 300, "cleanup.policy": "compact", "retention.bytes": 0}))
    assert await log.delete_old_segments() == 0
    await log.advance_log_start_offset(17)
    assert await log.delete_old_segments() == 1
    assert log.log_start_offset == 17 and log.segments[0].base_offset == 16
    assert [offset for offset, _ in await read_values(log, 17)] == [17, 18, 19]
    with pytest.raises(KafkaError):
        log.advance_log_start_offset(21)


async def test_retention_of_an_idle_log_deletes_the_active_segment_too(make: Make) -> None:
    setup = make(retention_ms=10_000)
    log = await setup.open()
    log.append_as_leader(batch(b"v", timestamp=setup.clock.wall_ms), 0)
    await written(log)
    log.maybe_advance_high_watermark(1)
    setup.clock.wall_ms += 20_000
    assert await log.delete_old_segments() == 1
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (1, 1, 1)
    assert log.append_as_leader(batch(b"w"), 0).first_offset == 1
    await written(log)
    assert await read_values(log, 1) == [(1, b"w")]


async def test_deleted_segments_stay_readable_for_who_is_being_sent_them(make: Make) -> None:
    setup = make(segment_bytes=300, retention_bytes=0, file_delete_delay_ms=0)
    log = await setup.open()
    for number in range(8):
        log.append_as_leader(batch(b"%d" % number), 0)
    await written(log)
    log.maybe_advance_high_watermark(8)
    result = log.read(0, 1000, 8, True)
    read = result if isinstance(result, LogRead) else await result
    assert await log.delete_old_segments() > 0
    data = b"".join(chunk.read() for chunk in read.chunks)
    assert decode_records(data)[0].value == b"0"
    for chunk in read.chunks:
        chunk.release()


async def test_with_flush_messages_a_record_is_written_when_it_is_synced(make: Make) -> None:
    log = await make(flush_messages=1, segment_bytes=300).open()
    for _ in range(10):
        log.append_as_leader(batch(b"v"), 0)
        await written(log)
        assert log.flushed_offset == log.log_end_offset == log.assigned_offset


async def test_a_failed_directory_fails_its_logs_once(make: Make, tmp_path: Path) -> None:
    setup = make()
    log = await setup.open()
    log.append_as_leader(batch(b"a"), 0)
    await written(log)
    failed: list[str] = []
    log.on_failure = lambda: failed.append("failed")
    (tmp_path / "unsyncable").symlink_to("/dev/full")
    unsyncable = await setup.disk.open("unsyncable")
    with pytest.raises(OSError):
        await unsyncable.fsync()
    log.append_as_leader(batch(b"b"), 0)
    with pytest.raises(KafkaError):
        await written(log)
    assert failed == ["failed"] and log.is_failed
    assert [error.errno for error in setup.owner.failures] == [errno.EIO]
    assert log.log_end_offset == 1
    for call in (lambda: log.append_as_leader(batch(b"c"), 0), lambda: log.read(0, 10, 1, True)):
        with pytest.raises(KafkaError) as caught:
            call()
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR

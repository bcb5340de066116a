"""Transactions in one log: what is open, what was aborted, and how both survive a restart."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from ottla_broker.adapters.disk import DirectoryDisk
from ottla_broker.ports.disk import Buffer
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.batch import batches, read_header
from ottla_broker.records.control_records import ControlType, EndTransactionMarker, read_marker
from ottla_broker.records.record import decode_records
from ottla_broker.storage.files.transaction_index import AbortedTransaction, decode_entries
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.producers import ProducerStates
from ottla_broker.storage.log.reader import LogRead
from tests.broker.storage.logs import LogSetup, aborted, batch, read_bytes, rolled, transactional, written

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT
SMALL = {"segment.bytes": 400, "index.interval.bytes": 0}


def end(log: Log, kind: ControlType, producer_id: int = 7, epoch: int = 0, coordinator_epoch: int = 0) -> int:
    """Appends a marker; its offset."""
    marker = EndTransactionMarker(kind, coordinator_epoch)
    return log.append_marker(marker, producer_id, epoch, 0).first_offset


def begin(log: Log, producer_id: int = 7, sequence: int = 0, values: int = 1) -> int:
    """Appends a batch of a transaction; its first offset."""
    records = transactional((producer_id, 0, sequence), *[b"v"] * values)
    return log.append_as_leader(records, 0, is_transactional=True).first_offset


def fails(code: ErrorCode, work: object) -> None:
    with pytest.raises(KafkaError) as caught:
        work()  # type: ignore[operator]
    assert caught.value.code is code


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[LogSetup]:
    found = LogSetup(str(tmp_path))
    yield found
    found.close()


def index_file(tmp_path: Path, base: int) -> list[AbortedTransaction]:
    name = f"{base:020d}.txnindex"
    path = tmp_path / "t-0" / name
    return decode_entries(name, path.read_bytes()) if path.exists() else []


async def test_an_open_transaction_holds_the_last_stable_offset_until_its_marker_is_replicated(setup: LogSetup) -> None:
    log = await setup.open()
    log.append_as_leader(batch(b"before"), 0)
    begin(log, values=3)
    log.append_as_leader(batch(b"after"), 0)
    await written(log)
    assert (log.first_unstable_offset, log.last_stable_offset) == (1, 0)
    log.maybe_advance_high_watermark(5)
    assert log.last_stable_offset == 1
    assert end(log, COMMIT) == 5
    await written(log)
    assert log.last_stable_offset == 1
    log.maybe_advance_high_watermark(5)
    assert log.last_stable_offset == 1
    log.maybe_advance_high_watermark(6)
    assert (log.first_unstable_offset, log.last_stable_offset) == (None, 6)
    assert await aborted(log, 0, 6) == []


async def test_an_abort_is_in_the_index_and_in_the_file_at_once(setup: LogSetup, tmp_path: Path) -> None:
    log = await setup.open()
    begin(log, 8)
    begin(log, 7)
    begin(log, 7, 1)
    end(log, ABORT, 7)
    end(log, ABORT, 8)
    end(log, ABORT, 8)  # again: there is nothing to end
    await written(log)
    await log.segments[0].transactions.settle()  # type: ignore[union-attr]
    entries = [AbortedTransaction(7, 1, 3, 0), AbortedTransaction(8, 0, 4, 5)]
    assert await aborted(log, 0, 6) == entries
    assert await aborted(log, 4, 6) == entries[1:]
    assert await aborted(log, 0, 1) == entries[1:]
    assert await aborted(log, 5, 6) == []
    assert index_file(tmp_path, 0) == entries
    assert (tmp_path / "t-0" / f"{0:020d}.txnindex").stat().st_size == 68


async def test_a_marker_is_one_control_record_of_the_producer(setup: LogSetup) -> None:
    log = await setup.open()
    begin(log)
    end(log, COMMIT, coordinator_epoch=5)
    await written(log)
    data = await read_bytes(log, 1)
    ((_, header),) = batches(data)
    assert (header.attributes, header.producer_id, header.producer_epoch, header.base_sequence) == (0x30, 7, 0, -1)
    assert read_marker(data) == EndTransactionMarker(COMMIT, 5)
    (record,) = decode_records(data)
    assert record.key == b"\x00\x00\x00\x01" and record.value == b"\x00\x00\x00\x00\x00\x05"


async def test_markers_are_fenced_by_epochs(setup: LogSetup) -> None:
    log = await setup.open()
    begin(log)
    end(log, ABORT, epoch=2, coordinator_epoch=5)
    fails(ErrorCode.INVALID_PRODUCER_EPOCH, lambda: end(log, ABORT, epoch=1, coordinator_epoch=5))
    fails(ErrorCode.TRANSACTION_COORDINATOR_FENCED, lambda: end(log, ABORT, epoch=2, coordinator_epoch=4))
    fails(ErrorCode.INVALID_PRODUCER_EPOCH, lambda: begin(log, sequence=1))
    assert log.assigned_offset == 2
    end(log, ABORT, epoch=2, coordinator_epoch=5)
    log.append_as_leader(transactional((7, 2, 0), b"v"), 0, is_transactional=True)
    assert log.assigned_offset == 4


async def test_what_is_not_part_of_an_open_transaction_is_refused(setup: LogSetup) -> None:
    log = await setup.open()
    begin(log)
    fails(ErrorCode.INVALID_TXN_STATE, lambda: log.append_as_leader(batch(b"v", producer=(7, 0, 1)), 0))
    fails(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        lambda: log.append_as_leader(transactional((7, 0, 1), b"v"), 0),
    )
    fails(
        ErrorCode.INVALID_RECORD, lambda: log.append_as_leader(batch(b"v", attributes=0x30), 0, is_transactional=True)
    )
    fails(
        ErrorCode.INVALID_RECORD,
        lambda: log.append_as_leader(transactional((7, 0, -1), b"v"), 0, is_transactional=True),
    )
    assert log.append_as_leader(transactional((7, 0, 0), b"v"), 0, is_transactional=True).is_duplicate
    end(log, COMMIT)
    assert log.append_as_leader(batch(b"v", producer=(7, 0, 1)), 0).first_offset == 2


async def test_a_transaction_that_nobody_ends_is_late(setup: LogSetup) -> None:
    log = await setup.open()
    limit_ms = 900_000
    begin(log)
    setup.clock.wall_ms += limit_ms + 300_000
    assert not log.has_late_transaction(limit_ms)
    setup.clock.wall_ms += 1
    assert log.has_late_transaction(limit_ms)
    end(log, ABORT)
    assert not log.has_late_transaction(limit_ms)


async def test_a_follower_has_the_same_transactions(setup: LogSetup, tmp_path: Path) -> None:
    log = await setup.open()
    begin(log, 7)
    begin(log, 8)
    end(log, ABORT, 7)
    begin(log, 9)
    end(log, COMMIT, 8)
    await written(log)
    other = LogSetup(str(tmp_path / "follower"))
    follower = await other.open()
    follower.append_as_follower(memoryview(bytearray(await read_bytes(log, 0))))
    await written(follower)
    assert follower.producers.dump() == log.producers.dump()
    follower.maybe_advance_high_watermark(5)
    assert (follower.last_stable_offset, await aborted(follower, 0, 5)) == (3, [AbortedTransaction(7, 0, 2, 1)])
    other.close()


@pytest.mark.parametrize("is_clean", [True, False])
async def test_open_and_aborted_transactions_survive_a_restart(tmp_path: Path, is_clean: bool) -> None:
    setup = LogSetup(str(tmp_path), SMALL)
    log = await setup.open()
    begin(log, 1)
    for number in range(20):
        begin(log, 7, number)
        end(log, ABORT if number % 2 else COMMIT)
    await written(log)
    log.maybe_advance_high_watermark(log.log_end_offset)
    assert len(log.segments) > 3 and log.last_stable_offset == 0
    expected = await aborted(log, 0, 100)
    assert [one.first_offset for one in expected] == list(range(3, 41, 4))
    dump = log.producers.dump().producers
    if is_clean:
        await log.close()
    setup.crash()
    log = await setup.open(is_clean=is_clean, recovery_point=log.recovery_point if is_clean else 0, high_watermark=41)
    assert await aborted(log, 0, 100) == expected
    assert await aborted(log, 20, 30) == [one for one in expected if one.last_offset >= 20 and one.first_offset < 30]
    assert log.producers.dump().producers == dump
    assert log.last_stable_offset == 0
    end(log, ABORT, 1)
    await written(log)
    log.maybe_advance_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset
    assert await aborted(log, 0, 100) == [*expected, AbortedTransaction(1, 0, 41, 42)]
    setup.close()


async def test_a_transaction_that_ended_above_the_high_watermark_is_still_unstable_after_a_restart(
    setup: LogSetup,
) -> None:
    log = await setup.open()
    begin(log, values=5)
    end(log, ABORT)
    await written(log)
    log.maybe_advance_high_watermark(3)
    await log.close()
    setup.crash()
    log = await setup.open(high_watermark=3)
    assert (log.high_watermark, log.last_stable_offset) == (3, 0)
    log.maybe_advance_high_watermark(6)
    assert log.last_stable_offset == 6


async def test_truncation_takes_aborted_transactions_back(tmp_path: Path) -> None:
    setup = LogSetup(str(tmp_path), SMALL)
    log = await setup.open()
    for number in range(20):
        begin(log, 7, number)
        end(log, ABORT)
    await written(log)
    await log.flush()
    log.maybe_advance_high_watermark(11)
    await log.truncate_to(11)
    assert [one.first_offset for one in await aborted(log, 0, 100)] == [0, 2, 4, 6, 8]
    assert log.first_unstable_offset == 10
    names = sorted(path.name for path in (tmp_path / "t-0").glob("*.txnindex"))
    kept = [index_file(tmp_path, segment.base_offset) for segment in log.segments]
    assert len(names) <= len(log.segments)
    assert [one.last_offset for entries in kept for one in entries] == [1, 3, 5, 7, 9]
    end(log, COMMIT)
    begin(log, 7, 6)
    end(log, ABORT)
    await written(log)
    assert [one.first_offset for one in await aborted(log, 0, 100)] == [0, 2, 4, 6, 8, 12]
    await log.truncate_fully_and_start_at(50)
    assert (await aborted(log, 50, 100), log.first_unstable_offset) == ([], None)
    assert not list((tmp_path / "t-0").glob("*.txnindex")) and not list((tmp_path / "t-0").glob("*.snapshot"))
    setup.close()


async def test_the_files_of_a_segment_go_with_it(tmp_path: Path) -> None:
    setup = LogSetup(str(tmp_path), {**SMALL, "file.delete.delay.ms": 0})
    log = await setup.open()
    for number in range(20):
        begin(log, 7, number)
        end(log, ABORT)
    await written(log)
    log.maybe_advance_high_watermark(log.log_end_offset)
    await log.advance_log_start_offset(31)
    await log.delete_old_segments()
    start = log.segments[0].base_offset
    assert 0 < start <= 31
    left = [path.name for path in (tmp_path / "t-0").iterdir() if path.suffix in (".txnindex", ".snapshot")]
    assert left and all(int(name[:20]) >= start for name in left)
    assert [one.first_offset for one in await aborted(log, 31, 100)] == [30, 32, 34, 36, 38]
    setup.close()


@pytest.mark.parametrize("is_in_memory", [True, False])
async def test_who_was_aborted_in_records_that_go_behind_their_read_is_not_told_as_nobody(
    tmp_path: Path, is_in_memory: bool
) -> None:
    """The records are read, and pinned; retention takes their segment before its transaction index is looked at."""
    setup = LogSetup(str(tmp_path), {**SMALL, "retention.ms": 1_000})
    log = await setup.open()
    for number in range(8):
        begin(log, 7, number)
        end(log, ABORT)
    await written(log)
    await rolled(log)
    log.maybe_advance_high_watermark(log.log_end_offset)
    await read_bytes(log, 0)
    if is_in_memory:
        assert await aborted(log, 0, 2)
    setup.clock.wall_ms += 1_000_000
    retention = asyncio.ensure_future(log.delete_old_segments())
    read = log.read(0, 1 << 20, log.log_end_offset, True)
    assert isinstance(read, LogRead) and read.size
    if is_in_memory:
        await retention
    found = log.aborted_in(read, 0, log.last_stable_offset)
    assert asyncio.isfuture(found)
    with pytest.raises(KafkaError) as refused:
        await found
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    await retention
    setup.close()


async def test_a_transaction_index_that_ends_in_half_an_entry_is_built_anew(setup: LogSetup, tmp_path: Path) -> None:
    log = await setup.open()
    begin(log)
    end(log, ABORT)
    await log.close()
    setup.crash()
    path = tmp_path / "t-0" / f"{0:020d}.txnindex"
    path.write_bytes(path.read_bytes()[:20])
    log = await setup.open(recovery_point=2)
    assert setup.recovered is not None
    assert await aborted(log, 0, 2) == index_file(tmp_path, 0) == [AbortedTransaction(7, 0, 1, 2)]


async def test_an_index_without_its_segment_is_deleted(setup: LogSetup, tmp_path: Path) -> None:
    log = await setup.open()
    log.append_as_leader(batch(b"v"), 0)
    await log.close()
    setup.crash()
    orphan = tmp_path / "t-0" / f"{90:020d}.txnindex"
    orphan.write_bytes(AbortedTransaction(7, 0, 1, 2).encode())
    await setup.open(recovery_point=1)
    assert not orphan.exists()


async def test_a_snapshot_that_cannot_be_read_gives_way_to_the_one_before(tmp_path: Path) -> None:
    setup = LogSetup(str(tmp_path), SMALL)
    log = await setup.open()
    for number in range(10):
        begin(log, 7, number)
    await log.close()
    dump = log.producers.dump().producers
    setup.crash()
    snapshots = sorted((tmp_path / "t-0").glob("*.snapshot"))
    assert len(snapshots) > 1
    snapshots[-1].write_bytes(b"\x00\x01broken")
    log = await setup.open(recovery_point=10, high_watermark=10)
    assert log.producers.dump().producers == dump
    assert (log.first_unstable_offset, log.last_stable_offset) == (0, 0)
    assert not snapshots[-1].exists()
    setup.close()


async def test_orderly_ends_leave_one_snapshot_besides_those_of_the_segments(setup: LogSetup, tmp_path: Path) -> None:
    for number in range(4):
        log = await setup.open(recovery_point=number)
        begin(log, 7, number)
        await log.close()
        setup.crash()
    await setup.open(recovery_point=4)
    assert [path.name for path in (tmp_path / "t-0").glob("*.snapshot")] == [f"{4:020d}.snapshot"]


async def test_a_snapshot_tells_of_open_transactions(tmp_path: Path) -> None:
    setup = LogSetup(str(tmp_path), SMALL)
    log = await setup.open()
    begin(log, 8)
    end(log, COMMIT, 8, coordinator_epoch=3)
    while len(log.segments) == 1:
        log.append_as_leader(batch(b"v" * 50), 0)
        begin(log, 9, log.assigned_offset)
        break
    while len(log.segments) == 1:
        log.append_as_leader(batch(b"v" * 50), 0)
    await rolled(log)
    base = log.segments[1].base_offset
    data = (tmp_path / "t-0" / f"{base:020d}.snapshot").read_bytes()
    states = ProducerStates.decode("s", data, base)
    found = {entry.producer_id: (entry.coordinator_epoch, entry.current_txn_first_offset) for entry in states.entries}
    assert found == {8: (3, -1), 9: (-1, 3)}
    assert states.transactions.first_undecided_offset == 3
    setup.close()


def test_a_batch_that_compaction_has_emptied_begins_no_transaction() -> None:
    header = read_header(transactional((7, 0, 4), b"a", b"b"))._replace(base_offset=10, record_count=0)
    states = ProducerStates()
    states.update_from_header(header)
    (entry,) = states.entries
    assert (entry.last_sequence, entry.current_txn_first_offset) == (5, -1)
    assert states.transactions.is_empty


class CrampedDisk(DirectoryDisk):
    """Real, but for transaction indexes that find no room while it `is_full`."""

    is_full = False

    def append_to(self, name: str, buffers: Sequence[Buffer]) -> asyncio.Future[int]:
        if not self.is_full or not name.endswith(".txnindex"):
            return super().append_to(name, buffers)
        refused: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        refused.set_exception(OSError(errno.ENOSPC, "No space left on device", name))
        return refused


async def test_entries_that_find_no_room_are_written_in_order_once_there_is_some(tmp_path: Path) -> None:
    setup = LogSetup(str(tmp_path))
    disk = setup.disk = CrampedDisk(str(tmp_path))
    log = await setup.open()
    disk.is_full = True
    for number in range(2):
        begin(log, 7, number)
        end(log, ABORT)
    await written(log)
    expected = [AbortedTransaction(7, 0, 1, 2), AbortedTransaction(7, 2, 3, 4)]
    assert await aborted(log, 0, 4) == expected
    with pytest.raises(OSError, match="No space left"):
        await log.flush()
    assert index_file(tmp_path, 0) == [] and log.recovery_point == 0
    disk.is_full = False
    begin(log, 7, 2)
    end(log, ABORT)
    await written(log)
    await log.flush()
    assert index_file(tmp_path, 0) == await aborted(log, 0, 6) == [*expected, AbortedTransaction(7, 4, 5, 6)]
    assert log.recovery_point == 6
    setup.close()

"""Transactions of one log: the last stable offset, markers, restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.batch import batches, read_header
from ottla_broker.records.control_records import EndTransactionMarker, read_marker
from ottla_broker.records.record import decode_records
from ottla_broker.storage.files.transaction_index import AbortedTransaction
from ottla_broker.storage.log.producers import ProducerStates
from ottla_broker.storage.log.verification import FROM_CLIENT
from tests.broker.storage.logs import LogSetup, aborted, batch, read_bytes, transactional, written
from tests.broker.storage.transactions import ABORT, COMMIT, SMALL_SEGMENTS, begin, end


def fails(code: ErrorCode, work: object) -> None:
    with pytest.raises(KafkaError) as caught:
        work()  # type: ignore[operator]
    assert caught.value.code is code


async def test_an_open_transaction_holds_the_last_stable_offset_until_its_marker_is_replicated(setup: LogSetup) -> None:
    log = await setup.open()
    log.append_as_leader(batch(b"before"), 0)
    begin(log, values=3)
    log.append_as_leader(batch(b"after"), 0)
    await written(log)
    assert (log.state.first_unstable_offset, log.state.last_stable_offset) == (1, 0)
    log.state.maybe_advance_high_watermark(5)
    assert log.state.last_stable_offset == 1
    assert end(log, COMMIT) == 5
    await written(log)
    assert log.state.last_stable_offset == 1
    log.state.maybe_advance_high_watermark(5)
    assert log.state.last_stable_offset == 1
    log.state.maybe_advance_high_watermark(6)
    assert (log.state.first_unstable_offset, log.state.last_stable_offset) == (None, 6)
    assert await aborted(log, 0, 6) == []


async def test_a_marker_is_a_control_batch_of_the_producer_with_one_record(setup: LogSetup) -> None:
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


async def test_a_marker_of_an_older_epoch_is_fenced(setup: LogSetup) -> None:
    log = await setup.open()
    begin(log)
    end(log, ABORT, epoch=2, coordinator_epoch=5)
    fails(ErrorCode.INVALID_PRODUCER_EPOCH, lambda: end(log, ABORT, epoch=1, coordinator_epoch=5))
    fails(ErrorCode.TRANSACTION_COORDINATOR_FENCED, lambda: end(log, ABORT, epoch=2, coordinator_epoch=4))
    fails(ErrorCode.INVALID_PRODUCER_EPOCH, lambda: begin(log, sequence=1))
    assert log.state.assigned_offset == 2
    end(log, ABORT, epoch=2, coordinator_epoch=5)
    log.append_as_leader(transactional((7, 2, 0), b"v"), 0, transaction=FROM_CLIENT)
    assert log.state.assigned_offset == 4


async def test_a_late_marker_of_version_2_does_not_end_the_next_transaction(setup: LogSetup) -> None:
    """Its epoch is above that of its own transaction's records, and is the epoch of the next transaction (KIP-890)."""
    log = await setup.open()
    marker = EndTransactionMarker(COMMIT, 5)
    begin(log)
    log.appender.append_marker(marker, 7, 1, 0, 2)
    log.appender.append_marker(marker, 7, 1, 0, 2)  # the response to the first one was lost
    log.append_as_leader(transactional((7, 1, 0), b"v"), 0, transaction=FROM_CLIENT)
    fails(ErrorCode.INVALID_PRODUCER_EPOCH, lambda: log.appender.append_marker(marker, 7, 1, 0, 2))
    assert log.state.assigned_offset == 4
    log.appender.append_marker(marker, 7, 2, 0, 2)
    assert log.state.first_unstable_offset == 0  # until the markers are replicated
    await written(log)
    log.state.maybe_advance_high_watermark(5)
    assert log.state.last_stable_offset == 5


async def test_a_batch_outside_of_the_producers_open_transaction_is_refused(setup: LogSetup) -> None:
    log = await setup.open()
    begin(log)
    fails(ErrorCode.INVALID_TXN_STATE, lambda: log.append_as_leader(batch(b"v", producer=(7, 0, 1)), 0))
    fails(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        lambda: log.append_as_leader(transactional((7, 0, 1), b"v"), 0),
    )
    fails(
        ErrorCode.INVALID_RECORD, lambda: log.append_as_leader(batch(b"v", attributes=0x30), 0, transaction=FROM_CLIENT)
    )
    fails(
        ErrorCode.INVALID_RECORD,
        lambda: log.append_as_leader(transactional((7, 0, -1), b"v"), 0, transaction=FROM_CLIENT),
    )
    assert log.append_as_leader(transactional((7, 0, 0), b"v"), 0, transaction=FROM_CLIENT).is_duplicate
    end(log, COMMIT)
    assert log.append_as_leader(batch(b"v", producer=(7, 0, 1)), 0).first_offset == 2


async def test_a_transaction_is_late_when_its_coordinator_does_not_end_it(setup: LogSetup) -> None:
    log = await setup.open()
    limit_ms = 900_000
    begin(log)
    setup.clock.wall_ms += limit_ms + 300_000
    assert not log.has_late_transaction(limit_ms)
    setup.clock.wall_ms += 1
    assert log.has_late_transaction(limit_ms)
    end(log, ABORT)
    assert not log.has_late_transaction(limit_ms)


async def test_a_follower_has_the_transactions_of_the_leader(setup: LogSetup, tmp_path: Path) -> None:
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
    assert follower.state.producers.dump() == log.state.producers.dump()
    follower.state.maybe_advance_high_watermark(5)
    assert (follower.state.last_stable_offset, await aborted(follower, 0, 5)) == (3, [AbortedTransaction(7, 0, 2, 1)])
    other.close()


@pytest.mark.parametrize("is_clean", [True, False])
async def test_open_and_aborted_transactions_survive_a_restart(tmp_path: Path, is_clean: bool) -> None:
    setup = LogSetup(str(tmp_path), SMALL_SEGMENTS)
    log = await setup.open()
    begin(log, 1)
    for number in range(20):
        begin(log, 7, number)
        end(log, ABORT if number % 2 else COMMIT)
    await written(log)
    log.state.maybe_advance_high_watermark(log.state.log_end_offset)
    assert len(log.state.segments) > 3 and log.state.last_stable_offset == 0
    expected = await aborted(log, 0, 100)
    assert [one.first_offset for one in expected] == list(range(3, 41, 4))
    dump = log.state.producers.dump().producers
    if is_clean:
        await log.closer.close()
    setup.crash()
    log = await setup.open(
        is_clean=is_clean, recovery_point=log.state.recovery_point if is_clean else 0, high_watermark=41
    )
    assert await aborted(log, 0, 100) == expected
    assert await aborted(log, 20, 30) == [one for one in expected if one.last_offset >= 20 and one.first_offset < 30]
    assert log.state.producers.dump().producers == dump
    assert log.state.last_stable_offset == 0
    end(log, ABORT, 1)
    await written(log)
    log.state.maybe_advance_high_watermark(log.state.log_end_offset)
    assert log.state.last_stable_offset == log.state.log_end_offset
    assert await aborted(log, 0, 100) == [*expected, AbortedTransaction(1, 0, 41, 42)]
    setup.close()


def test_a_batch_that_compaction_emptied_begins_no_transaction() -> None:
    header = read_header(transactional((7, 0, 4), b"a", b"b"))._replace(base_offset=10, record_count=0)
    states = ProducerStates()
    states.update_from_header(header)
    (entry,) = states.entries
    assert (entry.last_sequence, entry.current_txn_first_offset) == (5, -1)
    assert states.transactions.is_empty

"""Idempotent and transactional producers in a compacted log (KIP-98, KIP-534)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.batch import TRANSACTIONAL_MASK
from ottla_broker.records.control_records import ControlType, EndTransactionMarker, build_marker
from ottla_broker.storage.cleaner.producer_queries import aborted_transactions
from ottla_broker.storage.files.transaction_index import decode_entries
from ottla_broker.storage.log.log import Log
from tests.broker.storage.cleaner.cleaning import (
    DAY_MS,
    START_MS,
    Pair,
    Storage,
    append,
    close_segment,
    consume,
    headers_of,
    keyed,
    pairs,
)

PRODUCER = 7


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[Storage]:
    made = Storage(tmp_path)
    yield made
    made.close()


async def test_the_last_sequence_of_a_live_producer_survives_compaction_and_restart(storage: Storage) -> None:
    log = await storage.start()
    for sequence in range(4):
        append(log, keyed((b"k", b"%d" % sequence), producer=(PRODUCER, 0, sequence)))
    append(log, keyed((b"k", b"last")))
    append(log, keyed((b"other", b"v")))
    await storage.clean(log)
    assert pairs(await consume(log)) == [(4, b"k", b"last"), (5, b"other", b"v")]
    kept = [header for header in await headers_of(log) if header.producer_id == PRODUCER]
    assert [(header.base_offset, header.last_sequence, header.record_count) for header in kept] == [(3, 3, 0)]
    for snapshot in (storage.path / "t-0").glob("*.snapshot"):
        snapshot.unlink()
    log = await storage.again()
    assert append(log, keyed((b"k", b"3"), producer=(PRODUCER, 0, 3))).is_duplicate
    with pytest.raises(KafkaError) as refused:
        append(log, keyed((b"k", b"9"), producer=(PRODUCER, 0, 9)))
    assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_no_header_is_kept_for_an_expired_producer(storage: Storage) -> None:
    log = await storage.start()
    append(log, keyed((b"k", b"1"), producer=(PRODUCER, 0, 0)))
    append(log, keyed((b"k", b"2")))
    log.state.producers.remove_expired(START_MS + 2 * DAY_MS, DAY_MS)
    await storage.clean(log)
    assert [header.base_offset for header in await headers_of(log)] == [1]


class Transactions:
    """Appends transactional batches and markers, as a follower does."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.sequences: dict[int, int] = {}

    def append(self, producer: int, *records: Pair) -> None:
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + len(records)
        self._append(keyed(*records, producer=(producer, 0, sequence), attributes=TRANSACTIONAL_MASK))

    def end(self, producer: int, kind: ControlType) -> None:
        marker = build_marker(EndTransactionMarker(kind, 0), producer_id=producer, producer_epoch=0, timestamp=START_MS)
        self._append(memoryview(marker))

    def _append(self, batch: memoryview) -> None:
        data = bytearray(batch)
        data[:8] = self.log.state.assigned_offset.to_bytes(8, "big")
        data[12:16] = (0).to_bytes(4, "big")
        self.log.append_as_follower(memoryview(data))


async def _kinds(log: Log) -> list[tuple[int, bool, int]]:
    return [(header.base_offset, header.is_control, header.record_count) for header in await headers_of(log)]


async def test_records_of_an_aborted_transaction_are_removed_and_do_not_replace_older_values(storage: Storage) -> None:
    log = await storage.start()
    append(log, keyed((b"k", b"committed")))
    work = Transactions(log)
    work.append(PRODUCER, (b"k", b"aborted"), (b"only aborted", b"v"))
    work.end(PRODUCER, ControlType.ABORT)
    work.append(PRODUCER, (b"j", b"v"))
    work.end(PRODUCER, ControlType.COMMIT)
    await close_segment(log)
    await storage.clean(log)
    assert pairs(await consume(log)) == [(0, b"k", b"committed"), (4, b"j", b"v")]


async def test_records_from_the_first_open_transaction_on_are_not_cleaned(storage: Storage) -> None:
    log = await storage.start()
    work = Transactions(log)
    for number in range(3):
        append(log, keyed((b"k", b"%d" % number)))
    await close_segment(log)
    work.append(PRODUCER, (b"k", b"open"))
    await close_segment(log)
    append(log, keyed((b"k", b"after")))
    await storage.clean(log)
    assert [one.offset for one in await consume(log)] == [2, 3, 4]
    work.end(PRODUCER, ControlType.COMMIT)
    await close_segment(log)
    await storage.clean(log)
    assert [one.offset for one in await consume(log)] == [4]


async def test_a_marker_is_removed_after_its_transactions_records_and_the_delete_horizon(storage: Storage) -> None:
    log = await storage.start()
    work = Transactions(log)
    work.append(PRODUCER, (b"k", b"1"))
    work.end(PRODUCER, ControlType.COMMIT)  # at 1
    work.append(8, (b"k", b"2"))
    work.end(8, ControlType.COMMIT)  # at 3, its record stays
    log.state.producers.remove_expired(START_MS + 2 * DAY_MS, DAY_MS)
    await close_segment(log)
    await storage.clean(log)
    # Offset 0 went in this cleaning, so nothing of the transaction is left and the marker gets its horizon.
    assert await _kinds(log) == [(1, True, 1), (2, False, 1), (3, True, 1)]
    append(log, keyed((b"x", b"1")))
    await storage.clean(log)
    marked = [header.base_offset for header in await headers_of(log) if header.attributes & 0x40]
    assert marked == [1]
    storage.pass_time(DAY_MS)
    append(log, keyed((b"x", b"2")))
    await storage.clean(log)
    assert await _kinds(log) == [(2, False, 1), (3, True, 1), (5, False, 1)]


async def test_an_abort_marker_stays_in_the_transaction_index_while_a_batch_of_its_transaction_stays(
    storage: Storage,
) -> None:
    """The empty batch with the producer's last sequence is kept, so the marker and its index entry are too."""
    log = await storage.start()
    work = Transactions(log)
    work.append(PRODUCER, (b"k", b"1"))
    work.end(PRODUCER, ControlType.ABORT)
    append(log, keyed((b"k", b"2")))
    await close_segment(log)
    await storage.clean(log)
    assert await _kinds(log) == [(0, False, 0), (1, True, 1), (2, False, 1)]
    kept = decode_entries("", (storage.path / "t-0/00000000000000000000.txnindex").read_bytes())
    assert [(one.producer_id, one.first_offset, one.last_offset) for one in kept] == [(PRODUCER, 0, 1)]
    assert [one.producer_id for one in await aborted_transactions(log, 1)] == [PRODUCER]
    log.state.producers.remove_expired(START_MS + 2 * DAY_MS, DAY_MS)
    for number in range(2):  # the batch goes in the first cleaning, the second one finds none of its transaction
        append(log, keyed((b"x", b"%d" % number)))
        await storage.clean(log)
    assert await _kinds(log) == [(1, True, 1), (2, False, 1), (4, False, 1)]
    assert not (storage.path / "t-0/00000000000000000000.txnindex").exists()

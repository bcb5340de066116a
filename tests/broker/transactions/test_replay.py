"""Loading: which metadata a log in `__transaction_state` leaves."""

from __future__ import annotations

import logging

import pytest

from ottla_broker.internal_topics.topic_log import LoadedBatch, StateRecord
from ottla_broker.records.record import build_batch, build_records, decode_records
from ottla_broker.transactions.decisions import TransactionMetadata
from ottla_broker.transactions.records import transaction_key, transaction_record, transaction_tombstone
from ottla_broker.transactions.replay import TransactionReplay
from ottla_broker.transactions.states import TransactionState

FIRST = TransactionMetadata(7, 0, 60_000, TransactionState.EMPTY, 1)
SECOND = TransactionMetadata(7, 1, 60_000, TransactionState.EMPTY, 2)


def replayed(*records: StateRecord) -> dict[str, TransactionMetadata]:
    replay = TransactionReplay()
    for offset, record in enumerate(records):
        batch = build_batch(build_records([record], 1, offset))
        replay.add(LoadedBatch(offset, decode_records(memoryview(batch))))
    return replay.found


def test_the_last_record_of_an_id_counts() -> None:
    found = replayed(transaction_record("a", FIRST), transaction_record("b", FIRST), transaction_record("a", SECOND))
    assert found == {"a": SECOND, "b": FIRST}


def test_a_tombstone_removes_the_id_and_a_later_record_brings_it_back() -> None:
    assert replayed(transaction_record("a", FIRST), transaction_tombstone("a")) == {}
    assert replayed(transaction_tombstone("a"), transaction_record("a", SECOND)) == {"a": SECOND}


def test_a_record_that_cannot_be_read_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "ottla.transactions"):
        found = replayed(
            StateRecord(transaction_key("a"), b"\x00\x09"),
            StateRecord(b"\x00\x07", b""),
            StateRecord(b"\x00", b""),
            transaction_record("b", FIRST),
        )
    assert found == {"b": FIRST}
    assert [record.getMessage().split(" of __")[0] for record in caplog.records] == [
        "skipping the record at offset 0",
        "skipping a record of an unknown kind at offset 1",
        "skipping the record at offset 2",
    ]

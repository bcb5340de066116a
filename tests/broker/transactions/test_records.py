"""The records of `__transaction_state`: golden bytes, every readable version, and Apache Kafka's own reader."""

from __future__ import annotations

import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.local.jars import find_java, kafka_class_path
from ottla_broker.protocol.codec import DecodeError, EncodeError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.records.record import build_batch, build_records
from ottla_broker.transactions.decisions import NO_TIMEOUT_MS, ProducerIdAndEpoch, TransactionMetadata
from ottla_broker.transactions.records import (
    UnreadableValue,
    fits_a_record,
    read_key,
    read_value,
    transaction_key,
    transaction_record,
    transaction_tombstone,
)
from ottla_broker.transactions.states import STORED_STATES, TransactionState

STARTED_MS = 1_700_000_000_000
PARTITIONS = frozenset({TopicPartition("orders", 3), TopicPartition("orders", 0), TopicPartition("flights", 1)})
ONGOING = TransactionMetadata(
    7, 2, 60_000, TransactionState.ONGOING, STARTED_MS + 5, start_timestamp_ms=STARTED_MS, partitions=PARTITIONS
)
EMPTY = TransactionMetadata(8, 0, 30_000, TransactionState.EMPTY, STARTED_MS)


def text(value: str) -> bytes:
    return struct.pack(">h", len(value.encode())) + value.encode()


def test_an_open_transaction_is_written_as_key_0_and_value_0() -> None:
    record = transaction_record("payments", ONGOING)
    assert record.key == b"\x00\x00" + text("payments")
    expected = b"\x00\x00" + struct.pack(">qhib", 7, 2, 60_000, 1) + struct.pack(">i", 2)
    expected += text("flights") + struct.pack(">ii", 1, 1) + text("orders") + struct.pack(">iii", 2, 0, 3)
    assert record.value == expected + struct.pack(">qq", STARTED_MS + 5, STARTED_MS)


def test_an_empty_one_has_null_partitions_and_no_start() -> None:
    expected = b"\x00\x00" + struct.pack(">qhib", 8, 0, 30_000, 0) + struct.pack(">i", -1)
    assert transaction_record("payments", EMPTY).value == expected + struct.pack(">qq", STARTED_MS, -1)


def test_an_empty_one_does_not_store_when_the_last_transaction_began() -> None:
    began = replace(EMPTY, start_timestamp_ms=STARTED_MS - 5)
    assert transaction_record("payments", began) == transaction_record("payments", EMPTY)


def test_a_tombstone_has_a_key_alone() -> None:
    assert transaction_tombstone("payments") == (transaction_key("payments"), None)


def test_a_value_of_version_1_has_the_tagged_fields_of_apache_kafka_4() -> None:
    """PreviousProducerId, NextProducerId, ClientTransactionVersion, NextProducerEpoch; a later field is skipped."""
    value = b"\x00\x01" + struct.pack(">qhib", 7, 2, 60_000, 1) + b"\x02"
    value += b"\x07orders" + b"\x02" + struct.pack(">i", 3) + b"\x00" + struct.pack(">qq", STARTED_MS, STARTED_MS)
    tags = b"\x00\x08" + struct.pack(">q", 6) + b"\x01\x08" + struct.pack(">q", 9) + b"\x02\x02\x00\x02"
    tags += b"\x03\x02\x00\x05"
    found = read_value(value + b"\x04" + tags)
    assert (found.producer_id, found.producer_epoch, found.partitions) == (7, 2, {TopicPartition("orders", 3)})
    assert (found.last_producer_id, found.next_producer_id, found.transaction_version) == (6, 9, 2)
    assert found.next_producer_epoch == 5
    assert transaction_record("payments", found).value == value + b"\x04" + tags
    assert read_value(value + b"\x05" + tags + b"\x09\x01\x00") == found
    untagged = replace(found, last_producer_id=-1, next_producer_id=-1, next_producer_epoch=-1, transaction_version=0)
    assert read_value(value + b"\x00") == untagged
    assert transaction_record("payments", untagged, 1).value == value + b"\x00"


def test_what_no_kafka_writes_is_refused() -> None:
    assert read_key(b"\x00\x01" + text("payments")) is None
    with pytest.raises(UnreadableValue, match="version 2"):
        read_value(b"\x00\x02")
    with pytest.raises(UnreadableValue, match="TransactionStatus 6"):
        read_value(b"\x00\x00" + struct.pack(">qhib", 8, 0, 30_000, 6) + struct.pack(">iqq", -1, 0, -1))
    with pytest.raises(DecodeError):
        read_value(b"\x00\x00\x00")


def test_a_transactional_id_that_fits_no_record_is_refused() -> None:
    assert fits_a_record("x" * 32_767) and not fits_a_record("x" * 32_768)
    assert not fits_a_record("\ud800")
    with pytest.raises(EncodeError):
        transaction_key("x" * 32_768)


METADATA = st.builds(
    TransactionMetadata,
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**15 - 1),
    st.integers(1, 2**31 - 1),
    st.sampled_from(sorted(STORED_STATES - {TransactionState.EMPTY})),
    st.integers(0, 2**62),
    st.integers(-1, 2**62),
    st.frozensets(st.builds(TopicPartition, st.sampled_from(["a", "b", "ü"]), st.integers(0, 2**31 - 1)), max_size=8),
)


@given(st.text(max_size=20), METADATA)
def test_any_metadata_survive_the_round_trip(transactional_id: str, metadata: TransactionMetadata) -> None:
    record = transaction_record(transactional_id, metadata)
    assert record.value is not None
    assert read_key(record.key) == transactional_id
    assert read_value(record.value) == metadata


@given(
    METADATA,
    st.integers(-1, 2**40),
    st.builds(ProducerIdAndEpoch, st.integers(-1, 2**40), st.integers(-1, 2**15 - 1)),
    st.integers(1, 2),
    st.integers(0, 2),
)
def test_version_1_keeps_the_other_producer_ids_and_the_transaction_version(
    metadata: TransactionMetadata, last: int, following: ProducerIdAndEpoch, finalized: int, version: int
) -> None:
    metadata = replace(
        metadata,
        last_producer_id=last,
        next_producer_id=following.producer_id,
        next_producer_epoch=following.producer_epoch,
        transaction_version=version,
    )
    record = transaction_record("id", metadata, finalized)
    assert record.value is not None
    assert read_value(record.value) == metadata


def test_a_transaction_of_version_2_that_is_open_during_a_downgrade_is_written_in_full() -> None:
    metadata = replace(ONGOING, last_producer_id=7, next_producer_id=9, transaction_version=2)
    record = transaction_record("payments", metadata, 0)
    assert record.value is not None
    assert read_value(record.value) == metadata


@pytest.mark.java
def test_apache_kafka_reads_our_segment(tmp_path: Path) -> None:
    """DumpLogSegments with its decoder for `__transaction_state`, over a segment file with our batches."""
    records = [
        transaction_record("payments", ONGOING),
        transaction_record("payments", EMPTY),
        transaction_tombstone("payments"),
        transaction_record("payments", replace(ONGOING, last_producer_id=6, transaction_version=2)),
        transaction_record(
            "payments",
            replace(
                ONGOING, timeout_ms=NO_TIMEOUT_MS, next_producer_id=9, next_producer_epoch=5, transaction_version=2
            ),
        ),
    ]
    segment = tmp_path / "__transaction_state-0" / "00000000000000000000.log"
    segment.parent.mkdir()
    with segment.open("wb") as file:
        for number, record in enumerate(records):
            file.write(build_batch(build_records([record], STARTED_MS + number, number), leader_epoch=0))
    command = [find_java(), "-cp", kafka_class_path(), "kafka.tools.DumpLogSegments"]
    command += ["--deep-iteration", "--transaction-log-decoder", "--files", str(segment)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if line.startswith("|")]
    assert len(lines) == len(records)
    assert result.stdout.count("isvalid: true") == len(records)
    assert all("key: transaction_metadata::transactionalId=payments" in line for line in lines)
    for expected in ("producerId:7,producerEpoch:2,state=Ongoing", "orders-3", "orders-0", "flights-1"):
        assert expected in lines[0]
    assert f"txnLastUpdateTimestamp={STARTED_MS + 5},txnTimeoutMs=60000" in lines[0]
    assert "producerId:8,producerEpoch:0,state=Empty,partitions=[]" in lines[1]
    assert lines[2].endswith("payload: <DELETE>")
    assert "producerId:7,producerEpoch:2,state=Ongoing" in lines[3]
    assert "producerId:7,producerEpoch:2,state=Ongoing" in lines[4]
    assert f"txnTimeoutMs={NO_TIMEOUT_MS}" in lines[4]

"""Indexes, leader epochs, producer state and small files: the pure parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files import checkpoints, names
from ottla_broker.storage.files.checkpoints import CheckpointError
from ottla_broker.storage.files.indexes import (
    GrowingIndex,
    MappedIndex,
    entry_count,
    floor_of_timestamp,
    last_time_entry,
)
from ottla_broker.storage.log.leader_epochs import LeaderEpochs
from ottla_broker.storage.log.producers import ProducerStates


@st.composite
def index_entries(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, int]]]:
    """(base offset, [(first offset, last offset, position)])"""
    base = draw(st.integers(0, 2**40))
    offset, position = base, 0
    entries = []
    for _ in range(draw(st.integers(0, 30))):
        first = offset + draw(st.integers(0, 5))
        last = first + draw(st.integers(0, 9))
        position += draw(st.integers(1, 5000))
        entries.append((first, last, position))
        offset = last + 1
    return base, entries


@given(index_entries(), st.integers(0, 500), st.integers(0, 3))
def test_both_indexes_find_the_last_entry_at_or_below_an_offset(
    drawn: tuple[int, list[tuple[int, int, int]]], distance: int, zeros: int
) -> None:
    base, entries = drawn
    growing = GrowingIndex(base)
    for first, last, position in entries:
        growing.add(first, last, position)
    written = bytes(growing.unwritten_offset_entries)
    assert len(written) == 8 * len(entries)
    offset = base + distance
    preallocated = written + bytes(8 * zeros * 7)
    mapped = MappedIndex(memoryview(preallocated), base)
    expected = max([(base, 0)] + [(last, position) for _, last, position in entries if last <= offset])
    assert mapped.floor(offset) == expected
    assert GrowingIndex(base, preallocated).floor(offset) == expected
    expected = max([(base, 0)] + [(first, position) for first, _, position in entries if first <= offset])
    assert growing.floor(offset)[1] == expected[1]


def test_a_torn_last_entry_and_a_tail_of_zeros_are_no_entries() -> None:
    index = GrowingIndex(0)
    index.add(5, 9, 4200)
    data = bytes(index.unwritten_offset_entries)
    assert entry_count(data + data[:3], 8) == 1
    assert entry_count(data + bytes(80), 8) == 1
    assert entry_count(bytes(80), 8) == 0
    assert entry_count(b"", 8) == 0


def test_time_entries_only_grow_and_bound_what_lies_before_them() -> None:
    index = GrowingIndex(100)
    index.add_time(-1, 100)
    index.add_time(1000, 110)
    index.add_time(900, 120)
    index.add_time(2000, 130)
    data = bytes(index.unwritten_time_entries)
    assert len(data) == 24
    assert last_time_entry(data, 100) == (2000, 130) == index.last_time
    for timestamp, offset in ((500, 100), (1000, 100), (1001, 110), (2000, 110), (2001, 130)):
        assert floor_of_timestamp(data, 100, timestamp) == offset
        assert index.floor_of_timestamp(timestamp) == offset


def test_epochs_end_where_the_next_one_begins() -> None:
    epochs = LeaderEpochs([(3, 10), (5, 120)])
    assert epochs.end_offset(-1, 200) == (-1, -1)
    assert epochs.end_offset(5, 200) == (5, 200)
    assert epochs.end_offset(4, 200) == (3, 120)
    assert epochs.end_offset(3, 200) == (3, 120)
    assert epochs.end_offset(2, 200) == (2, 10)
    assert epochs.end_offset(6, 200) == (-1, -1)
    assert LeaderEpochs().end_offset(0, 5) == (-1, -1)


def test_a_new_epoch_drops_entries_that_contradict_it() -> None:
    epochs = LeaderEpochs([(1, 0), (2, 50), (3, 90)])
    epochs.assign(4, 60)
    assert epochs.entries == [(1, 0), (2, 50), (4, 60)]
    epochs.assign(4, 70)
    assert epochs.entries == [(1, 0), (2, 50), (4, 60)]
    assert epochs.latest == 4


def test_truncation_of_epochs_keeps_the_epoch_of_the_new_start() -> None:
    epochs = LeaderEpochs([(1, 0), (2, 50), (3, 90)])
    epochs.truncate_from_start(60)
    assert epochs.entries == [(2, 60), (3, 90)]
    epochs.truncate_from_end(90)
    assert epochs.entries == [(2, 60)]
    epochs.truncate_from_end(60)
    assert epochs.entries == [] and epochs.latest == -1


def _code(states: ProducerStates, *batch: int) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        states.check(*batch)
    return caught.value.code


def test_sequences_are_checked_in_kafkas_order() -> None:
    states = ProducerStates()
    assert states.check(7, 0, 500, 504) is None  # unknown producer: any sequence
    states.update(7, 0, 504, 104, 4, 1)
    assert states.check(7, 0, 505, 505) is None
    assert _code(states, 7, 0, 506, 506) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _code(states, 7, 0, 500, 503) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    duplicate = states.check(7, 0, 500, 504)
    assert duplicate is not None and (duplicate.first_offset, duplicate.last_offset) == (100, 104)
    assert _code(states, 7, 1, 505, 505) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(7, 1, 0, 3) is None
    states.update(7, 1, 3, 108, 3, 1)
    assert _code(states, 7, 0, 505, 505) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequences_wrap_to_zero() -> None:
    states = ProducerStates()
    states.update(7, 0, 2**31 - 1, 10, 0, 1)
    assert states.check(7, 0, 0, 4) is None
    assert _code(states, 7, 0, 1, 4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    states.update(7, 0, 2, 15, 4, 1)  # 2^31-2 .. 2
    duplicate = states.check(7, 0, 2**31 - 2, 2)
    assert duplicate is not None and duplicate.first_offset == 11


def test_five_batches_are_remembered() -> None:
    states = ProducerStates()
    for number in range(10, 16):
        states.update(7, 0, number, number, 0, 1)
    assert _code(states, 7, 0, 9, 9) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for number in range(11, 16):
        assert states.check(7, 0, number, number) is not None


def test_what_came_before_the_five_batches_is_a_duplicate_when_it_is_known_to_be_written() -> None:
    """Of a leader that was cut off: the next one has the batch, and later ones, before the producer gives up waiting.

    Java's client would repeat a batch that is OUT_OF_ORDER for ever, librdkafka would take a new epoch.
    """
    states = ProducerStates()
    for number in range(10):
        states.update(7, 0, 10 * number + 9, 1000 + 10 * number + 9, 9, 1)
    assert _code(states, 7, 0, 0, 9, False, 1100) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert _code(states, 7, 0, 20, 29, False, 1050) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    # Nothing is said to be safe before it is: the oldest of the five begins at offset 1050.
    assert _code(states, 7, 0, 20, 29, False, 1049) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert _code(states, 7, 0, 200, 209, False, 1100) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _code(states, 7, 0, 45, 54, False, 1100) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_what_is_not_known_to_be_written_is_no_duplicate() -> None:
    """A producer that was forgotten may begin anywhere: what it sent before that may never have come."""
    states = ProducerStates()
    for number in range(5, 15):
        states.update(7, 0, number, number, 0, 1)
    assert _code(states, 7, 0, 5, 5, False, 100) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert _code(states, 7, 0, 4, 4, False, 100) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _code(states, 7, 0, 4, 5, False, 100) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    again = ProducerStates.decode("x.snapshot", states.encode(), 15)
    assert _code(again, 7, 0, 5, 5, False, 100) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    states.update(7, 0, 30, 30, 0, 1)  # a gap that compaction left
    assert _code(states, 7, 0, 5, 5, False, 100) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    states.update(7, 1, 0, 31, 0, 1)
    assert _code(states, 7, 1, 5, 5, False, 100) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_known_sequences_are_counted_across_the_wrap() -> None:
    states = ProducerStates()
    for number in range(10):
        states.update(7, 0, (2**31 - 4 + number) & (2**31 - 1), number, 0, 1)
    assert _code(states, 7, 0, 2**31 - 4, 2**31 - 4, False, 100) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert _code(states, 7, 0, 0, 0, False, 100) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert _code(states, 7, 0, 2**31 - 5, 2**31 - 5, False, 100) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_snapshot_is_kafkas_and_keeps_the_last_batch() -> None:
    states = ProducerStates()
    states.update(7, 2, 40, 1000, 9, 123)
    states.update(8, 0, 3, 1004, 3, 124)
    data = states.encode()
    assert data[:2] == b"\x00\x01" and len(data) == 2 + 4 + 4 + 2 * 46
    again = ProducerStates.decode("x.snapshot", data, 1005)
    assert again.encode() == data
    duplicate = again.check(7, 2, 31, 40)
    assert duplicate is not None and duplicate.first_offset == 991
    assert again.end_offset == 1005
    with pytest.raises(CheckpointError, match=r"x\.snapshot: the checksum"):
        ProducerStates.decode("x.snapshot", data[:-1] + b"\x00", 0)
    with pytest.raises(CheckpointError):
        ProducerStates.decode("x.snapshot", data[:3], 0)


def test_everything_survives_the_way_between_processes() -> None:
    states = ProducerStates()
    for number in range(5):
        states.update(7, 0, number, number, 0, 1)
    again = ProducerStates.restore(states.dump(), 5)
    assert again.dump() == states.dump()
    assert again.check(7, 0, 0, 0) is not None


def test_idle_producers_are_forgotten_unless_in_a_transaction() -> None:
    states = ProducerStates()
    states.update(1, 0, 0, 0, 0, 1000)
    states.update(2, 0, 0, 1, 0, 1000, is_transactional=True)
    states.update(3, 0, 0, 2, 0, 1900)
    states.remove_expired(2000, 1000)
    assert [entry.producer_id for entry in states.entries] == [2, 3]


def test_checkpoints_are_kafkas_text_and_come_back() -> None:
    offsets = {TopicPartition("b", 1): 7, TopicPartition("a.b-c", 0): 0}
    data = checkpoints.encode_offsets(offsets)
    assert data == b"0\n2\na.b-c 0 0\nb 1 7\n"
    assert checkpoints.decode_offsets("f", data) == offsets
    assert checkpoints.encode_epochs([(0, 0), (2, 15)]) == b"0\n2\n0 0\n2 15\n"
    assert checkpoints.decode_epochs("f", b"0\n2\n0 0\n2 15\n") == [(0, 0), (2, 15)]


@pytest.mark.parametrize("data", [b"", b"0", b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na 0 x\n", b"\xff"])
def test_a_malformed_checkpoint_is_named(data: bytes) -> None:
    with pytest.raises(CheckpointError, match="recovery-point"):
        checkpoints.decode_offsets("recovery-point", data)


def test_topic_ids_are_written_as_kafka_prints_them() -> None:
    topic_id = bytes(range(16))
    data = checkpoints.encode_partition_metadata(topic_id)
    assert data == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert checkpoints.decode_partition_metadata("f", data) == topic_id
    with pytest.raises(CheckpointError):
        checkpoints.decode_partition_metadata("f", b"version: 0\n")


def test_properties_come_back_with_their_escapes() -> None:
    values = {"cluster.id": "a=b:c", "broker.id": "7"}
    assert checkpoints.decode_properties(checkpoints.encode_properties(values)) == values
    assert checkpoints.decode_properties(b"#Sat Nov 21\nversion=0\nbroker.id = 7\n") == {
        "version": "0",
        "broker.id": "7",
    }


def test_the_clean_shutdown_marker_is_kafkas() -> None:
    assert checkpoints.encode_clean_shutdown(-1) == b'{"version":0,"brokerEpoch":-1}'
    assert checkpoints.decode_clean_shutdown(b'{"version":0,"brokerEpoch":42}') == 42
    assert checkpoints.decode_clean_shutdown(b"") == -1


def test_directory_names_are_told_apart() -> None:
    assert names.parse_partition_directory("a-b-3") == TopicPartition("a-b", 3)
    assert names.parse_partition_directory("a-b") is None
    aside = names.set_aside_name(TopicPartition("t" * 249, 12), "0" * 32, names.DELETE_DIRECTORY)
    assert len(aside) == 255
    assert names.parse_partition_directory(aside) is None
    assert names.is_set_aside(aside, names.DELETE_DIRECTORY)
    assert not names.is_set_aside("t-delete-0", names.DELETE_DIRECTORY)

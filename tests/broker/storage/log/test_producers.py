"""The state of idempotent producers and its snapshot."""

from __future__ import annotations

import pytest

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.storage.files.checkpoints import CheckpointError
from ottla_broker.storage.log.producers import ProducerStates


def _code(states: ProducerStates, *batch: int) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        states.check(*batch)
    return caught.value.code


def test_sequences_are_checked_in_the_order_of_kafka() -> None:
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


def test_the_broker_is_asked_about_unknown_producers_and_gaps_and_nothing_else() -> None:
    states = ProducerStates()
    asked: list[tuple[int, int, int, int | None]] = []

    def refuse(*batch: int | None) -> None:
        asked.append(batch)  # type: ignore[arg-type]
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    states.update(7, 0, 4, 104, 4, 1)
    assert states.check(7, 0, 5, 9, check_gap=refuse) is None
    assert states.check(7, 0, 0, 4, check_gap=refuse) is not None  # a duplicate
    assert states.check(7, 1, 0, 4, check_gap=refuse) is None
    for producer_id, epoch, sequence in ((8, 3, 5), (7, 0, 6), (7, 1, 3)):
        with pytest.raises(KafkaError) as raised:
            states.check(producer_id, epoch, sequence, sequence, check_gap=refuse)
        assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert asked == [(8, 3, 5, None), (7, 0, 6, 5), (7, 1, 3, 0)]


def test_sequences_wrap_to_zero() -> None:
    states = ProducerStates()
    states.update(7, 0, 2**31 - 1, 10, 0, 1)
    assert states.check(7, 0, 0, 4) is None
    assert _code(states, 7, 0, 1, 4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    states.update(7, 0, 2, 15, 4, 1)  # 2^31-2 .. 2
    duplicate = states.check(7, 0, 2**31 - 2, 2)
    assert duplicate is not None and duplicate.first_offset == 11


def test_the_last_five_batches_of_a_producer_are_duplicates() -> None:
    states = ProducerStates()
    for number in range(10, 16):
        states.update(7, 0, number, number, 0, 1)
    assert _code(states, 7, 0, 9, 9) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for number in range(11, 16):
        assert states.check(7, 0, number, number) is not None


def test_a_batch_before_the_last_five_is_a_duplicate_when_it_is_known_to_be_in_the_log() -> None:
    """The next leader has the batch, and later ones, before the producer gives up waiting for a partitioned leader.

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


def test_a_batch_is_no_duplicate_when_it_is_not_known_to_be_in_the_log() -> None:
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


def test_a_snapshot_has_the_format_of_kafka_and_the_last_batch() -> None:
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


def test_a_dump_restores_the_whole_state_in_another_process() -> None:
    states = ProducerStates()
    for number in range(5):
        states.update(7, 0, number, number, 0, 1)
    again = ProducerStates.restore(states.dump(), 5)
    assert again.dump() == states.dump()
    assert again.check(7, 0, 0, 0) is not None


def test_idle_producers_expire_unless_in_a_transaction() -> None:
    states = ProducerStates()
    states.update(1, 0, 0, 0, 0, 1000)
    states.update(2, 0, 0, 1, 0, 1000, is_transactional=True)
    states.update(3, 0, 0, 2, 0, 1900)
    states.remove_expired(2000, 1000)
    assert [entry.producer_id for entry in states.entries] == [2, 3]

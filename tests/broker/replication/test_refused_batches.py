"""Which batches have to wait for an earlier one that the broker refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.batch import MAX_SEQUENCE
from ottla_broker.records.ids import TopicPartition
from ottla_broker.records.record import Record, build_batch
from ottla_broker.replication.refused_batches import SENT_AGAIN, RefusedBatches
from ottla_broker.storage.log.lowest_sequence import is_before
from ottla_broker.storage.log.producers import ProducerStates

ORDERS = TopicPartition("orders", 0)
ID, OTHER_ID = b"a" * 16, b"b" * 16
PRODUCER = 7


class Refusals:
    """`RefusedBatches` at a time that the test sets."""

    def __init__(self, limit: int = 3, lifetime_ms: int = 1_000, patience_ms: int = 1_000) -> None:
        self.now_ms = 0
        self.batches = RefusedBatches(lambda: self.now_ms, limit, lifetime_ms, patience_ms)

    def add(
        self,
        sequence: int,
        epoch: int = 0,
        producer_id: int = PRODUCER,
        topic_id: bytes = ID,
        error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER,
        expected: int | None = None,
    ) -> None:
        self.batches.add(ORDERS, topic_id, producer_id, epoch, sequence, error, expected)

    def answer(
        self,
        sequence: int,
        epoch: int = 0,
        producer_id: int = PRODUCER,
        topic_id: bytes = ID,
        expected: int | None = None,
    ) -> ErrorCode:
        try:
            self.batches.check(ORDERS, topic_id, producer_id, epoch, sequence, expected)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def passes(self, sequence: int, epoch: int = 0, producer_id: int = PRODUCER, topic_id: bytes = ID) -> bool:
        code = self.answer(sequence, epoch, producer_id, topic_id)
        assert code in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return code is ErrorCode.NONE


def test_what_comes_behind_a_refused_batch_waits_until_that_one_is_appended() -> None:
    refusals = Refusals()
    refusals.add(10)
    assert [refusals.passes(sequence) for sequence in (20, 11, 10, 20)] == [False, False, True, True]
    assert len(refusals.batches) == 0


def test_a_lower_sequence_makes_up_for_a_refused_one() -> None:
    refusals = Refusals()
    refusals.add(10)
    assert refusals.passes(5)
    assert refusals.passes(20)


def test_the_lowest_of_several_refused_sequences_counts_also_behind_the_largest_one() -> None:
    refusals = Refusals()
    for sequence in (3, MAX_SEQUENCE - 1, 8):
        refusals.add(sequence)
    assert [refusals.passes(sequence) for sequence in (MAX_SEQUENCE, 3, MAX_SEQUENCE - 1)] == [False, False, True]


def test_sequence_zero_passes_but_behind_the_largest_one() -> None:
    refusals = Refusals()
    refusals.add(500)
    assert refusals.passes(0)
    refusals.add(MAX_SEQUENCE)
    assert not refusals.passes(0)


def test_a_newer_epoch_does_not_wait_and_an_older_one_changes_nothing() -> None:
    refusals = Refusals()
    refusals.add(10, epoch=1)
    refusals.add(0, epoch=0)
    assert refusals.passes(50, epoch=0)
    assert not refusals.passes(20, epoch=1)
    assert refusals.passes(30, epoch=2)
    assert refusals.passes(20, epoch=1)


def test_producers_partitions_and_topics_do_not_wait_for_each_other() -> None:
    refusals = Refusals()
    refusals.add(10)
    assert refusals.passes(20, producer_id=8)
    refusals.batches.check(TopicPartition("orders", 1), ID, PRODUCER, 0, 20, None)
    assert refusals.passes(20, topic_id=OTHER_ID)  # the topic was created again
    assert not refusals.passes(20)


def test_a_batch_that_was_refused_before_the_topics_id_was_known_counts_for_the_topic() -> None:
    refusals = Refusals()
    refusals.add(10, topic_id=ZERO_UUID)
    refusals.add(20)
    assert not refusals.passes(15)
    assert refusals.passes(10)
    assert len(refusals.batches) == 0


def test_a_refused_batch_is_forgotten_a_while_after_its_last_refusal() -> None:
    refusals = Refusals(lifetime_ms=1_000)
    refusals.add(10)
    refusals.add(10, producer_id=8)
    refusals.now_ms = 600
    refusals.add(10)
    refusals.now_ms = 1_000
    assert refusals.passes(20, producer_id=8)
    assert not refusals.passes(20)
    refusals.now_ms = 1_600
    assert refusals.passes(20)
    assert len(refusals.batches) == 0


def test_of_too_many_refused_batches_the_oldest_is_forgotten() -> None:
    refusals = Refusals(limit=2)
    for producer_id in (1, 2, 1, 3):
        refusals.add(10, producer_id=producer_id)
    assert len(refusals.batches) == 2
    assert [refusals.passes(20, producer_id=producer_id) for producer_id in (1, 2, 3)] == [False, True, False]


def records(producer_id: int = PRODUCER, sequence: int = 0) -> memoryview:
    return memoryview(encoded(producer_id, sequence))


def encoded(producer_id: int = PRODUCER, sequence: int = 0) -> bytes:
    batch = build_batch([Record(0, 1, None, b"v")], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    return bytes(batch)


@pytest.mark.parametrize("error", sorted(SENT_AGAIN))
def test_a_refusal_for_now_is_remembered(error: ErrorCode) -> None:
    refusals = Refusals()
    refusals.batches.on_refusal(error, ORDERS, ID, records(sequence=10), ProducerStates())
    assert refusals.answer(11) is error


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
    ],
)
def test_a_refusal_for_good_is_not_remembered(error: ErrorCode) -> None:
    refusals = Refusals()
    refusals.batches.on_refusal(error, ORDERS, ID, records(), None)
    assert len(refusals.batches) == 0


def test_a_batch_behind_a_refused_one_gets_its_last_error() -> None:
    refusals = Refusals()
    refusals.add(10, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    refusals.add(20, error=ErrorCode.KAFKA_STORAGE_ERROR)
    assert refusals.answer(20) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    refusals.add(10, error=ErrorCode.NOT_ENOUGH_REPLICAS)
    assert refusals.answer(20) is ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_batch_that_leaves_a_gap_waits_for_a_refused_one_that_is_not_in_the_log() -> None:
    refusals, producers = Refusals(), ProducerStates()
    producers.update(PRODUCER, 0, 9, 9, 9, 1)
    refusals.batches.on_refusal(ErrorCode.NOT_ENOUGH_REPLICAS, ORDERS, ID, records(sequence=10), producers)
    assert refusals.answer(11, expected=10) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert refusals.answer(13, expected=11) is ErrorCode.NONE  # 10 is appended: the gap is another one
    assert refusals.answer(13, epoch=1, expected=0) is ErrorCode.NONE
    assert refusals.answer(11, expected=10) is ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_refusal_by_a_broker_without_the_log_counts_where_it_has_loaded_the_log() -> None:
    refusals = Refusals()
    refusals.batches.on_refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, ORDERS, ID, records(sequence=10), None)
    assert refusals.answer(11, expected=10) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("is_known", [False, True])
def test_nobody_waits_longer_for_a_batch_that_its_producer_gave_up(is_known: bool) -> None:
    refusals = Refusals(lifetime_ms=5_000, patience_ms=1_000)
    expected = 10 if is_known else None
    refusals.add(10, expected=expected)
    refusals.now_ms = 900
    refusals.add(20, expected=expected)  # does not say that 10 comes again
    assert refusals.answer(20, expected=10) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    refusals.now_ms = 1_000
    assert refusals.answer(20, expected=10) is ErrorCode.NONE
    # A log that knows its producer has the last word; one that does not would take the batch.
    assert refusals.answer(20) is (ErrorCode.NONE if is_known else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


def test_refusals_of_known_producers_push_out_no_others() -> None:
    refusals = Refusals(limit=2)
    refusals.add(10)
    for producer_id in (1, 2, 3):
        refusals.add(10, producer_id=producer_id, expected=10)
    assert not refusals.passes(20)


@pytest.mark.parametrize("damaged", [b"", encoded()[:60], encoded()[:16] + b"\1" + encoded()[17:], encoded(-1, -1)])
def test_what_names_no_producer_is_not_remembered(damaged: bytes) -> None:
    refusals = Refusals()
    refusals.batches.on_refusal(ErrorCode.CORRUPT_MESSAGE, ORDERS, ID, memoryview(damaged), None)
    assert len(refusals.batches) == 0


SEQUENCES = st.one_of(st.integers(0, 60), st.integers(MAX_SEQUENCE - 60, MAX_SEQUENCE))


@given(st.lists(SEQUENCES, min_size=1), SEQUENCES)
def test_a_batch_passes_when_no_refused_one_comes_before_it(refused: list[int], sequence: int) -> None:
    refusals = Refusals()
    for one in refused:
        refusals.add(one)
    comes_behind = any(is_before(one, sequence) for one in refused)
    assert refusals.passes(sequence) is not comes_behind
    assert refusals.passes(sequence) is not comes_behind


BATCHES = 8
IN_FLIGHT = 5


@given(st.integers(0, MAX_SEQUENCE), st.lists(st.booleans(), max_size=60))
def test_what_a_later_success_acknowledges_is_in_the_log(first_sequence: int, refusals_of_broker: list[bool]) -> None:
    """A producer with five batches of one record in flight that takes a success for those of all earlier ones, as
    librdkafka does, against a broker that refuses what it likes: the log gets every record once, in order, and the
    producer never has a reason for a new epoch."""
    refusals, producers = Refusals(), ProducerStates()
    refusing = iter(refusals_of_broker)
    log: list[int] = []
    acknowledged = 0
    while acknowledged < BATCHES:
        outcomes: list[tuple[int, ErrorCode]] = []
        for record in range(acknowledged, min(acknowledged + IN_FLIGHT, BATCHES)):
            sequence = (first_sequence + record) & MAX_SEQUENCE
            error = ErrorCode.NONE
            if next(refusing, False):
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER
                refusals.batches.on_refusal(error, ORDERS, ID, records(PRODUCER, sequence), producers)
            else:
                try:
                    repeated = producers.check(
                        PRODUCER,
                        0,
                        sequence,
                        sequence,
                        check_gap=lambda *batch: refusals.batches.check(ORDERS, ID, *batch),
                    )
                except KafkaError as refusal:
                    error = refusal.code
                else:
                    if repeated is None:
                        producers.update(PRODUCER, 0, sequence, len(log), 0, 1)
                        log.append(record)
            outcomes.append((record, error))
        for record, error in outcomes:
            if error is ErrorCode.NONE:
                acknowledged = max(acknowledged, record + 1)
                assert log[:acknowledged] == list(range(acknowledged))
        assert all(error in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER) for _, error in outcomes)
    assert log == list(range(BATCHES))

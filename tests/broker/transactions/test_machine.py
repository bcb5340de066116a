"""One transactional id, request by request: what its producers hear and what is stored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition
from ottla_broker.transactions.decisions import (
    LAST_GIVEN_EPOCH,
    Answer,
    Decision,
    NeedsProducerId,
    ProducerIdAndEpoch,
    TransactionMetadata,
    Transition,
)
from ottla_broker.transactions.machine import Transaction
from ottla_broker.transactions.states import (
    PREVIOUS_STATES,
    STATE_NAMES,
    STORED_STATES,
    TransactionState,
    can_enter,
)

NONE = ErrorCode.NONE
S = TransactionState
A, B = TopicPartition("t", 0), TopicPartition("t", 1)
TIMEOUT_MS = 60_000


def in_state(state: TransactionState, *, epoch: int = 3) -> Transaction:
    has_partitions = state in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT)
    started = -1 if state is S.EMPTY else 1_000
    partitions = frozenset({A}) if has_partitions else frozenset()
    return Transaction("id", TransactionMetadata(7, epoch, TIMEOUT_MS, state, 1_000, started, partitions))


def stored(transaction: Transaction, decision: object) -> TransactionMetadata:
    assert isinstance(decision, Transition), decision
    transaction.stored(decision, NONE)
    return transaction.metadata


def outcome(decision: Decision) -> object:
    """The error of an answer, or the state that is stored."""
    return decision.error if isinstance(decision, Answer) else decision.metadata.state


def test_every_state_has_a_name_and_previous_states() -> None:
    assert set(STATE_NAMES) == set(PREVIOUS_STATES) == set(S)
    assert [(int(state), STATE_NAMES[state]) for state in S] == [
        (0, "Empty"),
        (1, "Ongoing"),
        (2, "PrepareCommit"),
        (3, "PrepareAbort"),
        (4, "CompleteCommit"),
        (5, "CompleteAbort"),
        (6, "Dead"),
        (7, "PrepareEpochFence"),
    ]


CONCURRENT, INVALID = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE

ANSWERS = {
    # state: InitProducerId, AddPartitionsToTxn, EndTxn (commit), EndTxn (abort)
    S.EMPTY: (S.EMPTY, S.ONGOING, INVALID, INVALID),
    S.ONGOING: (S.PREPARE_ABORT, S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT),
    S.PREPARE_COMMIT: (CONCURRENT, CONCURRENT, CONCURRENT, CONCURRENT),
    S.PREPARE_ABORT: (CONCURRENT, CONCURRENT, CONCURRENT, CONCURRENT),
    S.COMPLETE_COMMIT: (S.EMPTY, S.ONGOING, NONE, INVALID),
    S.COMPLETE_ABORT: (S.EMPTY, S.ONGOING, INVALID, NONE),
}


@pytest.mark.parametrize("state", sorted(STORED_STATES), ids=lambda state: STATE_NAMES[state])
def test_each_request_is_answered_by_the_state(state: TransactionState) -> None:
    initialized = in_state(state).initialize(TIMEOUT_MS, None, 2_000)
    assert not isinstance(initialized, NeedsProducerId)
    assert (
        outcome(initialized),
        outcome(in_state(state).add_partitions(7, 3, [B], 2_000)),
        outcome(in_state(state).end(7, 3, is_commit=True, now_ms=2_000)),
        outcome(in_state(state).end(7, 3, is_commit=False, now_ms=2_000)),
    ) == ANSWERS[state]


@pytest.mark.parametrize("state", sorted(STORED_STATES), ids=lambda state: STATE_NAMES[state])
def test_another_producer_id_or_epoch_is_refused_in_every_state(state: TransactionState) -> None:
    for producer_id, epoch, error in (
        (6, 3, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (7, 2, ErrorCode.PRODUCER_FENCED),
        (7, 4, ErrorCode.PRODUCER_FENCED),
    ):
        assert outcome(in_state(state).add_partitions(producer_id, epoch, [A], 2_000)) is error
        assert outcome(in_state(state).end(producer_id, epoch, is_commit=True, now_ms=2_000)) is error
        assert in_state(state).verify(producer_id, epoch, [A]) == {A: error}


def test_a_new_transactional_id_gets_epoch_0() -> None:
    transaction = Transaction.created("id", 7, TIMEOUT_MS, 1_000)
    metadata = stored(transaction, transaction.initialize(TIMEOUT_MS, None, 1_000))
    assert (metadata.producer_id, metadata.producer_epoch, metadata.state) == (7, 0, S.EMPTY)


def test_a_producer_that_was_forgotten_continues_with_a_new_producer_id() -> None:
    """KIP-360: it names the id that the coordinator no longer has."""
    transaction = Transaction.created("id", 9, TIMEOUT_MS, 1_000)
    metadata = stored(transaction, transaction.initialize(TIMEOUT_MS, ProducerIdAndEpoch(7, 3), 1_000))
    assert (metadata.producer_id, metadata.producer_epoch) == (9, 0)


def test_a_request_while_a_record_is_on_its_way_is_told_to_try_again() -> None:
    transaction = in_state(S.EMPTY)
    adding = transaction.add_partitions(7, 3, [A], 2_000)
    assert transaction.metadata.state is S.EMPTY
    assert outcome(transaction.add_partitions(7, 3, [B], 2_000)) is CONCURRENT
    assert outcome(transaction.end(7, 3, is_commit=True, now_ms=2_000)) is CONCURRENT
    assert isinstance(transaction.initialize(TIMEOUT_MS, None, 2_000), Answer)
    assert transaction.verify(7, 3, [A]) == {A: ErrorCode.TRANSACTION_ABORTABLE}
    assert transaction.time_out(10**9) is None and transaction.expire(10**12, 1) is None
    assert stored(transaction, adding).partitions == {A}
    assert transaction.verify(7, 3, [A, B]) == {A: NONE, B: ErrorCode.TRANSACTION_ABORTABLE}


def test_a_record_that_cannot_be_stored_changes_nothing() -> None:
    transaction = in_state(S.ONGOING)
    before = transaction.metadata
    ending = transaction.end(7, 3, is_commit=True, now_ms=2_000)
    assert isinstance(ending, Transition)
    transaction.stored(ending, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert transaction.metadata == before
    assert outcome(transaction.end(7, 3, is_commit=False, now_ms=2_000)) is S.PREPARE_ABORT


def test_partitions_that_are_in_the_transaction_need_no_record() -> None:
    transaction = in_state(S.ONGOING)
    assert outcome(transaction.add_partitions(7, 3, [A], 2_000)) is NONE
    assert stored(transaction, transaction.add_partitions(7, 3, [A, B], 2_000)).partitions == {A, B}
    assert transaction.metadata.start_timestamp_ms == 1_000


def test_the_next_transaction_begins_without_the_partitions_of_the_last() -> None:
    transaction = in_state(S.ONGOING)
    stored(transaction, transaction.end(7, 3, is_commit=True, now_ms=2_000))
    transaction.markers_written([A])
    assert stored(transaction, transaction.complete(3_000)).state is S.COMPLETE_COMMIT
    metadata = stored(transaction, transaction.add_partitions(7, 3, [B], 4_000))
    assert (metadata.partitions, metadata.start_timestamp_ms) == ({B}, 4_000)


def test_a_second_producer_aborts_the_open_transaction_and_fences_the_first() -> None:
    transaction = in_state(S.ONGOING)
    fence = transaction.initialize(TIMEOUT_MS, None, 2_000)
    assert isinstance(fence, Transition) and fence.is_fence
    assert outcome(transaction.end(7, 3, is_commit=True, now_ms=2_000)) is ErrorCode.PRODUCER_FENCED
    assert (stored(transaction, fence).state, transaction.metadata.producer_epoch) == (S.PREPARE_ABORT, 4)
    transaction.markers_written([A])
    stored(transaction, transaction.complete(3_000))
    assert stored(transaction, transaction.initialize(TIMEOUT_MS, None, 3_000)).producer_epoch == 5


def test_a_fence_that_cannot_be_stored_uses_the_same_epoch_the_next_time() -> None:
    transaction = in_state(S.ONGOING)
    for _ in range(3):
        fence = transaction.initialize(TIMEOUT_MS, None, 2_000)
        assert isinstance(fence, Transition)
        assert fence.metadata.producer_epoch == 4
        transaction.stored(fence, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert outcome(transaction.end(7, 3, is_commit=True, now_ms=2_000)) is ErrorCode.PRODUCER_FENCED
    assert stored(transaction, transaction.time_out(10**9)).producer_epoch == 4


def test_a_transaction_times_out_after_its_timeout_and_not_before() -> None:
    transaction = in_state(S.ONGOING)
    assert transaction.time_out(1_000 + TIMEOUT_MS) is None
    metadata = stored(transaction, transaction.time_out(1_001 + TIMEOUT_MS))
    assert (metadata.state, metadata.producer_epoch) == (S.PREPARE_ABORT, 4)
    for state in STORED_STATES - {S.ONGOING}:
        assert in_state(state).time_out(10**9) is None


def test_a_producer_continues_after_an_error_with_the_next_epoch() -> None:
    """KIP-360: it names its epoch, and may send the request again when it lost the response."""
    transaction = in_state(S.COMPLETE_ABORT)
    mine = ProducerIdAndEpoch(7, 3)
    assert stored(transaction, transaction.initialize(TIMEOUT_MS, mine, 2_000)).producer_epoch == 4
    assert stored(transaction, transaction.initialize(TIMEOUT_MS, mine, 2_000)).producer_epoch == 4
    assert stored(transaction, transaction.initialize(TIMEOUT_MS, None, 2_000)).producer_epoch == 5
    late = transaction.initialize(TIMEOUT_MS, mine, 2_000)
    assert isinstance(late, Answer) and late.error is ErrorCode.PRODUCER_FENCED
    stranger = transaction.initialize(TIMEOUT_MS, ProducerIdAndEpoch(6, 5), 2_000)
    assert isinstance(stranger, Answer) and stranger.error is ErrorCode.PRODUCER_FENCED


def test_a_producer_whose_epochs_are_used_up_gets_another_producer_id() -> None:
    transaction = in_state(S.EMPTY, epoch=LAST_GIVEN_EPOCH)
    mine = ProducerIdAndEpoch(7, LAST_GIVEN_EPOCH)
    assert isinstance(transaction.initialize(TIMEOUT_MS, mine, 2_000), NeedsProducerId)
    metadata = stored(transaction, transaction.initialize(TIMEOUT_MS, mine, 2_000, 8))
    assert (metadata.producer_id, metadata.producer_epoch) == (8, 0)
    again = stored(transaction, transaction.initialize(TIMEOUT_MS, mine, 2_000))
    assert (again.producer_id, again.producer_epoch) == (8, 0)


def test_the_last_epoch_can_still_be_fenced() -> None:
    transaction = in_state(S.ONGOING, epoch=LAST_GIVEN_EPOCH)
    assert stored(transaction, transaction.initialize(TIMEOUT_MS, None, 2_000)).producer_epoch == 2**15 - 1
    transaction.markers_written([A])
    stored(transaction, transaction.complete(3_000))
    assert isinstance(transaction.initialize(TIMEOUT_MS, None, 3_000), NeedsProducerId)
    late = transaction.initialize(TIMEOUT_MS, ProducerIdAndEpoch(7, LAST_GIVEN_EPOCH), 3_000)
    assert isinstance(late, Answer) and late.error is ErrorCode.PRODUCER_FENCED


def test_only_an_idle_transactional_id_expires() -> None:
    for state in sorted(STORED_STATES):
        transaction = in_state(state)
        assert transaction.expire(1_099, 100) is None
        dead = transaction.expire(1_100, 100)
        assert (dead is not None) == can_enter(S.DEAD, state)
        if dead is not None:
            assert dead.metadata.state is S.DEAD
            assert outcome(transaction.add_partitions(7, 3, [A], 2_000)) is CONCURRENT


def test_a_change_that_the_table_does_not_know_is_an_assertion() -> None:
    transaction = in_state(S.ONGOING)
    with pytest.raises((AssertionError, KeyError)):
        transaction.complete(2_000)
    transaction.metadata = replace(transaction.metadata, state=S.EMPTY)
    with pytest.raises(AssertionError):
        transaction.markers_written([A])

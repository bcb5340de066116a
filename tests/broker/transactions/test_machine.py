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


# transaction.version 2 (KIP-890)


FENCED = ErrorCode.PRODUCER_FENCED

ANSWERS_2 = {
    # state: EndTxn (commit) sent again, of the current epoch; EndTxn (abort) sent again, of the current epoch
    S.EMPTY: (FENCED, INVALID, FENCED, S.PREPARE_ABORT),
    S.ONGOING: (FENCED, S.PREPARE_COMMIT, FENCED, S.PREPARE_ABORT),
    S.PREPARE_COMMIT: (CONCURRENT, FENCED, CONCURRENT, FENCED),
    S.PREPARE_ABORT: (CONCURRENT, FENCED, CONCURRENT, FENCED),
    S.COMPLETE_COMMIT: (NONE, INVALID, INVALID, S.PREPARE_ABORT),
    S.COMPLETE_ABORT: (INVALID, INVALID, NONE, S.PREPARE_ABORT),
}


def end_2(
    transaction: Transaction, epoch: int, *, is_commit: bool, producer_id: int = 7, new: int | None = None
) -> object:
    decision = transaction.end_with_next_epoch(
        producer_id, epoch, is_commit=is_commit, now_ms=2_000, new_producer_id=new
    )
    return decision if isinstance(decision, NeedsProducerId) else outcome(decision)


@pytest.mark.parametrize("state", sorted(STORED_STATES), ids=lambda state: STATE_NAMES[state])
def test_an_end_of_version_2_is_answered_by_the_state_and_the_epoch(state: TransactionState) -> None:
    assert (
        end_2(in_state(state), 2, is_commit=True),
        end_2(in_state(state), 3, is_commit=True),
        end_2(in_state(state), 2, is_commit=False),
        end_2(in_state(state), 3, is_commit=False),
    ) == ANSWERS_2[state]


@pytest.mark.parametrize("state", sorted(STORED_STATES), ids=lambda state: STATE_NAMES[state])
def test_an_end_of_version_2_from_another_producer_is_refused_in_every_state(state: TransactionState) -> None:
    assert end_2(in_state(state), 3, is_commit=True, producer_id=6) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    for epoch in (1, 4):
        assert end_2(in_state(state), epoch, is_commit=True) is FENCED
        assert end_2(in_state(state), epoch, is_commit=False) is FENCED


def test_an_end_of_version_2_raises_the_epoch_before_the_markers() -> None:
    transaction = in_state(S.ONGOING)
    prepared = stored(transaction, transaction.end_with_next_epoch(7, 3, is_commit=True, now_ms=2_000))
    assert (prepared.producer_epoch, prepared.last_producer_epoch, prepared.partitions) == (4, 3, {A})
    assert prepared.producer_after == (7, 4) and prepared.transaction_version == 2
    transaction.markers_written([A])
    complete = stored(transaction, transaction.complete(3_000))
    assert (complete.producer_id, complete.producer_epoch, complete.state) == (7, 4, S.COMPLETE_COMMIT)
    assert outcome(transaction.add_partitions(7, 3, [A], 4_000, 2)) is FENCED
    assert stored(transaction, transaction.add_partitions(7, 4, [A], 4_000, 2)).transaction_version == 2


def test_an_abort_before_any_partition_begins_when_it_ends() -> None:
    transaction = in_state(S.EMPTY)
    prepared = stored(transaction, transaction.end_with_next_epoch(7, 3, is_commit=False, now_ms=2_000))
    assert (prepared.start_timestamp_ms, prepared.partitions, prepared.producer_epoch) == (2_000, frozenset(), 4)
    assert stored(transaction, transaction.complete(2_000)).state is S.COMPLETE_ABORT


def test_the_last_epoch_of_a_producer_id_ends_with_the_next_producer_id() -> None:
    transaction = in_state(S.ONGOING, epoch=LAST_GIVEN_EPOCH)
    assert isinstance(end_2(transaction, LAST_GIVEN_EPOCH, is_commit=True), NeedsProducerId)
    assert transaction.pending is None
    decision = transaction.end_with_next_epoch(7, LAST_GIVEN_EPOCH, is_commit=True, now_ms=2_000, new_producer_id=9)
    prepared = stored(transaction, decision)
    assert (prepared.producer_id, prepared.producer_epoch, prepared.producer_after) == (7, LAST_GIVEN_EPOCH + 1, (9, 0))
    assert end_2(transaction, LAST_GIVEN_EPOCH, is_commit=True) is CONCURRENT
    transaction.markers_written([A])
    complete = stored(transaction, transaction.complete(3_000))
    assert (complete.producer_id, complete.producer_epoch, complete.next_producer_id) == (9, 0, -1)
    assert end_2(transaction, LAST_GIVEN_EPOCH, is_commit=True) is NONE
    assert end_2(transaction, LAST_GIVEN_EPOCH, is_commit=False) is INVALID
    assert end_2(transaction, LAST_GIVEN_EPOCH - 1, is_commit=True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert outcome(transaction.add_partitions(9, 0, [A], 4_000, 2)) is S.ONGOING


def test_a_record_of_version_2_that_cannot_be_stored_leaves_the_epoch() -> None:
    transaction = in_state(S.ONGOING)
    ending = transaction.end_with_next_epoch(7, 3, is_commit=True, now_ms=2_000)
    assert isinstance(ending, Transition)
    assert end_2(transaction, 3, is_commit=True) is CONCURRENT
    transaction.stored(ending, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert transaction.metadata.producer_epoch == 3
    assert end_2(transaction, 3, is_commit=True) is S.PREPARE_COMMIT


def test_a_fence_wins_over_an_end_of_version_2() -> None:
    transaction = in_state(S.ONGOING)
    fence = transaction.initialize(TIMEOUT_MS, None, 2_000)
    assert end_2(transaction, 3, is_commit=True) is FENCED
    assert stored(transaction, fence).producer_epoch == 4
    assert end_2(transaction, 3, is_commit=True) is CONCURRENT
    transaction.markers_written([A])
    stored(transaction, transaction.complete(3_000))
    assert end_2(transaction, 3, is_commit=True) is INVALID


def test_a_producer_that_lost_the_answer_to_its_end_gets_the_same_epoch_from_initializing() -> None:
    """KIP-360: it names the epoch before."""
    transaction = in_state(S.ONGOING)
    stored(transaction, transaction.end_with_next_epoch(7, 3, is_commit=True, now_ms=2_000))
    transaction.markers_written([A])
    stored(transaction, transaction.complete(3_000))
    initialized = stored(transaction, transaction.initialize(TIMEOUT_MS, ProducerIdAndEpoch(7, 3), 4_000))
    assert (initialized.producer_id, initialized.producer_epoch) == (7, 4)


@pytest.mark.parametrize("version", [0, 2])
def test_a_producer_continues_after_its_transaction_of_version_2_has_timed_out(version: int) -> None:
    """KIP-890: with the epoch that it had it gets the raised one, as often as it asks. Before, it is fenced."""
    transaction = in_state(S.COMPLETE_COMMIT)
    stored(transaction, transaction.add_partitions(7, 3, [A], 2_000, version))
    stored(transaction, transaction.time_out(10**9))
    transaction.markers_written([A])
    stored(transaction, transaction.complete(10**9))
    mine = ProducerIdAndEpoch(7, 3)
    for _ in range(2):
        continued = transaction.initialize(TIMEOUT_MS, mine, 10**9)
        if version < 2:
            assert isinstance(continued, Answer) and continued.error is FENCED
            return
        metadata = stored(transaction, continued)
        assert (metadata.state, metadata.producer_id, metadata.producer_epoch) == (S.EMPTY, 7, 4)
    assert stored(transaction, transaction.initialize(TIMEOUT_MS, None, 10**9)).producer_epoch == 5
    assert outcome(transaction.initialize(TIMEOUT_MS, mine, 10**9)) is FENCED, "another producer has it"


def test_a_producer_whose_last_epoch_has_timed_out_continues_with_another_producer_id() -> None:
    transaction = in_state(S.COMPLETE_COMMIT, epoch=LAST_GIVEN_EPOCH)
    stored(transaction, transaction.add_partitions(7, LAST_GIVEN_EPOCH, [A], 2_000, 2))
    stored(transaction, transaction.time_out(10**9))
    transaction.markers_written([A])
    stored(transaction, transaction.complete(10**9))
    mine = ProducerIdAndEpoch(7, LAST_GIVEN_EPOCH)
    assert isinstance(transaction.initialize(TIMEOUT_MS, mine, 10**9), NeedsProducerId)
    for _ in range(2):
        metadata = stored(transaction, transaction.initialize(TIMEOUT_MS, mine, 10**9, 9))
        assert (metadata.producer_id, metadata.producer_epoch) == (9, 0)


def test_versions_may_change_between_two_transactions() -> None:
    transaction = in_state(S.ONGOING)
    stored(transaction, transaction.end_with_next_epoch(7, 3, is_commit=True, now_ms=2_000))
    transaction.markers_written([A])
    stored(transaction, transaction.complete(2_000))
    stored(transaction, transaction.add_partitions(7, 4, [A], 3_000))
    prepared = stored(transaction, transaction.end(7, 4, is_commit=True, now_ms=4_000))
    assert (prepared.producer_epoch, prepared.transaction_version) == (4, 0)


def test_a_producer_with_the_next_producer_id_waits_until_the_markers_are_written() -> None:
    """It has the producer id from the answer to EndTxn; INVALID_PRODUCER_ID_MAPPING would be fatal to it."""
    transaction = in_state(S.ONGOING, epoch=LAST_GIVEN_EPOCH)
    ending = transaction.end_with_next_epoch(7, LAST_GIVEN_EPOCH, is_commit=True, now_ms=2_000, new_producer_id=9)
    stored(transaction, ending)
    completing = None
    for _ in range(2):
        assert outcome(transaction.add_partitions(9, 0, [B], 2_000, 2)) is CONCURRENT
        assert transaction.verify(9, 0, [B]) == {B: CONCURRENT}
        assert end_2(transaction, 0, is_commit=False, producer_id=9) is CONCURRENT
        initialized = transaction.initialize(TIMEOUT_MS, ProducerIdAndEpoch(9, 0), 2_000)
        assert isinstance(initialized, Answer) and initialized.error is CONCURRENT
        if completing is None:
            transaction.markers_written([A])
            completing = transaction.complete(3_000)
    stored(transaction, completing)
    assert outcome(transaction.add_partitions(9, 0, [B], 4_000, 2)) is S.ONGOING


def test_the_epoch_above_the_last_one_is_given_to_nobody() -> None:
    """A fence takes it: a producer that repeats its abort afterwards hears that it is fenced."""
    transaction = in_state(S.ONGOING, epoch=LAST_GIVEN_EPOCH)
    stored(transaction, transaction.time_out(10**9))
    transaction.markers_written([A])
    assert stored(transaction, transaction.complete(10**9)).producer_epoch == LAST_GIVEN_EPOCH + 1
    for epoch in (LAST_GIVEN_EPOCH, LAST_GIVEN_EPOCH + 1):
        assert end_2(transaction, epoch, is_commit=False) is FENCED
    initialized = transaction.initialize(TIMEOUT_MS, None, 10**9, 9)
    assert not isinstance(initialized, NeedsProducerId)
    metadata = stored(transaction, initialized)
    assert (metadata.producer_id, metadata.producer_epoch) == (9, 0)

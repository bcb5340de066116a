"""Two-phase commit (KIP-939): what a transactional id promises to who decides over its transactions from outside."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla_broker.ports.clock import Clock
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition
from ottla_broker.transactions.decisions import (
    LAST_GIVEN_EPOCH,
    NO_TIMEOUT_MS,
    Answer,
    Decision,
    NeedsProducerId,
    ProducerIdAndEpoch,
    TransactionMetadata,
    Transition,
)
from ottla_broker.transactions.machine import Transaction
from ottla_broker.transactions.records import read_value, transaction_record
from ottla_broker.transactions.states import STATE_NAMES, STORED_STATES, TransactionState
from tests.broker.transactions.surroundings import T0, T1, Broker, started
from tests.broker.transactions.test_coordinator import virtual

NONE, FENCED = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED
CONCURRENT, INVALID = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE
S = TransactionState
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def prepared(epoch: int = 3, timeout_ms: int = NO_TIMEOUT_MS) -> Transaction:
    """Producer id 7 has an open transaction, and is killed."""
    metadata = TransactionMetadata(7, epoch, timeout_ms, S.ONGOING, 1_000, 1_000, frozenset({A}), transaction_version=2)
    return Transaction("id", metadata)


def stored(transaction: Transaction, decision: object) -> TransactionMetadata:
    assert isinstance(decision, Transition), decision
    transaction.stored(decision, NONE)
    return transaction.metadata


def outcome(decision: Decision | NeedsProducerId) -> object:
    assert not isinstance(decision, NeedsProducerId)
    return decision.error if isinstance(decision, Answer) else decision.metadata.state


def keep(transaction: Transaction, new_producer_id: int | None = None, timeout_ms: int = NO_TIMEOUT_MS) -> object:
    return transaction.initialize(timeout_ms, None, 2_000, new_producer_id, keeps_transaction=True)


def kept(transaction: Transaction, new_producer_id: int | None = None) -> ProducerIdAndEpoch:
    """What the producer that has kept it has."""
    return stored(transaction, keep(transaction, new_producer_id)).producer


def end(
    transaction: Transaction,
    producer_id: int,
    epoch: int,
    *,
    is_commit: bool = True,
    new_producer_id: int | None = None,
) -> Decision | NeedsProducerId:
    return transaction.end_with_next_epoch(
        producer_id, epoch, is_commit=is_commit, now_ms=3_000, new_producer_id=new_producer_id
    )


def completed(transaction: Transaction) -> TransactionMetadata:
    transaction.markers_written(transaction.metadata.partitions)
    return stored(transaction, transaction.complete(4_000))


def test_a_transaction_without_timeout_is_never_too_old() -> None:
    assert prepared().time_out(10**15) is None
    assert prepared(timeout_ms=60_000).time_out(10**15) is not None


def test_a_producer_that_keeps_the_transaction_gets_the_next_epoch() -> None:
    transaction = prepared()
    metadata = stored(transaction, keep(transaction))
    assert metadata.producer == (7, 4)
    assert (metadata.state, metadata.producer_id, metadata.producer_epoch) == (S.ONGOING, 7, 3)
    assert (metadata.partitions, metadata.start_timestamp_ms) == ({A}, 1_000)
    assert [kept(transaction), kept(transaction)] == [(7, 5), (7, 6)], "it crashes again and again"
    assert (transaction.metadata.producer_id, transaction.metadata.producer_epoch) == (7, 3)


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_the_producer_that_has_kept_it_ends_it_with_markers_of_the_former_one(is_commit: bool) -> None:
    transaction = prepared()
    kept(transaction)
    kept(transaction)
    ending = stored(transaction, end(transaction, 7, 5, is_commit=is_commit))
    assert ending.state is (S.PREPARE_COMMIT if is_commit else S.PREPARE_ABORT)
    assert (ending.producer_id, ending.producer_epoch, ending.transaction_version) == (7, 4, 2), "of the markers"
    assert ending.producer_after == (7, 6)
    assert outcome(end(transaction, 7, 5, is_commit=is_commit)) is CONCURRENT, "sent again"
    assert outcome(end(transaction, 7, 6, is_commit=is_commit)) is CONCURRENT
    assert outcome(transaction.add_partitions(7, 6, [A], 3_000)) is CONCURRENT, "its next transaction"
    last = completed(transaction)
    assert (last.producer, last.is_kept, last.next_producer_id) == ((7, 6), False, -1)
    assert outcome(end(transaction, 7, 5, is_commit=is_commit)) is NONE, "sent again"
    assert outcome(end(transaction, 7, 5, is_commit=not is_commit)) is INVALID
    assert outcome(transaction.add_partitions(7, 6, [A], 3_000)) is S.ONGOING


def test_with_an_older_end_txn_the_markers_have_the_epoch_of_the_transaction() -> None:
    transaction = prepared()
    kept(transaction)
    ending = stored(transaction, transaction.end(7, 4, is_commit=True, now_ms=3_000))
    assert (ending.state, ending.producer_id, ending.producer_epoch) == (S.PREPARE_COMMIT, 7, 3)
    assert outcome(transaction.end(7, 4, is_commit=True, now_ms=3_000)) is CONCURRENT
    assert completed(transaction).producer == (7, 4)
    assert outcome(transaction.end(7, 4, is_commit=True, now_ms=3_000)) is NONE


def test_the_former_producer_is_fenced_from_the_transaction_that_was_kept() -> None:
    transaction = prepared()
    kept(transaction)
    for epoch in (3, 2, 5):
        for is_commit in (True, False):
            assert outcome(end(transaction, 7, epoch, is_commit=is_commit)) is FENCED
            assert outcome(transaction.end(7, epoch, is_commit=is_commit, now_ms=3_000)) is FENCED
        assert outcome(transaction.add_partitions(7, epoch, [A], 3_000, 2)) is FENCED, "also one that is in it"
        assert transaction.verify(7, epoch, [A]) == {A: FENCED}
    assert outcome(end(transaction, 6, 4)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_while_the_keeping_is_stored_the_former_producer_is_told_to_try_again() -> None:
    transaction = prepared()
    keeping = keep(transaction)
    assert outcome(end(transaction, 7, 3)) is CONCURRENT
    stored(transaction, keeping)
    assert outcome(end(transaction, 7, 3)) is FENCED


def test_keeping_that_cannot_be_stored_fences_nobody() -> None:
    transaction = prepared()
    keeping = keep(transaction)
    assert isinstance(keeping, Transition)
    transaction.stored(keeping, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert outcome(end(transaction, 7, 3)) is S.PREPARE_COMMIT


def test_a_transaction_that_was_kept_is_only_ended() -> None:
    transaction = prepared()
    kept(transaction)
    for partition in (A, B):
        assert outcome(transaction.add_partitions(7, 4, [partition], 3_000, 2)) is INVALID
        assert transaction.verify(7, 4, [partition]) == {partition: INVALID}


def test_a_producer_that_keeps_nothing_aborts_what_was_kept() -> None:
    """Admin.fenceProducers, kafka-transactions.sh forceTerminateTransaction, every client that knows nothing of it."""
    transaction = prepared()
    kept(transaction)
    kept(transaction)
    fencing = transaction.initialize(60_000, None, 3_000)
    assert isinstance(fencing, Transition) and fencing.is_fence
    assert outcome(end(transaction, 7, 5)) is FENCED, "before it is stored"
    metadata = stored(transaction, fencing)
    assert (metadata.state, metadata.producer_id, metadata.producer_epoch) == (S.PREPARE_ABORT, 7, 4)
    assert completed(transaction).producer == (7, 6)
    assert outcome(end(transaction, 7, 5)) is INVALID
    new = stored(transaction, transaction.initialize(60_000, None, 5_000))
    assert (new.producer, new.timeout_ms, new.has_no_timeout) == ((7, 7), 60_000, False)


def test_a_fence_that_cannot_be_stored_leaves_the_transaction_to_be_kept() -> None:
    """The producer id and epoch that it was begun with are what its producer has stored where the decision is made."""
    transaction = prepared()
    fencing = transaction.initialize(60_000, None, 2_000)
    assert isinstance(fencing, Transition)
    transaction.stored(fencing, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    metadata = stored(transaction, keep(transaction))
    assert (metadata.producer_id, metadata.producer_epoch) == (7, 3)
    assert metadata.producer == (7, 5), "4 is the epoch of the fence, whose record may be in a log"
    again = stored(transaction, transaction.initialize(60_000, None, 2_000))
    assert (again.producer_epoch, again.producer_after) == (4, (7, 6))


@pytest.mark.parametrize("is_kept", [False, True], ids=["", "kept"])
def test_a_fenced_producer_that_continues_does_not_abort_what_its_successor_has_prepared(is_kept: bool) -> None:
    """KIP-360: it names its epoch. One of an ordinary transaction is aborted all the same, as with Apache Kafka."""
    transaction = prepared(timeout_ms=NO_TIMEOUT_MS)
    current = kept(transaction) if is_kept else ProducerIdAndEpoch(7, 3)
    stale = ProducerIdAndEpoch(7, current.producer_epoch - 1)
    assert outcome(transaction.initialize(NO_TIMEOUT_MS, stale, 2_000)) is FENCED
    assert outcome(transaction.initialize(NO_TIMEOUT_MS, current, 2_000)) is S.PREPARE_ABORT
    ordinary = prepared(timeout_ms=60_000)
    assert outcome(ordinary.initialize(60_000, ProducerIdAndEpoch(7, 2), 2_000)) is S.PREPARE_ABORT


@pytest.mark.parametrize("state", sorted(STORED_STATES - {S.ONGOING}), ids=lambda state: STATE_NAMES[state])
def test_without_an_open_transaction_there_is_nothing_to_keep(state: TransactionState) -> None:
    metadata = TransactionMetadata(7, 3, NO_TIMEOUT_MS, state, 1_000, 1_000)
    keeping, other = (
        Transaction("id", metadata).initialize(60_000, None, 2_000, keeps_transaction=keeps) for keeps in (True, False)
    )
    assert keeping == other


def test_the_longer_timeout_counts_for_what_is_kept() -> None:
    """What was prepared is not given up because a producer comes that was not configured for two phases."""
    for before, asked, expected in (
        (NO_TIMEOUT_MS, 60_000, NO_TIMEOUT_MS),
        (60_000, NO_TIMEOUT_MS, NO_TIMEOUT_MS),
        (60_000, 5_000, 60_000),
    ):
        transaction = prepared(timeout_ms=before)
        assert stored(transaction, keep(transaction, timeout_ms=asked)).timeout_ms == expected


def test_a_transaction_with_a_timeout_that_is_kept_is_aborted_by_it() -> None:
    transaction = prepared(timeout_ms=60_000)
    stored(transaction, keep(transaction, timeout_ms=60_000))
    aborting = transaction.time_out(1_000_000)
    assert aborting is not None and aborting.is_fence
    assert outcome(end(transaction, 7, 4)) is FENCED
    assert stored(transaction, aborting).producer_epoch == 4
    assert completed(transaction).producer == (7, 5)


def test_the_epochs_are_used_up_while_a_producer_crashes_again_and_again() -> None:
    transaction = prepared(LAST_GIVEN_EPOCH - 1)
    assert kept(transaction) == (7, LAST_GIVEN_EPOCH)
    assert isinstance(keep(transaction), NeedsProducerId)
    assert kept(transaction, 8) == (8, 0)
    assert kept(transaction) == (8, 1)
    assert outcome(end(transaction, 7, LAST_GIVEN_EPOCH)) is FENCED
    assert outcome(transaction.add_partitions(7, LAST_GIVEN_EPOCH - 1, [A], 3_000)) is FENCED
    ending = stored(transaction, end(transaction, 8, 1))
    assert (ending.producer_id, ending.producer_epoch) == (7, LAST_GIVEN_EPOCH), "the markers are of the transaction"
    assert outcome(end(transaction, 7, LAST_GIVEN_EPOCH)) is FENCED
    assert completed(transaction).producer == (8, 2)
    assert outcome(end(transaction, 8, 1)) is NONE
    assert outcome(end(transaction, 7, LAST_GIVEN_EPOCH)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_the_epochs_are_used_up_when_the_producer_that_has_kept_it_ends_it() -> None:
    transaction = prepared(LAST_GIVEN_EPOCH - 2)
    kept(transaction)
    assert kept(transaction) == (7, LAST_GIVEN_EPOCH)
    assert isinstance(end(transaction, 7, LAST_GIVEN_EPOCH), NeedsProducerId)
    ending = stored(transaction, end(transaction, 7, LAST_GIVEN_EPOCH, new_producer_id=8))
    assert (ending.producer_id, ending.producer_epoch) == (7, LAST_GIVEN_EPOCH - 1)
    assert ending.producer_after == (8, 0)
    assert outcome(end(transaction, 7, LAST_GIVEN_EPOCH)) is CONCURRENT, "sent again"
    assert outcome(end(transaction, 8, 0)) is CONCURRENT
    assert completed(transaction).producer == (8, 0)
    assert outcome(end(transaction, 7, LAST_GIVEN_EPOCH)) is NONE


def test_one_with_the_last_epoch_of_all_can_be_fenced_while_it_is_kept() -> None:
    transaction = prepared(LAST_GIVEN_EPOCH - 1)
    assert kept(transaction) == (7, LAST_GIVEN_EPOCH)
    for _ in range(3):  # the record cannot be stored
        fencing = transaction.initialize(60_000, None, 3_000)
        assert isinstance(fencing, Transition)
        transaction.stored(fencing, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    stored(transaction, transaction.initialize(60_000, None, 3_000))
    completed(transaction)
    assert isinstance(transaction.initialize(60_000, None, 5_000), NeedsProducerId)
    assert stored(transaction, transaction.initialize(60_000, None, 5_000, 8)).producer == (8, 0)


def test_an_open_transaction_never_expires() -> None:
    transaction = prepared()
    assert transaction.expire(10**15, 1) is None
    kept(transaction)
    assert transaction.expire(10**15, 1) is None


@pytest.mark.parametrize("level", [0, 1, 2])
def test_what_is_kept_survives_a_coordinator_at_every_level(level: int) -> None:
    """Version 0 of the record has no room for it."""
    transaction = prepared()
    transaction.metadata = replace(transaction.metadata, transaction_version=0)
    kept(transaction)
    value = transaction_record("id", transaction.metadata, level).value
    assert value is not None and read_value(value) == transaction.metadata
    stored(transaction, end(transaction, 7, 4))
    value = transaction_record("id", transaction.metadata, level).value
    assert value is not None
    loaded = Transaction("id", replace(read_value(value), last_producer_epoch=-1))
    assert outcome(end(loaded, 7, 4)) is CONCURRENT
    assert completed(loaded).producer == (7, 5)


# -- the coordinator --------------------------------------------------------------------------------------------------


ENABLED = {"transaction__two__phase__commit__enable": True}


async def begin(broker: Broker) -> ProducerIdAndEpoch:
    """A producer with an open transaction of `id`, which is prepared: the producer is gone."""
    answer = await broker.coordinator.initialize("id", -1, None, has_two_phases=True)
    assert answer.error is NONE, answer
    added = await broker.coordinator.add_partitions("id", answer.producer_id, answer.producer_epoch, [T0, T1], 2)
    assert added is NONE
    return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)


def open_time_max(broker: Broker) -> float:
    name = "kafka_server_transaction_coordinator_metrics_active_transaction_open_time_max "
    (line,) = (line for line in broker.exposed().splitlines() if line.startswith(name))
    return float(line.removeprefix(name))


@virtual
async def test_two_phases_are_refused_unless_the_broker_is_configured_for_them(clock: Clock) -> None:
    broker = await started(clock)
    answer = await broker.coordinator.initialize("id", 60_000, None, has_two_phases=True)
    assert answer == (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1, -1, (-1, -1))
    assert broker.coordinator.describe("id")[0] is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    # Keeping takes nothing from anybody: it is allowed.
    producer = await broker.begin("id", T0)
    answer = await broker.coordinator.initialize("id", 60_000, None, keeps_transaction=True)
    assert answer == (NONE, producer.producer_id, producer.producer_epoch + 1, producer)


@virtual
async def test_a_producer_that_names_its_epoch_keeps_nothing(clock: Clock) -> None:
    broker = await started(clock)
    producer = await broker.begin("id", T0)
    answer = await broker.coordinator.initialize("id", 60_000, producer, keeps_transaction=True)
    assert answer.error is ErrorCode.INVALID_REQUEST


@virtual
async def test_a_prepared_transaction_waits_for_its_decision(clock: Clock) -> None:
    broker = await started(clock, **ENABLED)
    producer = await begin(broker)
    error, metadata = broker.coordinator.describe("id")
    assert error is NONE and metadata is not None and metadata.timeout_ms == NO_TIMEOUT_MS
    month_s = 30 * 24 * 3600
    await clock.sleep(month_s)
    assert broker.state("id") is S.ONGOING
    assert month_s * 1000 <= open_time_max(broker) < month_s * 1000 + 1000
    answer = await broker.coordinator.initialize("id", -1, None, has_two_phases=True, keeps_transaction=True)
    assert answer == (NONE, producer.producer_id, 1, producer)
    assert [one.producer_id for one in broker.coordinator.list((), None, -1)[1]] == [producer.producer_id]
    ended = await broker.coordinator.end_with_next_epoch("id", producer.producer_id, 1, is_commit=True)
    assert ended == (NONE, producer.producer_id, 2)
    await broker.reaches("id", S.COMPLETE_COMMIT)
    assert broker.leaders.written == {T0: [(producer.producer_id, 1, True)], T1: [(producer.producer_id, 1, True)]}
    await broker.coordinator.abort_timed_out()
    assert open_time_max(broker) == 0


@virtual
async def test_a_coordinator_after_this_one_knows_who_has_kept_the_transaction(clock: Clock) -> None:
    broker = await started(clock, **ENABLED)
    producer = await begin(broker)
    for _ in range(2):
        await broker.coordinator.initialize("id", -1, None, has_two_phases=True, keeps_transaction=True)
    broker.coordinator.partitions.on_resignation(broker.index("id"), 1)
    other = Broker(clock, broker.log, broker.leaders, epoch=2, **ENABLED)
    await other.loaded()
    fenced = await other.coordinator.end_with_next_epoch("id", producer.producer_id, 1, is_commit=False)
    assert fenced.error is FENCED
    ended = await other.coordinator.end_with_next_epoch("id", producer.producer_id, 2, is_commit=True)
    assert ended == (NONE, producer.producer_id, 3)
    await other.reaches("id", S.COMPLETE_COMMIT)


@virtual
async def test_a_new_producer_id_is_given_when_the_epochs_are_used_up(clock: Clock) -> None:
    broker = await started(clock, **ENABLED)
    record = transaction_record("id", replace(prepared(LAST_GIVEN_EPOCH).metadata, partitions=frozenset({T0})))
    index = broker.index("id")
    await broker.log.append(index, 0, [record], required_acks=-1, timeout_ms=1)
    broker.coordinator.partitions.on_resignation(index, 1)
    broker.elect(index, 2)
    await broker.loaded()
    answer = await broker.coordinator.initialize("id", -1, None, has_two_phases=True, keeps_transaction=True)
    assert answer == (NONE, 1000, 0, (7, LAST_GIVEN_EPOCH))
    ended = await broker.coordinator.end_with_next_epoch("id", 1000, 0, is_commit=True)
    assert ended == (NONE, 1000, 1)
    await broker.reaches("id", S.COMPLETE_COMMIT)
    assert broker.leaders.written == {T0: [(7, LAST_GIVEN_EPOCH + 1, True)]}

"""The oracle of transactions refuses each thing that a broker may do wrong, and nothing that it may do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simulation.checker import Violation
from simulation.transaction_oracle import ProducerTransaction, TransactionOracle, TransactionOutcome

T0, T1 = ("t", 0), ("t", 1)


def one(oracle: TransactionOracle, *, producer_epoch: int = 1, group_offset: int | None = None) -> ProducerTransaction:
    """A transaction with a record in each of two partitions."""
    transaction = oracle.begin("id", producer_epoch)
    number = transaction.number
    oracle.acknowledged(transaction, T0, [oracle.name_of(transaction, 0)], 10 * number)
    oracle.acknowledged(transaction, T1, [oracle.name_of(transaction, 1)], 10 * number)
    transaction.group_offset = group_offset
    return transaction


def commit(oracle: TransactionOracle, transaction: ProducerTransaction) -> None:
    oracle.commit_asked(transaction)
    oracle.committed(transaction, "EndTxn")


def test_what_is_committed_is_whole_and_in_order() -> None:
    oracle = TransactionOracle()
    commit(oracle, one(oracle, group_offset=5))
    oracle.aborted(one(oracle, group_offset=6), "the producer aborts")
    commit(oracle, one(oracle, group_offset=7))
    oracle.delivered(T0, 0, "id.0/0")
    oracle.contents({T0: [(0, "id.0/0"), (20, "id.2/0")], T1: [(0, "id.0/1"), (20, "id.2/1")]}, {"id": 7})
    assert (oracle.committed_count, oracle.aborted_count) == (2, 1)


@pytest.mark.parametrize("is_seen", [True, False])
def test_what_is_ending_is_there_whole_or_not_at_all(is_seen: bool) -> None:
    oracle = TransactionOracle()
    oracle.commit_asked(one(oracle, group_offset=5))
    oracle.contents(
        {T0: [(0, "id.0/0")] if is_seen else [], T1: [(0, "id.0/1")] if is_seen else []}, {"id": 5 if is_seen else -1}
    )


def test_a_replaced_coordinator_may_tell_an_older_offset() -> None:
    oracle = TransactionOracle()
    first, second, third = (one(oracle, group_offset=number) for number in range(3))
    commit(oracle, first)
    commit(oracle, second)
    oracle.commit_asked(third)
    oracle.initialized("id", 2)
    oracle.group_offset("id", 2, 0, may_be_old=True)
    assert [each.outcome for each in (first, second, third)] == [
        TransactionOutcome.COMMITTED,
        TransactionOutcome.COMMITTED,
        TransactionOutcome.ENDING,
    ]


def test_a_later_producer_learns_from_its_group_which_transactions_have_committed() -> None:
    oracle = TransactionOracle()
    first, second, third = (one(oracle, group_offset=number) for number in range(3))
    commit(oracle, first)
    oracle.commit_asked(second)
    oracle.commit_asked(third)
    oracle.initialized("id", 2)
    oracle.group_offset("id", 2, 1)
    assert [two.outcome for two in (first, second, third)] == [
        TransactionOutcome.COMMITTED,
        TransactionOutcome.COMMITTED,
        TransactionOutcome.ABORTED,
    ]


def _dirty_read(oracle: TransactionOracle) -> None:
    one(oracle)
    oracle.delivered(T0, 0, "id.0/0")


def _aborted_read(oracle: TransactionOracle) -> None:
    oracle.aborted(one(oracle), "the producer aborts")
    oracle.delivered(T0, 0, "id.0/0")


def _read_then_aborted(oracle: TransactionOracle) -> None:
    transaction = one(oracle)
    oracle.commit_asked(transaction)
    oracle.delivered(T0, 0, "id.0/0")
    oracle.aborted(transaction, "fenced")


def _zombie_commits(oracle: TransactionOracle) -> None:
    transaction = one(oracle)
    oracle.initialized("id", 2)
    oracle.commit_asked(transaction)
    oracle.committed(transaction, "EndTxn")


def _zombie_begins_again(oracle: TransactionOracle) -> None:
    oracle.initialized("id", 2)
    commit(oracle, one(oracle))


def _half(oracle: TransactionOracle) -> None:
    oracle.commit_asked(one(oracle))
    oracle.contents({T0: [(0, "id.0/0")], T1: []}, {})


def _lost(oracle: TransactionOracle) -> None:
    commit(oracle, one(oracle))
    oracle.contents({T0: [], T1: []}, {})


def _twice(oracle: TransactionOracle) -> None:
    commit(oracle, one(oracle))
    oracle.contents({T0: [(0, "id.0/0"), (1, "id.0/0")], T1: [(0, "id.0/1")]}, {})


def _moved(oracle: TransactionOracle) -> None:
    commit(oracle, one(oracle))
    oracle.contents({T0: [(3, "id.0/0")], T1: [(0, "id.0/1")]}, {})


def _disordered(oracle: TransactionOracle) -> None:
    for _ in range(2):
        transaction = oracle.begin("id", 1)
        oracle.acknowledged(transaction, T0, [oracle.name_of(transaction, 0)], -1)
        commit(oracle, transaction)
    oracle.contents({T0: [(0, "id.1/0"), (1, "id.0/0")]}, {})


def _visible_after_all(oracle: TransactionOracle) -> None:
    oracle.aborted(one(oracle), "the producer aborts")
    oracle.contents({T0: [(0, "id.0/0")], T1: [(0, "id.0/1")]}, {})


def _offset_of_an_aborted_one(oracle: TransactionOracle) -> None:
    oracle.aborted(one(oracle, group_offset=5), "the producer aborts")
    oracle.contents({T0: [], T1: []}, {"id": 5})


def _offset_lost(oracle: TransactionOracle) -> None:
    commit(oracle, one(oracle, group_offset=5))
    oracle.initialized("id", 2)
    oracle.group_offset("id", 2, -1)


def _offset_that_nobody_committed_from_a_replaced_coordinator(oracle: TransactionOracle) -> None:
    one(oracle, group_offset=5)
    oracle.group_offset("id", 2, 9, may_be_old=True)


def _offset_of_an_aborted_one_from_a_replaced_coordinator(oracle: TransactionOracle) -> None:
    oracle.aborted(one(oracle, group_offset=5), "the producer aborts")
    oracle.group_offset("id", 2, 5, may_be_old=True)


def _offset_without_records(oracle: TransactionOracle) -> None:
    oracle.commit_asked(one(oracle, group_offset=5))
    oracle.contents({T0: [], T1: []}, {"id": 5})


def _offset_that_nobody_committed(oracle: TransactionOracle) -> None:
    one(oracle, group_offset=5)
    oracle.group_offset("id", 2, 9)


def _a_record_that_nobody_sent(oracle: TransactionOracle) -> None:
    oracle.delivered(T0, 0, "id.7/0")


@pytest.mark.parametrize(
    "wrong",
    [
        _dirty_read,
        _aborted_read,
        _read_then_aborted,
        _zombie_commits,
        _zombie_begins_again,
        _half,
        _lost,
        _twice,
        _moved,
        _disordered,
        _visible_after_all,
        _offset_of_an_aborted_one,
        _offset_lost,
        _offset_that_nobody_committed_from_a_replaced_coordinator,
        _offset_of_an_aborted_one_from_a_replaced_coordinator,
        _offset_without_records,
        _offset_that_nobody_committed,
        _a_record_that_nobody_sent,
    ],
)
def test_the_oracle_refuses(wrong: Callable[[TransactionOracle], None]) -> None:
    with pytest.raises(Violation):
        wrong(TransactionOracle())

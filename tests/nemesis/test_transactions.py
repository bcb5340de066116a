"""Histories of transactions, and what is found wrong with each."""

from __future__ import annotations

import pytest

from tests.nemesis.checker import FINAL
from tests.nemesis.history import Committed, Copied, Event, Polled, Transacted
from tests.nemesis.transactions import findings

Lists = dict[str, tuple[int, ...]]


def transacted(number: int, outcome: str, appends: Lists, reads: Lists | None = None) -> Transacted:
    pairs = tuple((key, value) for key, values in appends.items() for value in values)
    return Transacted(2.0, 1.0, "t", number, outcome, pairs, tuple((reads or {}).items()))


def last(reads: Lists) -> Transacted:
    return Transacted(9.0, 9.0, FINAL, 99, "ok", (), tuple(reads.items()))


def copies(values: tuple[str, ...], *, offset: int | None = 3) -> list[Event]:
    """Of three records of partition 0."""
    return [
        Polled(8.0, FINAL, 0, ((0, "p.0"), (1, "p.1"), (2, "p.2"))),
        Copied(9.0, 0, values),
        Committed(9.0, 0, offset),
    ]


def test_nothing_is_wrong_when_all_of_each_transaction_is_there_or_nothing() -> None:
    history: list[Event] = [
        transacted(1, "ok", {"a": (1, 2), "b": (1,)}),
        transacted(2, "fail", {"a": (3,), "b": (3,)}, {"a": (1, 2)}),
        transacted(3, "info", {"a": (4,), "b": (4,)}),
        transacted(4, "info", {"a": (5,), "b": (5,)}),
        last({"a": (1, 2, 4), "b": (4, 1)}),
        *copies(("p.0", "p.1", "p.2")),
    ]
    assert findings(history) == []


def test_a_history_without_transactions_has_nothing_wrong() -> None:
    assert findings([Polled(8.0, FINAL, 0, ((0, "p.0"),))]) == []


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([transacted(1, "fail", {"a": (1,)}), transacted(2, "ok", {}, {"a": (1,)})], "txn-G1a"),
        ([transacted(1, "fail", {"a": (1,)}), transacted(2, "fail", {"b": (1,)}, {"a": (1,)})], "txn-G1a"),
        (
            [transacted(1, "ok", {"a": (1,)}, {"b": (2,)}), transacted(2, "ok", {"b": (2,)}, {"a": (1,)})],
            "txn-G1c",
        ),
        (
            [transacted(1, "ok", {"a": (1, 2)}), transacted(2, "ok", {}, {"a": (2,)}), last({"a": (1, 2)})],
            "txn-incompatible-order",
        ),
        ([transacted(1, "ok", {"a": (1,)}), last({"a": (1, 1)})], "txn-duplicate-elements"),
        ([last({"a": (1,)})], "txn-unknown-value"),
        ([transacted(1, "ok", {"a": (1,), "b": (1,)}), last({"a": (1,)})], "txn-lost-write"),
        ([transacted(1, "info", {"a": (1,), "b": (1,)}), last({"a": (1,)})], "txn-partial"),
        (copies(("p.0", "p.2")), "copy-lost"),
        (copies(("p.0", "p.1", "p.1", "p.2")), "copy-duplicate"),
        (copies(("p.0", "p.1", "p.2", "q.0")), "copy-unknown"),
        (copies(("p.0", "p.2", "p.1")), "copy-order"),
        (copies(("p.0", "p.1", "p.2"), offset=2), "copy-offset"),
        (copies(("p.0", "p.1", "p.2"), offset=None), "copy-offset"),
    ],
)
def test_each_class_is_found(history: list[Event], expected: str) -> None:
    assert [one.kind for one in findings(history)] == [expected]


def test_a_value_of_an_aborted_transaction_is_told_of_once() -> None:
    history = [transacted(1, "fail", {"a": (1,)}), *(transacted(number, "ok", {}, {"a": (1,)}) for number in (2, 3))]
    assert [str(one) for one in findings(history)] == ["txn-G1a: T2 read a=1 of T1, which failed"]

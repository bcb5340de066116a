"""The checker of transactions finds each planted anomaly with its transactions, and nothing where nothing is wrong."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.nemesis.elle import (
    G0,
    G1A,
    G1B,
    G1C,
    Append,
    Outcome,
    Read,
    Transaction,
    findings,
)

KEYS = ("x", "y", "z")


def ok(number: int, *operations: Append | Read) -> Transaction:
    return Transaction(number, Outcome.OK, operations)


def fail(number: int, *operations: Append | Read) -> Transaction:
    return Transaction(number, Outcome.FAIL, operations)


def info(number: int, *operations: Append | Read) -> Transaction:
    return Transaction(number, Outcome.INFO, operations)


def found(*history: Transaction, has_write_order: bool = True) -> list[str]:
    return [str(one) for one in findings(history, has_write_order=has_write_order)]


def test_nothing_is_wrong_with_transactions_one_after_the_other() -> None:
    assert found(ok(1, Append("x", 1)), ok(2, Read("x", (1,)), Append("x", 2)), ok(3, Read("x", (1, 2)))) == []


def test_interleaved_writes_are_g0() -> None:
    history = ok(1, Append("x", 1), Append("x", 3)), ok(2, Append("x", 2)), ok(3, Read("x", (1, 2, 3)))
    assert found(*history) == ["G0: T1 -ww x=1-> T2 -ww x=2-> T1"]
    assert found(*history, has_write_order=False) == []


def test_writes_in_another_order_in_each_list_are_g0() -> None:
    assert found(
        ok(1, Append("x", 1), Append("y", 1)),
        ok(2, Append("x", 2), Append("y", 2)),
        ok(3, Read("x", (1, 2)), Read("y", (2, 1))),
    ) == ["G0: T1 -ww x=1-> T2 -ww y=2-> T1"]


def test_a_read_of_a_failed_transaction_is_g1a() -> None:
    assert found(fail(1, Append("x", 1)), ok(2, Read("x", (1,)))) == ["G1a: T2 read x=1 of T1, which failed"]


def test_a_read_of_a_transaction_with_an_unknown_outcome_is_no_anomaly() -> None:
    assert found(info(1, Append("x", 1)), ok(2, Read("x", (1,)))) == []


def test_what_a_transaction_read_that_did_not_commit_counts_for_nothing() -> None:
    history = fail(1, Append("x", 1)), fail(2, Read("x", (1,))), info(3, Read("x", (1, 7)))
    assert found(*history) == []


def test_a_read_in_the_middle_of_a_transaction_is_g1b() -> None:
    assert found(ok(1, Append("x", 1), Append("x", 2)), ok(2, Read("x", (1,)))) == [
        "G1b: T2 read x up to 1 of T1, which went on to 2"
    ]


def test_a_transaction_may_read_its_own_writes_before_it_goes_on() -> None:
    assert found(ok(1, Append("x", 1), Read("x", (1,)), Append("x", 2))) == []


def test_transactions_that_see_each_other_are_g1c() -> None:
    history = ok(1, Append("x", 1), Read("y", (2,))), ok(2, Append("y", 2), Read("x", (1,)))
    assert found(*history) == found(*history, has_write_order=False) == ["G1c: T1 -wr x=1-> T2 -wr y=2-> T1"]


def test_a_transaction_that_writes_before_one_that_it_has_read_is_g1c_where_writes_are_ordered() -> None:
    history = (
        ok(1, Append("x", 1), Read("y", (1,))),
        ok(2, Append("x", 2), Append("y", 1)),
        ok(3, Read("x", (1, 2))),
    )
    assert found(*history) == ["G1c: T2 -wr y=1-> T1 -ww x=1-> T2"]
    assert found(*history, has_write_order=False) == []


def test_a_cycle_through_a_transaction_with_an_unknown_outcome_that_was_read_is_found() -> None:
    history = info(1, Append("x", 1), Append("x", 3)), ok(2, Append("x", 2)), ok(3, Read("x", (1, 2, 3)))
    assert found(*history) == ["G0: T1 -ww x=1-> T2 -ww x=2-> T1"]


def test_a_long_cycle_is_found_whole() -> None:
    size = 1000
    history = [ok(number, Append(f"x{number}", 1), Read(f"x{(number + 1) % size}", (1,))) for number in range(size)]
    (one,) = found(*history)
    assert one.startswith("G1c: ")
    assert one.count("-wr") == size


def test_each_component_gives_one_shortest_cycle() -> None:
    history = (
        ok(1, Append("a", 1), Read("b", (1,)), Read("c", (1,))),
        ok(2, Append("b", 1), Read("a", (1,))),
        ok(3, Append("c", 1), Read("b", (1,))),
        ok(4, Append("d", 1), Read("e", (1,))),
        ok(5, Append("e", 1), Read("d", (1,))),
    )
    assert sorted(found(*history)) == ["G1c: T1 -wr a=1-> T2 -wr b=1-> T1", "G1c: T4 -wr d=1-> T5 -wr e=1-> T4"]


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        (
            [ok(1, Append("x", 1), Append("x", 2)), ok(2, Read("x", (1, 2))), ok(3, Read("x", (2,)))],
            "incompatible-order: T3 read x as [2], another as [1, 2]",
        ),
        ([ok(1, Append("x", 1)), ok(2, Read("x", (1, 1)))], "duplicate-elements: T2 read x with [1] more than once"),
        ([ok(1, Read("x", (9,)))], "unknown-value: T1 read x=9, which nobody appended"),
        (
            [ok(1, Append("x", 1)), ok(2, Read("x", (1,)), Read("x", ()))],
            "internal: T2 read x as [], expected [1]",
        ),
        ([ok(1, Append("x", 1), Read("x", ()))], "internal: T1 read x as [], expected to end with [1]"),
    ],
)
def test_reads_that_no_order_explains_are_found(history: list[Transaction], expected: str) -> None:
    assert found(*history) == [expected]


@pytest.mark.parametrize(
    "history",
    [
        [ok(1, Append("x", 1)), ok(1)],
        [ok(1, Append("x", 1)), ok(2, Append("x", 1))],
        [ok(1, Append("x", 1), Append("x", 2), Append("x", 1))],
    ],
)
def test_a_history_whose_values_do_not_name_their_writer_is_refused(history: list[Transaction]) -> None:
    with pytest.raises(ValueError, match="T1"):
        findings(history)


# Properties


@st.composite
def serial_histories(draw: st.DrawFn) -> list[Transaction]:
    """Transactions one after the other on lists; failed ones leave nothing, unknown ones may."""
    lists: dict[str, tuple[int, ...]] = defaultdict(tuple)
    history = []
    value = 0
    for number in range(draw(st.integers(1, 12))):
        outcome = draw(st.sampled_from(Outcome))
        state = dict(lists)
        operations: list[Append | Read] = []
        for _ in range(draw(st.integers(1, 5))):
            key = draw(st.sampled_from(KEYS))
            if draw(st.booleans()):
                value += 1
                state[key] = (*state.get(key, ()), value)
                operations.append(Append(key, value))
            else:
                operations.append(Read(key, state.get(key, ())))
        history.append(Transaction(number, outcome, tuple(operations)))
        if outcome is Outcome.OK or (outcome is Outcome.INFO and draw(st.booleans())):
            lists.update(state)
    return history


@given(serial_histories(), st.randoms(use_true_random=False))
def test_serial_histories_have_no_anomaly_in_whatever_order_they_are_told(
    history: list[Transaction], draw: object
) -> None:
    draw.shuffle(history)  # type: ignore[attr-defined]
    assert findings(history) == []


@given(serial_histories(), st.data())
def test_a_dirty_read_planted_anywhere_is_found(history: list[Transaction], data: st.DataObject) -> None:
    number = len(history)
    values = data.draw(st.lists(st.integers(10_000, 10_009), min_size=1, max_size=3, unique=True))
    key = "planted"
    planted = [fail(number, *(Append(key, value) for value in values)), ok(number + 1, Read(key, tuple(values)))]
    for one in planted:
        history.insert(data.draw(st.integers(0, len(history))), one)
    assert {one.kind for one in findings(history)} == {G1A}


@given(serial_histories(), st.integers(2, 6), st.booleans(), st.data())
def test_a_cycle_planted_anywhere_is_found(
    history: list[Transaction], size: int, has_reads: bool, data: st.DataObject
) -> None:
    """Transaction i writes list i behind transaction i-1, or reads what that wrote."""
    first = len(history)
    planted = []
    for number in range(size):
        behind = (number + 1) % size
        if has_reads:
            planted.append(ok(first + number, Append(f"c{number}", 1), Read(f"c{behind}", (1,))))
        else:
            planted.append(ok(first + number, Append(f"c{number}", 1), Append(f"c{behind}", 2)))
            planted.append(ok(first + size + number, Read(f"c{number}", (1, 2))))
    for one in planted:
        history.insert(data.draw(st.integers(0, len(history))), one)
    kinds = [one.kind for one in findings(history)]
    assert kinds == [G1C if has_reads else G0]


@given(st.data())
def test_a_log_of_interleaved_transactions_read_below_its_last_stable_offset_has_no_anomaly_but_of_write_order(
    data: st.DataObject,
) -> None:
    """What a partitioned log with read_committed consumers does: the isolation that Apache Kafka promises."""
    logs: dict[str, list[tuple[int, int]]] = {key: [] for key in KEYS}
    outcomes: dict[int, Outcome] = {}
    operations: dict[int, list[Append | Read]] = {}
    readers = []
    value = 0

    def visible(key: str) -> tuple[int, ...]:
        values: list[int] = []
        for writer, one in logs[key]:
            if writer not in outcomes:
                break  # the last stable offset
            if outcomes[writer] is Outcome.OK:
                values.append(one)
        return tuple(values)

    for _ in range(data.draw(st.integers(1, 40))):
        kind = data.draw(st.sampled_from(("append", "append", "append", "end", "read")))
        number = data.draw(st.integers(0, 9))
        key = data.draw(st.sampled_from(KEYS))
        if kind == "read":
            readers.append(ok(1000 + len(readers), Read(key, visible(key))))
        elif number not in outcomes:
            if kind == "end":
                outcomes[number] = data.draw(st.sampled_from((Outcome.OK, Outcome.FAIL)))
            else:
                value += 1
                logs[key].append((number, value))
                operations.setdefault(number, []).append(Append(key, value))
    history = [Transaction(one, outcomes.get(one, Outcome.INFO), tuple(done)) for one, done in operations.items()]
    kinds = {one.kind for one in findings([*history, *readers], has_write_order=False)}
    assert kinds <= {G1B}, "a reader may stop where the last stable offset did"

"""The report at the end of a run, and the drawn order of modules."""

from __future__ import annotations

import doctest
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests import run_report


def test_the_examples_hold() -> None:
    assert doctest.testmod(run_report).failed == 0


def test_a_drawn_order_moves_modules_and_keeps_the_order_inside_of_them() -> None:
    items: list[Any] = [
        SimpleNamespace(path=Path(f"test_{module}.py"), name=f"{module}{number}")
        for module in "abcdefgh"
        for number in range(3)
    ]
    drawn = [item.name for item in run_report.in_drawn_order(items, 1)]
    assert drawn == [item.name for item in run_report.in_drawn_order(items, 1)]
    assert sorted(drawn) == [item.name for item in items] and drawn != sorted(drawn)
    assert all(
        drawn[place : place + 3] == [f"{drawn[place][0]}{number}" for number in range(3)] for place in range(0, 24, 3)
    )


def test_every_folder_of_tests_has_a_budget() -> None:
    tests = Path(__file__).parents[1]
    folders = {f"tests/{path.relative_to(tests).parts[0]}" for path in tests.rglob("*/test_*.py")}
    assert folders | {"tests"} == set(run_report.BUDGETS_S)

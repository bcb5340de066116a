"""What a run of the tests says at its end: the time of each folder beside its budget, and the twenty slowest tests.

The times are those of setup, call and teardown, added up over the processes of the run. A budget is what the folder
may take on an idle machine of two cores for CI to end in 40 minutes; nothing fails when it is exceeded, because another
machine is slower. It shows which folder to look at.

`--module-order SEED` runs the modules in an order that is drawn from the seed: a test that leaves something behind for
another is found so (`make test-all ORDER=7`).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import PurePosixPath

import pytest

BUDGETS_S: Mapping[str, int] = {
    "tests": 10,
    "tests/bench": 120,
    "tests/beside": 240,
    "tests/broker": 900,
    "tests/command": 60,
    "tests/compatibility": 120,
    "tests/contract": 60,
    "tests/demo": 20,
    "tests/docs": 60,
    "tests/documents": 20,
    "tests/e2e": 30,
    "tests/fuzz": 30,
    "tests/integration": 900,
    "tests/kills": 60,
    "tests/mixed": 120,
    "tests/nemesis": 120,
    "tests/operator": 600,
    "tests/pipeline": 900,
    "tests/scenarios": 300,
    "tests/scripts": 20,
    "tests/simulation": 300,
}
"""Seconds by folder, of `make test-all`: 27 minutes with three processes."""

SLOWEST = 20


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--module-order",
        type=int,
        metavar="SEED",
        help="run the modules in an order drawn from SEED, not by their names",
    )


def in_drawn_order(items: list[pytest.Item], seed: int) -> list[pytest.Item]:
    """The items with their modules in another order; those of a module stay together and in their order."""
    modules = [list(group) for _, group in groupby(items, lambda item: item.path)]
    random.Random(seed).shuffle(modules)
    return [item for module in modules for item in module]


def folder_times(durations: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Seconds by folder of tests/.

    >>> folder_times([("tests/broker/a/test_b.py::test_c", 1.5), ("tests/broker/test_d.py::test_e", 2.0)])
    {'tests/broker': 3.5}
    """
    found: defaultdict[str, float] = defaultdict(float)
    for node, seconds in durations:
        parts = PurePosixPath(node.partition("::")[0]).parts
        found["/".join(parts[: min(2, len(parts) - 1)])] += seconds
    return dict(sorted(found.items()))


def folder_lines(times: Mapping[str, float], budgets: Mapping[str, int]) -> list[str]:
    """A line for each folder.

    >>> folder_lines({"tests/broker": 3.5}, {"tests/broker": 3})
    ['     4 s of    3 s  tests/broker  over its budget']
    """
    lines = []
    for folder, seconds in times.items():
        budget = budgets.get(folder)
        of = "has no budget" if budget is None else f"of {budget:4d} s"
        over = "  over its budget" if budget is not None and seconds > budget else ""
        lines.append(f"{seconds:6.0f} s {of}  {folder}{over}")
    return lines


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the report after a run of more than a few modules."""
    reports = [
        report
        for outcome in terminalreporter.stats.values()
        for report in outcome
        if isinstance(report, pytest.TestReport)
    ]
    durations = [(report.nodeid, report.duration) for report in reports]
    if len({node.partition("::")[0] for node, _ in durations}) <= SLOWEST:
        return
    terminalreporter.section("time by folder", sep="=")
    for line in folder_lines(folder_times(durations), BUDGETS_S):
        terminalreporter.write_line(line)
    terminalreporter.section(f"the {SLOWEST} slowest tests", sep="=")
    whole: defaultdict[str, float] = defaultdict(float)
    for node, seconds in durations:
        whole[node] += seconds
    for node, seconds in sorted(whole.items(), key=lambda one: -one[1])[:SLOWEST]:
        terminalreporter.write_line(f"{seconds:6.1f} s  {node}")

"""The summary of many runs."""

from __future__ import annotations

from simulation.report import summary_lines
from simulation.runner import Outcome


def test_the_summary_adds_up_what_a_scenario_counts() -> None:
    outcomes = [
        Outcome("consumer_groups_fleet", seed, "", tallies={"commits of members": 600, "members fenced": seed})
        for seed in (1, 2)
    ]
    line, _ = summary_lines([*outcomes, Outcome("another", 1, "")], 60.0)
    assert line.endswith("0 delivered, 1,200 commits of members, 3 members fenced")

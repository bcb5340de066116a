"""A failover that takes longer than its goal is said in the report, and is no finding."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tests.nemesis.availability import failovers, goal_s, outages
from tests.nemesis.campaign import Outcome, Plan
from tests.nemesis.faults import LEADER_LOSSES
from tests.nemesis.history import Acknowledged, Event, FaultBegan, FaultEnded
from tests.nemesis.nodes import System
from tests.nemesis.report import as_json, show


def losses(*outs: tuple[str, tuple[int, ...], float]) -> list[Event]:
    """One fault after another, each with what the target led, and how long partition 1 is out; 0 is never out."""
    events: list[Event] = []
    at, count = 100.0, 0
    for name, led, seconds in outs:
        events.append(Acknowledged(at, "p", 1, f"p.{count}", None))
        events.append(FaultBegan(at, name, "b1", led))
        events.append(Acknowledged(at + seconds, "p", 1, f"p.{count + 1}", None))
        steps = int((seconds + 2) / 0.5)
        events += [Acknowledged(at + 0.5 * step, "p", 0, f"q.{count}.{step}", None) for step in range(steps)]
        events.append(FaultEnded(at + seconds + 0.5, name))
        events.append(Acknowledged(at + seconds + 1, "p", 1, f"p.{count + 2}", None))
        events.append(Acknowledged(at + seconds + 1, "p", 0, f"q.{count + 2}", None))
        at, count = at + seconds + 10, count + 3
    return events


def outcome_of(*outs: tuple[str, tuple[int, ...], float]) -> Outcome:
    found = outages(losses(*outs))
    return Outcome(Plan(System.OURS, 6000, 1, 1, LEADER_LOSSES), outages=found)


def shown(outcome: Outcome) -> str:
    text = io.StringIO()
    show(as_json(outcome), None, Console(file=text, width=120))
    return text.getvalue()


def test_a_failover_longer_than_the_session_and_two_seconds_misses_the_goal() -> None:
    outcome = outcome_of(("kill-broker", (0, 1), 7.9), ("kill-broker", (0, 1), 8.4))
    assert goal_s(6000) == 8.0
    assert [round(one.seconds, 1) for one in failovers(outcome.outages, LEADER_LOSSES)] == [7.9, 8.4]
    assert as_json(outcome)["goals_missed"] == [
        "goal missed: kill-broker of b1 at 117.900: partition 1 took no records for 8.40 s, the goal is 8 s"
    ]
    assert outcome.is_good and not outcome.findings
    assert "goal missed: kill-broker of b1" in shown(outcome)


@pytest.mark.parametrize(
    "out",
    [("kill-broker", (0, 1), 8.0), ("kill-broker", (0,), 9.0), ("mute-broker", (0, 1), 13.0)],
    ids=["within the goal", "of a partition that it did not lead", "of a leader that was not lost"],
)
def test_other_outages_miss_no_goal(out: tuple[str, tuple[int, ...], float]) -> None:
    outcome = outcome_of(out)
    assert not outcome.missed
    assert "goal missed" not in shown(outcome)

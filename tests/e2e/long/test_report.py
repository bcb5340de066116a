"""What makes a long run a good one."""

from __future__ import annotations

from dataclasses import replace

from e2e.long.report import ScenarioResult, Whole, report
from e2e.long.scenario import Findings, FleetScenario
from e2e.long.traffic import Window
from tests.nemesis.history import Acknowledged, Event, Indeterminate

SCENARIO = FleetScenario("drain", "a drained node", lambda stage: None)
GOOD = Whole([], [], {"acknowledged": 2})
HISTORY: list[Event] = [Acknowledged(1.0, "p0", 0, "p0.0", 0), Acknowledged(2.0, "p0", 0, "p0.1", 1)]


def _result(scenario: FleetScenario = SCENARIO, *faults: str) -> ScenarioResult:
    return ScenarioResult(scenario, 3.0, Findings({"kills": 2}, [Window("all", 0.0, 3.0)], list(faults)))


def test_a_run_without_faults_is_good_and_has_the_figures_of_each_window() -> None:
    found = report([_result()], GOOD, HISTORY)
    assert found["good"] and found["scenarios"][0]["figures"] == {"kills": 2}
    assert found["scenarios"][0]["windows"]["all"]["acknowledged"] == 2


def test_a_fault_a_finding_and_an_error_make_a_run_bad() -> None:
    assert not report([_result(SCENARIO, "two racks were down")], GOOD, HISTORY)["good"]
    assert not report([_result()], replace(GOOD, findings=["lost-write: p0.0"]), HISTORY)["good"]
    assert not report([_result()], replace(GOOD, errors=["the copier ended"]), HISTORY)["good"]


def test_a_failed_send_is_a_fault_only_where_the_scenario_says_so() -> None:
    events = [*HISTORY, Indeterminate(2.5, "p0", "p0.2", "timed out")]
    assert report([_result()], GOOD, events)["good"]
    strict = report([_result(replace(SCENARIO, no_send_fails=True))], GOOD, events)
    assert not strict["good"] and strict["scenarios"][0]["faults"] == ["1 sends have failed"]

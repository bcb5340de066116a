"""One seed is one run: in any process, whatever its hash seed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simulation.__main__ import app, regressions
from simulation.runner import run_seed
from simulation.scenarios import NAMES

OF_EVERY_RUN = ("log", "fleet", "transactional_fleet", "recreation")
SCENARIOS = [pytest.param(name, marks=[] if name in OF_EVERY_RUN else [pytest.mark.long]) for name in NAMES]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_one_seed_in_two_fresh_processes_gives_one_trace_hash(scenario: str) -> None:
    result = CliRunner().invoke(app, ["determinism", "--seed", "5", "--scenario", scenario])
    assert result.exit_code == 0, result.output
    assert " = " in result.output.replace("\n", " ")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_seed_run_twice_in_one_process_gives_one_trace_hash_and_another_seed_another(scenario: str) -> None:
    first, again, other = (run_seed(scenario, seed) for seed in (6, 6, 7))
    assert first.error == again.error == other.error == ""
    assert first.trace_hash == again.trace_hash != other.trace_hash


@pytest.mark.long
def test_the_traces_of_two_checkouts_are_compared_seed_by_seed(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    options = ["--seeds", "2", "--first-seed", "8", "--scenario", "log", "--jobs", "1"]
    assert CliRunner().invoke(app, ["traces", str(first), *options]).exit_code == 0
    lines = first.read_text().splitlines()
    assert [line.split()[:2] for line in lines[-2:]] == [["log", "8"], ["log", "9"]]
    assert lines[-1].split()[2] == run_seed("log", 9).trace_hash
    again = CliRunner().invoke(app, ["traces", str(second), *options, "--against", str(first)])
    assert (again.exit_code, first.read_text()) == (0, second.read_text())
    first.write_text("\n".join([*lines[:-1], "log 9 another"]) + "\n")
    other = CliRunner().invoke(app, ["traces", str(second), *options, "--against", str(first)])
    assert other.exit_code == 1 and "≠ log seed 9" in other.output and f"1 of {len(lines)}" in other.output
    first.write_text("another file\n")
    refused = CliRunner().invoke(app, ["traces", str(tmp_path / "third"), *options, "--against", str(first)])
    assert refused.exit_code == 2 and not (tmp_path / "third").exists()


@pytest.mark.parametrize("computes", [True, False], ids=["hangs", "waits for the processor"])
def test_a_run_hangs_by_what_it_computes_and_not_by_what_others_do(
    monkeypatch: pytest.MonkeyPatch, computes: bool
) -> None:
    from simulation import runner

    async def main(world: object) -> None:
        while computes:
            pass
        time.sleep(1.1)  # noqa: ASYNC251 - as long as this machine serves others

    monkeypatch.setattr(runner, "scenario", lambda name: main)
    monkeypatch.setattr(runner, "CPU_LIMIT_S", 1.0)
    error = run_seed("log", 1).error
    assert ("the run hangs" in error) if computes else not error


def test_the_regression_list_names_known_scenarios() -> None:
    assert regressions()
    assert {scenario for scenario, _ in regressions()} <= set(NAMES)


def test_a_failing_seed_is_replayed_by_the_printed_command(monkeypatch: pytest.MonkeyPatch) -> None:
    from simulation import __main__ as program
    from simulation import runner
    from simulation.checker import Violation

    async def fail(world: object) -> None:
        raise Violation("a promise was broken")

    monkeypatch.setattr(runner, "scenario", lambda name: fail)
    monkeypatch.setattr(program, "regressions", list)
    options = ["run", "--scenario", "log", "--seeds", "3", "--first-seed", "41", "--jobs", "1"]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 1
    assert "a promise was broken" in result.output
    assert "-m simulation run --scenario log --seed 41" in result.output

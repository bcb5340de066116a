"""`python -m e2e.long`: runs the scenarios in the cluster that is up, from where it can be reached."""

from __future__ import annotations

import json
import os
import random
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from e2e.kubernetes_api import Kubernetes
from e2e.long import deletion, hardware, load, pools, quorum, report, rolls, scaling, topics
from e2e.long.fleet import NAME, OperatedFleet
from e2e.long.load import FleetLoad, LoadEnded
from e2e.long.report import ScenarioResult
from e2e.long.scenario import Findings, FleetScenario, ScenarioStage
from e2e.machine import CommandFailed, NotInTime
from e2e.providers import cluster_from_json
from tests.nemesis.history import read

SCENARIOS = (
    rolls.ROLL_SIX,
    rolls.OPERATOR_KILLED,
    rolls.IMAGE_ROLLED_BACK,
    topics.TOPICS_IN_A_ROLL,
    quorum.QUORUM_LOST,
    hardware.NODE_DRAINED,
    hardware.DISK_LOST,
    hardware.NODE_LOST,
    deletion.NAMESPACE_DELETED,
    quorum.ENSEMBLE,
    scaling.SCALE,
    pools.POOLS,
)
CLIENT_NODE = "n1"
"""Where the load runs; no scenario takes this node away."""


def main(
    handle: Annotated[Path, typer.Option(help="the cluster that is up")],
    only: Annotated[str, typer.Option(help="names of scenarios, separated by commas")] = "",
    seed: Annotated[int, typer.Option(help="of what is drawn at random")] = 1,
    out: Annotated[Path, typer.Option(help="a folder for the figures and the history")] = Path("build/e2e/long"),
) -> None:
    """Runs scenarios under load, then accounts for every record."""
    console = Console(highlight=False)
    chosen = chosen_of(only)
    cluster = cluster_from_json(json.loads(handle.read_text()))
    kubernetes = Kubernetes(cluster.kubeconfig, cluster.kubectl)
    fleet = OperatedFleet(kubernetes, cluster)
    progress = Lines(console)
    progress(f"a fleet of {chosen[0].size}")
    fleet.install(chosen[0].size)
    results: list[ScenarioResult] = []
    history = out / "history.jsonl"
    progress("the load begins")
    with load.running_load(kubernetes, cluster, NAME, CLIENT_NODE) as running:
        for scenario in chosen:
            results.append(run(scenario, fleet, running, progress, seed))
        progress("everything is read and copied")
        try:
            last = running.stop(history)
        except (CommandFailed, NotInTime, LoadEnded) as error:
            last = {"errors": [f"the load did not end in order: {error}"]}
    progress("the history is checked")
    events = list(read(history))
    whole = report.Whole(
        [str(finding) for finding in load.findings(events)],
        [str(error) for error in last.get("errors", [])],
        {name: value for name, value in last.items() if isinstance(value, int)},
    )
    found = report.report(results, whole, events)
    out.mkdir(parents=True, exist_ok=True)
    (out / "report.json").write_text(json.dumps(found, indent=1) + "\n")
    report.show(found, console)
    console.print(f"Written: {out / 'report.json'}, {history}")
    raise typer.Exit(0 if found["good"] else 1)


def chosen_of(only: str) -> list[FleetScenario]:
    """The scenarios that `only` names, all when it is empty. Raises typer.BadParameter.

    >>> [scenario.name for scenario in chosen_of("roll-six")]
    ['roll-six']
    """
    known = {scenario.name: scenario for scenario in SCENARIOS}
    wanted = [name for name in only.split(",") if name] or list(known)
    if unknown := [name for name in wanted if name not in known]:
        raise typer.BadParameter(f"{', '.join(unknown)}: the scenarios are {', '.join(known)}")
    return [known[name] for name in wanted]


def run(
    scenario: FleetScenario, fleet: OperatedFleet, running: FleetLoad, progress: Lines, seed: int
) -> ScenarioResult:
    """One scenario. What it raises is a fault of it; the next one begins all the same."""
    found = Findings()
    began, at, average = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds"), os.getloadavg()[0]
    say = progress.of(scenario.name)
    try:
        say(f"begins with {scenario.size}")
        fleet.resize(scenario.size)
        running.until_more()
        say(scenario.summary)
        stage = ScenarioStage(fleet, running, say, random.Random(f"{seed} {scenario.name}"), found)
        scenario.run(stage)
        running.until_more()
    except (CommandFailed, NotInTime, LoadEnded) as error:
        found.faults.append(str(error))
    except Exception:  # an error of the scenario itself: the report says where
        found.faults.append(traceback.format_exc())
    for fault in found.faults:
        say(f"wrong: {fault}")
    return ScenarioResult(scenario, round(time.monotonic() - began, 1), found, at, round(average, 1))


class Lines:
    """A line for each thing that begins, with the time since the start."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()

    def __call__(self, what: str) -> None:
        self._console.print(f"{time.monotonic() - self._began:7.1f} s  {what}", soft_wrap=True, markup=False)

    def of(self, name: str) -> Callable[[str], None]:
        return lambda what: self(f"{name}: {what}")


if __name__ == "__main__":
    typer.run(main)

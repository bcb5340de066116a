"""`python -m tests.nemesis`: see the package."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tests.nemesis import report as reports
from tests.nemesis.campaign import Campaign, Plan, clean
from tests.nemesis.faults import FAULTS
from tests.nemesis.network import enter, is_inside, skip_reason
from tests.nemesis.nodes import System

_WIDTH = 120


def main(
    minutes: Annotated[float, typer.Option(help="for how long faults are injected", min=0)] = 10,
    seed: Annotated[int, typer.Option(help="draws the order of the faults and their targets")] = 1,
    system: Annotated[System, typer.Option(help="whose brokers")] = System.OURS,
    session_timeout_ms: Annotated[int, typer.Option(help="zookeeper.session.timeout.ms", min=2000, max=20000)] = 6000,
    faults: Annotated[str, typer.Option(help="some of the faults, with commas; all when left out")] = "",
    count: Annotated[int | None, typer.Option(help="exactly so many faults, however long they take", min=0)] = None,
    java: Annotated[bool, typer.Option(help="Java's clients as well as librdkafka's")] = True,
    transactions: Annotated[bool, typer.Option(help="transactional clients, which are killed all the time")] = True,
    hold_goals: Annotated[bool, typer.Option("--hold-goals", help="status 1 as well when a goal is missed")] = False,
    out: Annotated[Path | None, typer.Option(help="where the history, the logs and the report are kept")] = None,
    against: Annotated[Path | None, typer.Option(help="report.json of another run, shown beside")] = None,
) -> None:
    """Breaks a real fleet under load; ends with status 1 when anything was lost, doubled, changed, skipped, unread."""
    reason = skip_reason()
    if reason:
        raise typer.BadParameter(reason)
    names = [name.strip() for name in faults.split(",") if name.strip()] or list(FAULTS)
    unknown = [name for name in names if name not in FAULTS]
    if unknown:
        raise typer.BadParameter(f"no fault is called {', '.join(unknown)}; there are {', '.join(FAULTS)}")
    if not is_inside():
        raise typer.Exit(enter(sys.argv[1:]))
    directory = out or Path(tempfile.mkdtemp(prefix="ottla-nemesis-"))
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise typer.BadParameter(f"{directory} is not empty")
    plan = Plan(system, session_timeout_ms, minutes, seed, names, count, java, transactions)
    outcome = Campaign(plan, directory.resolve(), typer.echo).run()
    path = reports.write(outcome, directory)
    other = None if against is None else json.loads(against.read_text())
    reports.show(json.loads(path.read_text()), other, Console(width=_WIDTH))
    if not outcome.is_good or (hold_goals and outcome.missed):
        typer.echo(f"history, logs and report in {directory}", err=True)
        raise typer.Exit(1)
    if out is None:
        shutil.rmtree(directory)
    else:
        clean(directory)


if __name__ == "__main__":
    typer.run(main)

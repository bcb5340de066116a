"""`python -m simulation`: runs seeds, replays one, and proves that a seed is one run.

    run [--seeds N | --minutes M | --seed S] [--scenario log|single|replicated|transactions|moves|…] [--jobs J]
    determinism [--seed S] [--scenario …]

Ends with status 1 after a failing seed, and prints the one command that replays it.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from simulation.runner import Outcome, quiet_logs, run_seed, run_task
from simulation.scenarios import NAMES

REGRESSIONS = Path(__file__).with_name("regressions.txt")
DEFAULT_MINUTES = 8.0

app = typer.Typer(add_completion=False, no_args_is_help=True, help="The whole fleet under virtual time and faults.")
console = Console()


def regressions() -> list[tuple[str, int]]:
    """The seeds that found a mistake once: (scenario, seed)."""
    found = []
    for line in REGRESSIONS.read_text().splitlines():
        words = line.split("#", 1)[0].split()
        if words:
            found.append((words[0], int(words[1])))
    return found


@contextlib.contextmanager
def _runs(tasks: Iterator[tuple[str, int]], jobs: int) -> Iterator[Iterator[Outcome]]:
    """Outcomes as they come; leaving the context stops what still runs."""
    if jobs == 1:
        quiet_logs()
        yield map(run_task, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=quiet_logs, maxtasksperchild=200) as pool:
        yield pool.imap_unordered(run_task, tasks)


@app.command()
def run(
    seeds: Annotated[int | None, typer.Option(help="How many seeds; without it, as many as --minutes allow.")] = None,
    minutes: Annotated[float, typer.Option(help="Minutes of real time, where --seeds is not given.")] = DEFAULT_MINUTES,
    seed: Annotated[int | None, typer.Option(help="Only this seed, with what it did.")] = None,
    scenario: Annotated[list[str] | None, typer.Option(help="Only these scenarios; by default all in turn.")] = None,
    first_seed: Annotated[int | None, typer.Option(help="Where to begin; by default anywhere.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes; 0 = one per core.")] = 0,
    verbose: Annotated[bool, typer.Option(help="With --seed: show the brokers' logs.")] = False,
    trace: Annotated[str | None, typer.Option(help="With --seed: write every port event to this file.")] = None,
) -> None:
    """Runs seeds until one fails, the regression seeds first."""
    names = scenario or list(NAMES)
    for name in names:
        if name not in NAMES:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(NAMES)}", param_hint="--scenario")
    if seed is not None:
        raise typer.Exit(_replay(names, seed, verbose, trace))
    raise typer.Exit(_explore(names, seeds, minutes, first_seed, jobs or os.cpu_count() or 1))


def _replay(names: list[str], seed: int, verbose: bool, trace: str | None) -> int:
    if verbose:
        logging.basicConfig(level=logging.DEBUG, format="%(name)s %(levelname)s %(message)s")
    else:
        quiet_logs()
    failed = False
    for name in names:
        with open(trace, "w") if trace else contextlib.nullcontext() as out:
            outcome = run_seed(name, seed, trace_out=out)
        for note in outcome.notes:
            console.print(f"  {note}", highlight=False)
        console.print(
            f"{name} seed {seed}: {outcome.virtual_s:.1f} s of virtual time in {outcome.wall_s:.2f} s,"
            f" {outcome.messages} messages, {outcome.disk_operations} disk calls, {outcome.acknowledged} records"
            f" acknowledged, {outcome.delivered} delivered, {outcome.process_crashes} process crashes,"
            f" {outcome.power_losses} power losses, trace {outcome.trace_hash}",
            highlight=False,
        )
        if outcome.error:
            failed = True
            console.print(outcome.error, markup=False, highlight=False, style="red")
    return 1 if failed else 0


def _explore(names: list[str], seeds: int | None, minutes: float, first_seed: int | None, jobs: int) -> int:
    first = secrets.randbelow(1 << 40) if first_seed is None else first_seed
    known = [(name, seed) for name, seed in regressions() if name in names]
    total = None if seeds is None else len(known) + seeds
    started = time.monotonic()
    deadline = None if seeds is not None else started + 60 * minutes
    limit = f"{seeds} seeds" if seeds is not None else f"{minutes:g} minutes"
    console.print(
        f"Simulating {', '.join(names)} with {jobs} processes: {len(known)} regression seeds,"
        f" then {limit} from seed {first}.",
        highlight=False,
    )

    outcomes: list[Outcome] = []
    stopping: list[bool] = []

    def tasks() -> Iterator[tuple[str, int]]:
        yield from known
        number = 0
        while seeds is None or number < seeds:
            # The pool asks for tasks ahead of time: how far ahead is bounded here, so that time decides the end.
            while number > len(outcomes) + 4 * jobs and not stopping:
                time.sleep(0.02)
            if stopping or (deadline is not None and time.monotonic() > deadline):
                return
            yield names[number % len(names)], first + number
            number += 1

    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )
    failure: Outcome | None = None
    with progress, _runs(tasks(), jobs) as running:
        bar = progress.add_task("seeds", total=total)
        for outcome in running:
            outcomes.append(outcome)
            messages = sum(each.messages for each in outcomes)
            rate = 60 * messages / (time.monotonic() - started)
            progress.update(bar, advance=1, description=f"seeds · {rate:,.0f} messages a minute")
            if outcome.error:
                failure = outcome
                stopping.append(True)
                break
    _report(outcomes, time.monotonic() - started)
    if failure is None:
        return 0
    console.print(f"\n{failure.scenario} seed {failure.seed} failed:", style="bold red", highlight=False)
    console.print(failure.error, markup=False, highlight=False)
    console.print("Replay it with:", style="bold")
    print(f"  {failure.replay}")
    return 1


def _report(outcomes: list[Outcome], wall_s: float) -> None:
    """What the run did: per scenario and in all."""
    minutes = wall_s / 60
    for name in NAMES:
        runs = [outcome for outcome in outcomes if outcome.scenario == name]
        if runs:
            flushed = sum(any("flush.messages=1" in note for note in each.notes) for each in runs)
            console.print(
                f"  {name}: {len(runs)} seeds, {sum(each.virtual_s for each in runs):,.0f} s of virtual time,"
                f" {sum(each.messages for each in runs):,} messages,"
                f" {sum(each.process_crashes for each in runs)} process crashes,"
                f" {sum(each.power_losses for each in runs)} replicas lost power,"
                f" {sum(each.session_expiries for each in runs)} sessions expired,"
                f" flush.messages=1 in {flushed}; {sum(each.acknowledged for each in runs):,} records acknowledged,"
                f" {sum(each.delivered for each in runs):,} delivered",
                highlight=False,
            )
    console.print(
        f"{len(outcomes)} seeds in {wall_s:.0f} s: {len(outcomes) / minutes:,.0f} seeds and"
        f" {sum(each.messages for each in outcomes) / minutes:,.0f} messages a minute of real time,"
        f" {sum(each.power_losses for each in outcomes)} power losses,"
        f" {sum(each.process_crashes for each in outcomes)} process crashes,"
        f" {sum(bool(each.error) for each in outcomes)} failed",
        highlight=False,
    )


@app.command()
def determinism(
    seed: Annotated[int, typer.Option(help="The seed to run twice.")] = 1,
    scenario: Annotated[list[str] | None, typer.Option(help="Only these scenarios; by default all.")] = None,
) -> None:
    """Runs one seed in two fresh processes with different hash seeds; both must give one trace hash."""
    failed = False
    for name in scenario or NAMES:
        hashes = [_hash_in_fresh_process(name, seed, hash_seed) for hash_seed in ("1", "2")]
        same = hashes[0] == hashes[1]
        failed = failed or not same
        console.print(f"{name} seed {seed}: {hashes[0]} {'=' if same else '≠'} {hashes[1]}", highlight=False)
    raise typer.Exit(1 if failed else 0)


def _hash_in_fresh_process(name: str, seed: int, hash_seed: str) -> str:
    code = f"from simulation.runner import *; quiet_logs(); o = run_seed({name!r}, {seed}); print(o.trace_hash)"
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    app()

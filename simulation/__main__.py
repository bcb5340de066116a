"""`python -m simulation`: runs seeds, replays one, runs the mutants, and checks that a seed always gives the same run.

    run [--seeds N | --minutes M | --seed S] [--scenario log|single|replicated|fleet|…] [--jobs J]
    campaign --seeds N [--scenario …] [--state FILE]        # continues where it was stopped
    mutants [--only NAME]                                  # applies each mutant and counts the seeds until it is found
    determinism [--seed S] [--scenario …]
    traces FILE [--seeds N] [--against FILE]               # compares what two commits do

Exits with status 1 after a failing seed, and prints the command that replays it.
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
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, track

from simulation import compiled, logs
from simulation.campaign import Campaign
from simulation.mutants import MUTANTS, Found, find, mutant
from simulation.report import coverage_table, summary_lines
from simulation.runner import Outcome, prepare, run_seed, run_task
from simulation.scenarios import NAMES, in_turn

REGRESSIONS = Path(__file__).with_name("regressions.txt")
DEFAULT_MINUTES = 8.0
COMPILED = Path(__file__).parent.parent / "build" / "simulation"

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
        logs.quiet()
        yield map(run_task, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=prepare, maxtasksperchild=200) as pool:
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
        logs.quiet()
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

    turns = in_turn(names)
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
            yield turns[number % len(turns)], first + number
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
    """What the run did: per scenario and in all, and which fault struck the fleet doing what."""
    for line in summary_lines(outcomes, wall_s):
        console.print(line, highlight=False)
    table = coverage_table(outcomes)
    if table is not None:
        console.print(table)


@app.command()
def campaign(
    seeds: Annotated[int, typer.Option(help="How many seeds in all.")] = 100_000,
    first_seed: Annotated[int, typer.Option(help="Where to begin.")] = 1,
    scenario: Annotated[str, typer.Option(help="Which scenario.")] = "fleet",
    state: Annotated[Path, typer.Option(help="What is done is kept here; the same command goes on from it.")] = Path(
        "build/campaign.jsonl"
    ),
    jobs: Annotated[int, typer.Option(help="Processes; 0 = one per core.")] = 0,
    compile_first: Annotated[
        bool, typer.Option("--compiled", help="With the simulator compiled: a minute first, then a fifth more seeds.")
    ] = False,
) -> None:
    """Many seeds of one scenario, over several sittings; a failing one is noted and does not end it."""
    if scenario not in NAMES:
        raise typer.BadParameter(f"{scenario!r} is none of {', '.join(NAMES)}", param_hint="--scenario")
    if compile_first and not compiled.is_compiled():
        raise typer.Exit(compiled.run_again(_compile()))
    known = Campaign(state, scenario)
    left = [seed for seed in range(first_seed, first_seed + seeds) if seed not in known.done]
    console.print(f"{scenario}: {seeds - len(left)} of {seeds} seeds are done, {state}", highlight=False)
    outcomes: list[Outcome] = []
    started = time.monotonic()
    progress = Progress(SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with progress, _runs(((scenario, seed) for seed in left), jobs or os.cpu_count() or 1) as running:
        bar = progress.add_task("seeds", total=seeds, completed=seeds - len(left))
        for outcome in running:
            known.add(outcome)
            outcomes.append(outcome)
            rate = 60 * len(outcomes) / (time.monotonic() - started)
            progress.update(bar, advance=1, description=f"{len(known.failed)} failed · {rate:,.0f} seeds a minute")
    _report(outcomes, time.monotonic() - started)
    for seed, error in sorted(known.failed.items()):
        console.print(f"{scenario} seed {seed}: {escape(error)}", highlight=False, style="red")
    raise typer.Exit(1 if known.failed else 0)


def _compile() -> Path:
    try:
        with console.status("compiling the simulator, about a minute"):
            return compiled.build(COMPILED)
    except compiled.CompileError as error:
        console.print(str(error), markup=False, highlight=False, style="red")
        raise typer.Exit(2) from error


@app.command()
def mutants(
    only: Annotated[list[str] | None, typer.Option(help="Only these, by name.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes; 0 = one per core.")] = 0,
) -> None:
    """Plants the mutants into the broker, one at a time: the simulator must find each of them."""
    try:
        names = [mutant(name).name for name in only] if only else [one.name for one in MUTANTS]
    except KeyError as error:
        raise typer.BadParameter(f"there is no mutant {error}", param_hint="--only") from error
    missed = 0
    with multiprocessing.get_context("spawn").Pool(jobs or os.cpu_count() or 1, initializer=prepare) as pool:
        for found in pool.imap(find, names):
            missed += found.seed is None
            _tell(found)
    raise typer.Exit(1 if missed else 0)


def _tell(found: Found) -> None:
    one = mutant(found.name)
    if found.seed is None:
        console.print(f"✗ {one.name}: not found in {one.seeds} seeds of {one.scenario}", style="red", highlight=False)
    else:
        console.print(
            f"✓ {one.name}: seed {found.seed} of at most {one.seeds} of {one.scenario},"
            f" {found.wall_s:.0f} s: {escape(found.error)}",
            highlight=False,
        )


@app.command()
def determinism(
    seed: Annotated[int, typer.Option(help="The seed to run twice.")] = 1,
    scenario: Annotated[list[str] | None, typer.Option(help="Only these scenarios; by default all.")] = None,
    compile_first: Annotated[
        bool, typer.Option("--compiled", help="The second time with the simulator compiled.")
    ] = False,
) -> None:
    """Runs one seed in two fresh processes with different hash seeds; both must give one trace hash."""
    second = compiled.environment(_compile()) if compile_first else dict(os.environ)
    failed = False
    for name in scenario or NAMES:
        hashes = [
            _hash_in_fresh_process(name, seed, environment | {"PYTHONHASHSEED": hash_seed})
            for hash_seed, environment in (("1", dict(os.environ)), ("2", second))
        ]
        same = hashes[0] == hashes[1]
        failed = failed or not same
        console.print(f"{name} seed {seed}: {hashes[0]} {'=' if same else '≠'} {hashes[1]}", highlight=False)
    raise typer.Exit(1 if failed else 0)


@app.command()
def traces(
    out: Annotated[Path, typer.Argument(help="Where the hashes go: a line `scenario seed hash` for each seed.")],
    seeds: Annotated[int, typer.Option(help="How many, after the regression seeds.")] = 1_000,
    first_seed: Annotated[int, typer.Option(help="Where to begin.")] = 1,
    scenario: Annotated[list[str] | None, typer.Option(help="Only these scenarios; by default all in turn.")] = None,
    against: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="What the same command wrote in another checkout.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes; 0 = one per core.")] = 0,
) -> None:
    """Hashes every port event of many seeds: after a refactoring that changes no decision the hashes are the same.

    Where one differs, `run --seed N --trace FILE` in both checkouts shows the first event that does.
    """
    known = {} if against is None else _known_traces(against)  # before minutes of work: it may be another file
    turns = in_turn(scenario or list(NAMES))
    tasks = [one for one in regressions() if one[0] in turns]
    tasks += [(turns[number % len(turns)], first_seed + number) for number in range(seeds)]
    found: dict[tuple[str, int], str] = {}
    with _runs(iter(tasks), jobs or os.cpu_count() or 1) as running:
        for outcome in track(running, "seeds", total=len(tasks), console=console):
            found[outcome.scenario, outcome.seed] = outcome.trace_hash
    out.write_text("".join(f"{name} {seed} {found[name, seed]}\n" for name, seed in tasks))
    if against is None:
        return
    differing = [one for one in tasks if one in known and known[one] != found[one]]
    for name, seed in differing:
        console.print(f"≠ {name} seed {seed}", highlight=False)
    console.print(f"{len(differing)} of {sum(one in known for one in tasks)} seeds differ", highlight=False)
    raise typer.Exit(1 if differing else 0)


def _known_traces(file: Path) -> dict[tuple[str, int], str]:
    try:
        lines = [line.split() for line in file.read_text().splitlines()]
        return {(name, int(seed)): trace_hash for name, seed, trace_hash in lines}
    except ValueError as error:
        raise typer.BadParameter(f"{file} has other lines than `scenario seed hash`", param_hint="--against") from error


def _hash_in_fresh_process(name: str, seed: int, environment: dict[str, str]) -> str:
    code = f"from simulation.runner import *; logs.quiet(); o = run_seed({name!r}, {seed}); print(o.trace_hash)"
    # -P with the checkout behind what `environment` names: in the compiled package's, that one comes first.
    paths = [environment.get("PYTHONPATH", ""), str(compiled.CHECKOUT)]
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=environment | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


if __name__ == "__main__":
    app()

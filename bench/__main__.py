"""`python -m bench`: see `bench`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from bench import machine, plots, report
from bench.coordinators.members import MemberFailed
from bench.java import LoadFailed
from bench.runner import BenchRunner
from bench.scenarios import BY_NAME, FULL, QUICK, SCENARIOS
from bench.systems import APACHE_KAFKA, NULL_BROKER, OURS, SystemFailed

PAGE = Path(__file__).parents[1] / "docs" / "operating" / "benchmark.md"
_SYSTEMS = (APACHE_KAFKA, OURS, NULL_BROKER)


def main(
    scenario: Annotated[
        list[str] | None, typer.Option(help="measure only this one; may be given again; operator only so")
    ] = None,
    rounds: Annotated[int, typer.Option(help="counted rounds per scenario and system", min=1)] = 3,
    quick: Annotated[bool, typer.Option(help="a smoke run: little data, one round, figures that say nothing")] = False,
    out: Annotated[Path, typer.Option(help="where report.json, report.md and the plots go")] = Path("build/bench"),
    page: Annotated[
        bool, typer.Option("--page", help="write docs/operating/benchmark.md, as a run of everything does")
    ] = False,
    system: Annotated[list[str] | None, typer.Option(help="only these of apache_kafka, ours, null_broker")] = None,
) -> None:
    """Apache Kafka 3.9.1 and our broker under the same loads, side by side.

    An interrupted run reports what it has measured so far. A run of everything, with all systems and not --quick, also
    writes docs/operating/benchmark.md, of what it has measured and nothing else.
    """
    console = Console(width=max(120, shutil.get_terminal_size().columns))
    names = scenario or [item.name for item in SCENARIOS if not item.when_named]
    unknown = [name for name in names if name not in BY_NAME] + [n for n in system or () if n not in _SYSTEMS]
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)}: the scenarios are {', '.join(BY_NAME)}")
    chosen = [item for item in SCENARIOS if item.name in names]
    systems = [name for name in _SYSTEMS if system is None or name in system]
    out = out.absolute()
    work = out / "work"
    if work.exists():
        shutil.rmtree(work)
    work.mkdir(parents=True)
    runner = BenchRunner(work, systems, QUICK if quick else FULL, 1 if quick else rounds, console)
    # A kill must not leave brokers behind: it ends the run as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    failure: BaseException | None = None
    try:
        runner.run(chosen)
    except (LoadFailed, MemberFailed, SystemFailed, subprocess.TimeoutExpired, KeyboardInterrupt) as error:
        failure = error
    if runner.measured.values:
        report.write(out, runner.measured)
        drawn = plots.draw(out, runner.measured)
        console.print(Markdown((out / "report.md").read_text()))
        console.print(f"Written: {out}/report.json, report.md, rounds.json and {len(drawn)} plots")
        if failure is None and (page or not (scenario or system or quick)):
            report.write_page(PAGE, runner.measured, machine.description())
            console.print(f"Written: {PAGE}")
    if failure is not None:
        console.print("stopped: " + (str(failure) or "interrupted"), style="red", markup=False)
        raise typer.Exit(1)
    if not os.environ.get("OTTLA_BENCH_KEEP"):
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    typer.run(main)

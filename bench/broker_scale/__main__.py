"""`python -m bench.broker_scale`: the longest turns of a broker's loop with 10 000 partitions, and with as many
connections."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench.broker_scale.scale_steps import Step, measure_connections, measure_partitions

LIMIT_MS = 50.0


def main(
    topics: Annotated[int, typer.Option(min=1)] = 1_000,
    partitions: Annotated[int, typer.Option(min=1, help="of each topic")] = 10,
    brokers: Annotated[int, typer.Option(min=1, help="each has a replica of every partition")] = 2,
    connections: Annotated[int, typer.Option(min=0, help="0: without that part")] = 10_000,
    rest_s: Annotated[float, typer.Option(help="how long timers are watched")] = 25.0,
    out: Annotated[Path, typer.Option(help="where broker_scale.json goes")] = Path("build/bench"),
) -> None:
    """Prints, for each step and broker, the longest turn of the loop: nothing is to take it for more than 50 ms."""
    console = Console(width=200)
    steps: dict[str, list[Step]] = {}
    with tempfile.TemporaryDirectory(prefix="ottla-broker-scale-") as work:
        report = _reporter(console)
        if topics * partitions > 1:
            steps["partitions"] = measure_partitions(Path(work, "many"), topics, partitions, brokers, rest_s, report)
        if connections:
            steps["connections"] = measure_connections(Path(work, "connected"), connections, rest_s, report)
    for name, found in steps.items():
        console.print(_table(name, found))
    out.mkdir(parents=True, exist_ok=True)
    figures = {name: [asdict(step) for step in found] for name, found in steps.items()}
    (out / "broker_scale.json").write_text(json.dumps({"load": os.getloadavg()[0], **figures}, indent=1))


def _reporter(console: Console):  # type: ignore[no-untyped-def]
    def report(step: Step) -> None:
        longest = step.longest
        took = "no turn of 10 ms" if longest is None else f"{longest.cpu_ms:.0f} ms in {longest.code}"
        console.print(f"{step.name}, broker {step.broker}, {step.seconds:.1f} s: {took}", markup=False, highlight=False)

    return report


def _table(name: str, steps: list[Step]) -> Table:
    long = f"> {LIMIT_MS:.0f} ms CPU"
    table = Table("step", "broker", "seconds", "longest: CPU ms", "wall ms", "of it gc", long, "code", title=name)
    for step in steps:
        longest = step.longest
        over = sum(turn.cpu_ms > LIMIT_MS for turn in step.turns)
        figures = ("< 10", "", "") if longest is None else (
            f"{longest.cpu_ms:.0f}", f"{max(turn.wall_ms for turn in step.turns):.0f}", f"{longest.gc_ms:.0f}",
        )  # fmt: skip
        code = "" if longest is None else longest.code
        table.add_row(step.name, str(step.broker), f"{step.seconds:.1f}", *figures, str(over), code)
    return table


if __name__ == "__main__":
    typer.run(main)

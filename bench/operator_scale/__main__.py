"""`python -m bench.operator_scale`: measures the operator alone, and prints the figures or writes the page."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from bench.operator_scale import page, roll
from bench.operator_scale.measurement import measure, measure_passes


def main(
    topics: Annotated[int, typer.Option(min=1)] = 10_000,
    rest_s: Annotated[float, typer.Option(min=1, help="How long the operator is watched at rest.")] = 600.0,
    fleet_alone: Annotated[bool, typer.Option(help="Also measure the fleet without Kubernetes.")] = True,
    write_page: Annotated[bool, typer.Option("--page", help="Write the section of docs/reference/scale.md.")] = False,
    with_roll: Annotated[
        bool, typer.Option("--roll", help="Only the roll of a fleet: run it (root), write its section of the page.")
    ] = False,
    roll_report: Annotated[
        Path | None, typer.Option(help="Only write the section on a roll, from the report of such a run.")
    ] = None,
) -> None:
    """Needs the programs of Kubernetes (`make kubernetes`) and of ZooKeeper (`make system`), and no root.

    A roll is measured by `python -m e2e --long --only roll-six`, which brings up a whole cluster as root and installs
    the Debian packages that this needs.
    """
    if with_roll or roll_report is not None:
        if roll_report is None:
            roll.measure()
        roll.write(roll_report or roll.REPORT)
        return
    with tempfile.TemporaryDirectory(prefix="ottla-scale-") as work:
        figures = measure(Path(work), topics, rest_s, fleet_alone=fleet_alone)
    times = measure_passes()
    if write_page:
        page.write(page.TOPICS_TITLE, page.text(figures, times))
    typer.echo(json.dumps({**asdict(figures), **asdict(times)}, indent=1))
    if names := page.missed(figures, times):
        typer.echo(f"missed: {', '.join(names)}", err=True)


if __name__ == "__main__":
    typer.run(main)

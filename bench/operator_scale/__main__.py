"""`python -m bench.operator_scale`: measures the operator alone, and prints the figures or writes the page."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from bench.operator_scale import page
from bench.operator_scale.measurement import measure, measure_passes


def main(
    topics: Annotated[int, typer.Option(min=1)] = 10_000,
    rest_s: Annotated[float, typer.Option(min=1, help="How long the operator is watched at rest.")] = 600.0,
    fleet_alone: Annotated[bool, typer.Option(help="Also measure the fleet without Kubernetes.")] = True,
    write_page: Annotated[bool, typer.Option("--page", help="Write docs/reference/scale.md.")] = False,
) -> None:
    """Needs the programs of Kubernetes (`make kubernetes`) and of ZooKeeper (`make system`), and no root."""
    with tempfile.TemporaryDirectory(prefix="ottla-scale-") as work:
        figures = measure(Path(work), topics, rest_s, fleet_alone=fleet_alone)
    times = measure_passes()
    if write_page:
        page.PAGE.write_text(page.text(figures, times), encoding="utf-8")
    typer.echo(json.dumps({**asdict(figures), **asdict(times)}, indent=1))
    if names := page.missed(figures, times):
        typer.echo(f"missed: {', '.join(names)}", err=True)


if __name__ == "__main__":
    typer.run(main)

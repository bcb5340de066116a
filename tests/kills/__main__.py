"""`python -m tests.kills`: see the package."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from tests.kills.runs import Kills


def main(
    runs: Annotated[int, typer.Option(help="how many times the broker is killed under load", min=1)] = 20,
    seed: Annotated[int, typer.Option(help="draws the points")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="keeps the data and the broker's log there; stays on failure")
    ] = None,
) -> None:
    """Kills a broker under load and looks what is left; ends with status 1 at the first thing that does not hold."""
    directory = out or Path(tempfile.mkdtemp(prefix="ottla-kills-"))
    directory.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    try:
        summary = Kills(directory, seed, typer.echo).run(runs)
    except AssertionError as failure:
        typer.echo(f"{failure}\nseed {seed}, data and log in {directory}", err=True)
        raise typer.Exit(1) from None
    if out is None:
        shutil.rmtree(directory)
    typer.echo(
        f"{summary.runs} kills under load and {summary.kills_during_start} during starts in "
        f"{time.monotonic() - began:.0f} s: {summary.acknowledged} records acknowledged, none lost, none of an "
        f"idempotent producer doubled ({summary.repeated} of the plain one repeated), no index disagrees with its log"
    )


if __name__ == "__main__":
    typer.run(main)

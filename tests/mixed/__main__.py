"""`python -m tests.mixed`: see the package."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from ottla.local.zookeeper_server import ZooKeeperServer
from tests.mixed.campaign import Campaign, every_role, replacement


def main(
    protocol: Annotated[str, typer.Option(help="inter.broker.protocol.version of all brokers")] = "3.9",
    roles: Annotated[bool, typer.Option(help="each broker in every role")] = True,
    replace: Annotated[bool, typer.Option(help="all three become ours, and Apache Kafka's again")] = True,
    out: Annotated[Path | None, typer.Option(help="where history, logs and data are kept")] = None,
) -> None:
    """Two brokers of Apache Kafka and one of ours under load; ends with status 1 when anything was lost or doubled."""
    directory = out or Path(tempfile.mkdtemp(prefix="ottla-mixed-"))
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise typer.BadParameter(f"{directory} is not empty")
    steps = [*(every_role() if roles else []), *(replacement() if replace else [])]
    fleet = directory / "fleet"
    fleet.mkdir()
    with ZooKeeperServer(directory / "zookeeper") as server:
        outcome = Campaign(fleet.resolve(), f"{server.connect}/mixed", protocol, steps, typer.echo).run()
    typer.echo(
        f"{outcome.steps} of {len(steps)} steps in {outcome.seconds:.0f} s, {outcome.acknowledged} records "
        f"acknowledged, {len(outcome.findings)} findings, {len(outcome.errors)} errors"
    )
    for line in (*map(str, outcome.findings[:50]), *outcome.errors):
        typer.echo(line, err=True)
    if not outcome.is_good:
        typer.echo(f"history, logs and data in {directory}", err=True)
        raise typer.Exit(1)
    if out is None:
        shutil.rmtree(directory)


if __name__ == "__main__":
    typer.run(main)

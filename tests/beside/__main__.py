"""`python -m tests.beside`: see the package."""

from __future__ import annotations

import tempfile
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

from ottla_broker.local.zookeeper import ZooKeeperServer
from tests.beside.comparison import both, difference
from tests.beside.requests import Requests


def main(
    requests: Annotated[int, typer.Option(help="how many are asked", min=1)] = 2000,
    seed: Annotated[int, typer.Option(help="draws them")] = 1,
) -> None:
    """Asks a broker of ours and one of Apache Kafka the same; ends with status 1 when an answer differs."""
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="ottla-beside-") as folder:
        zookeeper = ZooKeeperServer(Path(folder) / "zookeeper")
        zookeeper.start(timeout_s=120)
        try:
            with both(Path(folder), zookeeper) as ask:
                for number, request in enumerate(track(list(islice(Requests(seed), requests)), "asking")):
                    where = difference(*ask(request))
                    if where:
                        kind = f"{request.api_key.name} {where}"
                        found[kind] += 1
                        if found[kind] == 1:
                            typer.echo(f"request {number}, {request.api_key.name} v{request.version}: {request.body}")
                            typer.echo(f"  {where}")
        finally:
            zookeeper.stop()
    typer.echo(f"{requests} requests (seed {seed}), {sum(found.values())} answers differ")
    if found:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)

"""`python -m tests.beside`: see the package."""

from __future__ import annotations

import tempfile
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from ottla.local.zookeeper_server import ZooKeeperServer
from tests.beside.comparison import both, difference
from tests.beside.configs import cases, compare
from tests.beside.requests import Requests
from tests.beside.security.matrix import compare as compare_answers
from tests.beside.security.matrix import selected, sides
from tests.beside.security.rows import questions

_WIDE = 200
"""Columns of a table that nobody looks at in a terminal."""
app = typer.Typer(no_args_is_help=False)


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    requests: Annotated[int, typer.Option(help="how many are asked", min=1)] = 2000,
    seed: Annotated[int, typer.Option(help="draws them")] = 1,
) -> None:
    """Asks a broker of ours and one of Apache Kafka the same; ends with status 1 when an answer differs."""
    if context.invoked_subcommand is not None:
        return
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


@app.command()
def configs(key: Annotated[str, typer.Option(help="only this key")] = "") -> None:
    """Sets every configuration key to values around its bounds on both, and shows the first difference of each key."""
    asked = [case for case in cases() if key in ("", case.key)]
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="ottla-beside-") as folder:
        zookeeper = ZooKeeperServer(Path(folder) / "zookeeper")
        zookeeper.start(timeout_s=120)
        try:
            with both(Path(folder), zookeeper) as ask:
                for case in track(asked, "setting"):
                    if where := compare(ask, case):
                        found[case.key] += 1
                        if found[case.key] == 1:
                            typer.echo(f"{case}\n  {where}")
        finally:
            zookeeper.stop()
    typer.echo(f"{len(asked)} changes, {sum(found.values())} answered otherwise, of {len(found)} keys")
    if found:
        raise typer.Exit(1)


@app.command()
def security(api: Annotated[str, typer.Option(help="only this API, such as DeleteTopics")] = "") -> None:
    """Asks each API without each right that it needs, and with all, and shows where the answers differ."""
    asked = [question for row in selected(api) for question in questions(row)]
    count = 0
    found: dict[tuple[str, str, str, str], list[int]] = {}
    with tempfile.TemporaryDirectory(prefix="ottla-beside-") as folder:
        zookeeper = ZooKeeperServer(Path(folder) / "zookeeper")
        zookeeper.start(timeout_s=120)
        try:
            with sides(Path(folder), zookeeper) as brokers:
                for question in track(asked, "asking"):
                    where = compare_answers(brokers["ours"], brokers["theirs"], question)
                    count += where is not None
                    if where:
                        rights = ", ".join(map(str, question.rights)) or "none"
                        kind = str(question.row), question.variant, rights, where
                        found.setdefault(kind, []).append(question.version)
        finally:
            zookeeper.stop()
    table = Table("request", "versions", "about", "rights", "difference")
    for (row, variant, rights, where), versions in found.items():
        table.add_row(row, ", ".join(map(str, versions)), variant, rights, where)
    if found:
        Console(width=max(Console().width, _WIDE)).print(table)
    typer.echo(f"{count} questions, {sum(map(len, found.values()))} answers differ")
    if found:
        raise typer.Exit(1)


if __name__ == "__main__":
    app()

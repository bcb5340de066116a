"""`python -m tests.compatibility`: see the package."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tests.compatibility.clients import CLIENTS
from tests.compatibility.page import mark, page
from tests.compatibility.runner import Outcome, run
from tests.compatibility.scenarios import SCENARIOS

PAGE = Path("docs/reference/compatibility.md")


def main(
    client: Annotated[list[str] | None, typer.Option(help="by name; may be repeated; default: all")] = None,
    scenario: Annotated[list[str] | None, typer.Option(help="by name; may be repeated; default: all")] = None,
    logs: Annotated[Path, typer.Option(help="where the clients' logs are kept")] = Path("build/compatibility"),
    write: Annotated[bool, typer.Option(help=f"write {PAGE}; needs all clients and scenarios")] = False,
) -> None:
    """Tries clients with scenarios against three brokers; ends with 1 when a cell is not as expected."""
    if write and (client or scenario):
        raise typer.BadParameter("the page has every client and scenario", param_hint="--write")
    clients = [each for each in CLIENTS if not client or each.name in client]
    scenarios = [each for each in SCENARIOS if not scenario or each.name in scenario]
    for names, known, option in ((client, CLIENTS, "--client"), (scenario, SCENARIOS, "--scenario")):
        for name in names or ():
            if name not in {each.name for each in known}:
                raise typer.BadParameter(
                    f"{name} is none of {', '.join(each.name for each in known)}", param_hint=option
                )
    subprocess.run(["scripts/setup-clients.sh"], check=True)
    logs.mkdir(parents=True, exist_ok=True)
    console = Console()

    def report(outcome: Outcome) -> None:
        surprise = "" if outcome.is_expected else "  [red]not as expected[/]"
        reason = f": {outcome.reason[:300]}" if outcome.reason else ""
        console.print(f"{outcome.client.name} {outcome.scenario.name}: {mark(outcome)}{surprise}", end="")
        console.print(reason, markup=False, highlight=False)

    outcomes = run(clients, scenarios, logs, report)
    surprises = [outcome for outcome in outcomes if not outcome.is_expected]
    console.print(
        f"{sum(outcome.passed for outcome in outcomes)} of {len(outcomes)} pass, {len(surprises)} not as expected"
    )
    if write:
        PAGE.write_text(page(outcomes), encoding="utf-8")
    raise typer.Exit(1 if surprises else 0)


if __name__ == "__main__":
    typer.run(main)

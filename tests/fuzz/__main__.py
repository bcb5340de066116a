"""`python -m tests.fuzz`: see the package."""

from __future__ import annotations

import time
from collections import Counter
from typing import Annotated

import typer

from simulation import logs
from tests.fuzz.rounds import CASES_PER_ROUND, run_round

_SHOWN = 3


def main(
    cases: Annotated[int, typer.Option(help="how many requests are sent, rounded up to whole rounds", min=1)] = 10_000,
    seed: Annotated[int, typer.Option(help="of the first round; those after it have the next ones")] = 1,
) -> None:
    """Sends damaged requests to a simulated broker; ends with status 1 when the broker does anything wrong."""
    logs.quiet()
    kinds: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    started = time.monotonic()
    rounds = -(-cases // CASES_PER_ROUND)
    for number in range(rounds):
        outcome = run_round(seed + number, min(CASES_PER_ROUND, cases - number * CASES_PER_ROUND))
        totals.update(cases=outcome.cases, answered=outcome.answered, closed=outcome.closed)
        for finding in outcome.findings:
            kind = finding.kind
            kinds[kind] += 1
            if kinds[kind] <= _SHOWN:
                typer.echo(str(finding))
        if number % 100 == 99 or number == rounds - 1:
            minutes = (time.monotonic() - started) / 60
            typer.echo(
                f"{totals['cases']} cases up to seed {seed + number}, {totals['cases'] / minutes:.0f} a minute: "
                f"{totals['answered']} answered, {totals['closed']} closed, {sum(kinds.values())} findings"
            )
    if kinds:
        for kind, count in kinds.most_common():
            typer.echo(f"{count} times: {kind}")
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)

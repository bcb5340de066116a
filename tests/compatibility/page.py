"""Writes docs/reference/compatibility.md from the outcomes."""

from __future__ import annotations

from collections.abc import Sequence

from tests.compatibility.clients import CLIENTS
from tests.compatibility.runner import Outcome
from tests.compatibility.scenarios import SCENARIOS

HEAD = """# Clients

Which client does what with a fleet of Ottla. `python -m tests.compatibility --write` runs every cell against three
brokers and writes this page; a test fails when a cell changes. A number points to the reason below the table.
"""
_LONGEST_REASON = 200


def marks(text: str) -> dict[tuple[str, str], str]:
    """What a page says, by title of the client and of the scenario: "yes", "no" or "–"."""
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    titles = [cell.strip() for cell in lines[0][1:]]
    return {
        (title, row[0].strip()): cell.split()[0]
        for row in lines[2:]
        for title, cell in zip(titles, row[1:], strict=True)
    }


def mark(outcome: Outcome) -> str:
    """The cell of an outcome, without the number of its reason."""
    return "yes" if outcome.passed else "–" if outcome.is_unsupported else "no"


def page(outcomes: Sequence[Outcome]) -> str:
    """The page in Markdown: a row per scenario, a column per client."""
    found = {(outcome.client.name, outcome.scenario.name): outcome for outcome in outcomes}
    reasons: dict[str, int] = {}
    rows = [
        "| | " + " | ".join(client.title for client in CLIENTS) + " |",
        "|---" * (len(CLIENTS) + 1) + "|",
    ]
    for scenario in SCENARIOS:
        cells = []
        for client in CLIENTS:
            outcome = found[client.name, scenario.name]
            if outcome.passed:
                cells.append("yes")
                continue
            number = reasons.setdefault(outcome.shown_reason[:_LONGEST_REASON], len(reasons) + 1)
            cells.append(f"{mark(outcome)} ({number})")
        rows.append(f"| {scenario.title} | " + " | ".join(cells) + " |")
    notes = [f"{number}. {reason}" for reason, number in reasons.items()]
    return "\n".join([HEAD, *rows, "", *notes, ""])

"""The report of a long run: JSON, and a table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from e2e.long.scenario import Findings, FleetScenario
from e2e.long.traffic import traffic
from tests.nemesis.history import Event

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """What one scenario found, how long it took, when it began (ISO 8601) and what the load average was then."""

    scenario: FleetScenario
    seconds: float
    found: Findings
    began: str = ""
    load: float = 0.0


@dataclass(frozen=True, slots=True)
class Whole:
    """What was found of the whole run: records that are lost, there twice or out of order; clients that had to end;
    counts of events."""

    findings: list[str]
    errors: list[str]
    counts: dict[str, int]


def report(results: Sequence[ScenarioResult], whole: Whole, events: Sequence[Event]) -> dict[str, Any]:
    """Everything, as JSON. `good`: nothing was lost, twice, or out of order, and every scenario met its goals."""
    scenarios = [_scenario(result, events) for result in results]
    has_faults = any(scenario["faults"] for scenario in scenarios)
    return {
        "machine": {"cores": os.cpu_count() or 1},
        "good": not (has_faults or whole.findings or whole.errors),
        "scenarios": scenarios,
        "findings": whole.findings,
        "errors": whole.errors,
        "counts": whole.counts,
    }


def _scenario(result: ScenarioResult, events: Sequence[Event]) -> dict[str, Any]:
    seen = {window.name: traffic(events, window) for window in result.found.windows}
    failed = sum(one.failed_sends for one in seen.values())
    faults = [f"{failed} sends have failed"] if failed and result.scenario.no_send_fails else []
    return {
        "name": result.scenario.name,
        "seconds": result.seconds,
        "began": result.began,
        "load": result.load,
        "brokers": result.scenario.size.brokers,
        "figures": result.found.figures,
        "timelines": result.found.timelines,
        "windows": {name: asdict(one) for name, one in seen.items()},
        "faults": [*result.found.faults, *faults],
    }


def show(found: dict[str, Any], console: Console) -> None:
    """The report for people."""
    table = Table("scenario", "figure", "value")
    for scenario in found["scenarios"]:
        table.add_section()
        rows = [("all of it", f"{scenario['seconds']:.0f} s"), *scenario["figures"].items()]
        for name, window in scenario["windows"].items():
            rows += _rows(name, window)
        for name, timeline in scenario["timelines"].items():
            rows += [(f"{name}: {phase}", f"{seconds:.1f} s") for phase, seconds in timeline.items()]
        for number, (figure, value) in enumerate(rows):
            table.add_row(scenario["name"] if number == 0 else "", figure, str(value))
        for fault in scenario["faults"]:
            table.add_row("", "[red]wrong[/red]", fault[:400])
    console.print(table)
    console.print(f"Of the whole run: {found['counts']}")
    for line in (*found["findings"][:_SHOWN], *found["errors"][:_SHOWN]):
        console.print(f"[red]{line}[/red]", soft_wrap=True)
    if not found["findings"] and not found["errors"]:
        console.print("Every acknowledged record is there once and in order, copied once, and given to every group.")


def _rows(name: str, window: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [
        (f"{name}: acknowledged, failed sends", f"{window['acknowledged']}, {window['failed_sends']}"),
        (f"{name}: a partition takes no records", _spread(window["unavailable"])),
    ]
    if window["unavailable_at_all"] != window["unavailable"]:
        rows.append((f"{name}: … in all of it", _spread(window["unavailable_at_all"])))
    rows += [(f"{name}: a partition gives {group} none", _spread(gap)) for group, gap in window["group_gaps"].items()]
    rows += [
        (f"{name}: the clients themselves paused for", f"{window['clients_paused_s']:.2f} s"),
        (f"{name}: assignments to members", str(window["assignments"])),
        (f"{name}: copying transactions", f"{window['copies']}, {window['copier_restarts']} restarts"),
    ]
    return rows


def _spread(found: dict[str, float]) -> str:
    return f"p50 {found['p50']:.2f} s, p99 {found['p99']:.2f} s, longest {found['longest']:.2f} s of {found['count']}"

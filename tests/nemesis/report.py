"""What a campaign found: a table for people, report.json for the next run to be compared with."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.nemesis.availability import failovers, figure_of, figures, goal_s
from tests.nemesis.campaign import Outcome
from tests.nemesis.checker import CLASSES, counts
from tests.nemesis.faults import LEADER_LOSSES
from tests.nemesis.transactions import CLASSES as TRANSACTION_CLASSES

REPORT = "report.json"
_KEPT, _SHOWN = 200, 20
_LED, _OTHERS = "led by the target", "others"


def as_json(outcome: Outcome) -> dict[str, Any]:
    """Everything, outages in seconds."""
    return {
        "system": outcome.plan.system.value,
        "session_timeout_ms": outcome.plan.session_timeout_ms,
        "seed": outcome.plan.seed,
        "seconds": round(outcome.seconds, 1),
        "faults": outcome.faults,
        "acknowledged": outcome.acknowledged,
        "polled": outcome.polled,
        "transactions": outcome.transactions,
        "classes": counts(outcome.findings, (*CLASSES, *TRANSACTION_CLASSES)),
        "findings": [str(finding) for finding in outcome.findings[:_KEPT]],
        "errors": outcome.errors[:_KEPT],
        "availability": {
            fault: {_LED if led else _OTHERS: asdict(figure) for led, figure in kinds.items()}
            for fault, kinds in figures(outcome.outages).items()
        },
        "failover": _failover(outcome),
        "goals_missed": _missed(outcome),
        "outages": [asdict(outage) for outage in outcome.outages],
    }


def _failover(outcome: Outcome) -> dict[str, Any] | None:
    """Over all losses of a leader: of each the partition that was out for longest, the median and the longest."""
    seconds = [outage.seconds for outage in failovers(outcome.outages, LEADER_LOSSES)]
    return asdict(figure_of(seconds)) if seconds else None


def _missed(outcome: Outcome) -> list[str]:
    goal = goal_s(outcome.plan.session_timeout_ms)
    return [
        f"goal missed: {one.fault} of {one.target} at {one.at:.3f}: partition {one.partition} took no records for "
        f"{one.seconds:.2f} s, the goal is {goal:g} s"
        for one in outcome.missed
    ]


def write(outcome: Outcome, directory: Path) -> Path:
    path = directory / REPORT
    path.write_text(json.dumps(as_json(outcome), indent=1) + "\n")
    return path


def show(report: dict[str, Any], against: dict[str, Any] | None, console: Console) -> None:
    """The tables; with the report of another run, its medians beside and the ratio."""
    title = f"{report['system']}, zookeeper.session.timeout.ms={report['session_timeout_ms']}, seed {report['seed']}"
    console.print(
        f"{title}: {report['faults']} faults in {report['seconds']:.0f} s, "
        f"{report['acknowledged']} records acknowledged, {report['polled']} read"
    )
    if report["transactions"]:
        console.print("transactions: " + ", ".join(f"{kind} {count}" for kind, count in report["transactions"].items()))
    console.print(", ".join(f"{kind} {count}" for kind, count in report["classes"].items()))
    table = Table(title="seconds in which a partition took no records")
    columns = ["fault", "partitions", "n", "median", "longest"]
    if against is not None:
        columns += [f"{against['system']} median", "longest", "ratio of medians"]
    for column in columns:
        table.add_column(column, justify="left" if column in ("fault", "partitions") else "right")
    for fault, kinds in report["availability"].items():
        for kind in (_LED, _OTHERS):
            if kind not in kinds:
                continue
            figure = kinds[kind]
            row = [fault, kind, str(figure["count"]), f"{figure['median']:.2f}", f"{figure['longest']:.2f}"]
            other = None if against is None else against["availability"].get(fault, {}).get(kind)
            if other is not None:
                ratio = figure["median"] / other["median"] if other["median"] else float("nan")
                row += [f"{other['median']:.2f}", f"{other['longest']:.2f}", f"{ratio:.2f}"]
            table.add_row(*row)
    console.print(table)
    for one in (report, against):
        if one is not None and one.get("failover"):
            figure = one["failover"]
            console.print(
                f"{one['system']}: {figure['count']} losses of a leader, failover median {figure['median']:.2f} s, "
                f"mean {figure['mean']:.2f} s, longest {figure['longest']:.2f} s"
            )
    for line in [*report["goals_missed"], *report["findings"][:_SHOWN], *report["errors"][:_SHOWN]]:
        console.print(line, markup=False, highlight=False)

"""The section of docs/reference/scale.md on a roll: six brokers in three racks under load, one by one and in batches.

The end-to-end run `roll-six` measures it in a Kubernetes of its own; here its report becomes text.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.operator_scale import page
from e2e import binaries
from e2e.long.rolls import IN_BATCHES, ONE_BY_ONE, RATIO, ROLL_SIX
from e2e.long.timeline import PHASES
from e2e.machine import CommandFailed

REPORT = binaries.CHECKOUT / "build" / "e2e" / "long" / "report.json"
COMMAND = ("-m", "e2e", "--long", "--only", ROLL_SIX.name)
BUSY = 3
"""A load average of so many processes for each core is more than a fleet of six brokers that has just started."""
LONGEST_RATIO, LONGEST_P99_S = 0.5, 1.0
_WINDOWS = (ONE_BY_ONE, IN_BATCHES)


def measure() -> None:
    """Runs the roll and leaves its report. Raises CommandFailed when something was wrong at any speed."""
    REPORT.unlink(missing_ok=True)
    run = subprocess.run([sys.executable, *COMMAND], cwd=binaries.CHECKOUT, check=False)
    if run.returncode != 0 or not REPORT.exists():
        raise CommandFailed(f"python {' '.join(COMMAND)} ended with {run.returncode}")


def measure_where_possible() -> None:
    """Measures the roll and writes its section, as root; otherwise the section stays as it is. Raises CommandFailed."""
    if os.geteuid() == 0:
        measure()
        write(REPORT)


def write(report: Path) -> None:
    """Writes the section from the report of a run. Raises CommandFailed when the report has no whole roll."""
    page.write(page.ROLL_TITLE, text(json.loads(report.read_text())))


def text(report: Mapping[str, Any]) -> str:
    """The section."""
    scenario = next((one for one in report["scenarios"] if one["name"] == ROLL_SIX.name), None)
    if scenario is None or not {*_WINDOWS} <= {*scenario["timelines"]}:
        raise CommandFailed("the report has no roll, one by one and in batches")
    figures, cores = scenario["figures"], report["machine"]["cores"]
    windows = [scenario["windows"][name] for name in _WINDOWS]
    timelines = [scenario["timelines"][name] for name in _WINDOWS]
    counts = [figures["batches of one"], figures["batches"]]
    unavailable = [window["unavailable"] for window in windows]
    rows: list[tuple[str, Sequence[object], str]] = [
        ("batches", counts, ""),
        ("from the first batch to the end of the last", [f"{sum(one.values()):.1f} s" for one in timelines],
         f"at most {LONGEST_RATIO} of one by one: {figures[RATIO]:.2f}"),
        ("of that for each batch", [f"{sum(one.values()) / count:.1f} s" for one, count in _each(timelines, counts)],
         ""),
        ("a partition takes no records, of each batch: p50", [f"{one['p50']:.2f} s" for one in unavailable], ""),
        ("… p99", [f"{one['p99']:.2f} s" for one in unavailable], f"< {LONGEST_P99_S:.0f} s"),
        ("… longest", [f"{one['longest']:.2f} s" for one in unavailable], ""),
        ("a group is given none of a partition, longest",
         [f"{max(gap['longest'] for gap in window['group_gaps'].values()):.2f} s" for window in windows], ""),
        ("records acknowledged", [window["acknowledged"] for window in windows], ""),
        ("failed sends", [window["failed_sends"] for window in windows], "0"),
        ("the clients themselves paused for, at most", [f"{one['clients_paused_s']:.2f} s" for one in windows], ""),
    ]  # fmt: skip
    steps = [name for name in PHASES if any(name in timeline for timeline in timelines)]
    lines = [
        f"A roll of {scenario['brokers']} brokers in {figures['racks']} racks under three idempotent producers with",
        f"acks=all, {figures['partitions under load']} partitions of three replicas with `min.insync.replicas: 2`,",
        "groups of both protocols and a copier in transactions, in a whole Kubernetes on one machine.",
        "`python -m bench.operator_scale --roll` measures it and writes this section; so does",
        "`python -m bench --scenario operator` as root.",
        "",
        f"Measured on {scenario['began'][:10]} on {cores} cores, which Kubernetes, ZooKeeper, brokers and clients",
        f"share. Their load average was {scenario['load']:.0f} when the run began.",
        *(
            ["Other programs used them then: the times are longer than on an idle machine."]
            if scenario["load"] > BUSY * cores
            else []
        ),
        "",
        "| figure | one by one | in batches | target |",
        "|---|---|---|---|",
        *(f"| {name} | {' | '.join(map(str, values))} | {target} |" for name, values, target in rows),
        "",
        _verdict(report, figures, windows),
        "",
        "Where the seconds of a batch go, on average. Steps are those of `status.roll`; while pods are replaced their",
        "state counts, that of the slowest of the batch, and `DeletePod` and `WaitReady` are what the operator adds:",
        "",
        "| step | one broker | a batch |",
        "|---|---|---|",
        *(f"| {step} | {' | '.join(_means(timelines, counts, step))} |" for step in steps),
    ]
    return "\n".join(lines) + "\n"


def _each(timelines: Sequence[Mapping[str, float]], counts: Sequence[int]) -> list[tuple[Mapping[str, float], int]]:
    return list(zip(timelines, counts, strict=True))


def _means(timelines: Sequence[Mapping[str, float]], counts: Sequence[int], step: str) -> list[str]:
    return [f"{timeline.get(step, 0.0) / count:.2f} s" for timeline, count in _each(timelines, counts)]


def _verdict(report: Mapping[str, Any], figures: Mapping[str, Any], windows: Sequence[Mapping[str, Any]]) -> str:
    missed = []
    if any(window["failed_sends"] for window in windows):
        missed.append("no failed send")
    if any(window["unavailable"]["p99"] >= LONGEST_P99_S for window in windows):
        missed.append("the p99")
    if figures[RATIO] > LONGEST_RATIO:
        missed.append("the time in batches")
    if not report["good"]:
        missed.append("every record there once and in order, or a goal of the run itself")
    return (
        f"Missed in this run: {', '.join(missed)}."
        if missed
        else "Every target is met; no record is lost or twice there."
    )

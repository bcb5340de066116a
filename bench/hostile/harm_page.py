"""The page of `python -m bench.hostile`, from what was measured. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bench.hostile.measured_rows import Harm
from bench.systems import APACHE_KAFKA, OURS

GOAL_MS = 100.0

_BUCKET = re.compile(r'^ottla_loop_lag_seconds_bucket\{le="([^"]+)"\} (\d+)', re.MULTILINE)


def meets(figures: Mapping[str, Harm]) -> bool:
    ours, theirs = figures.get(OURS), figures.get(APACHE_KAFKA)
    return ours is None or ours.longest_ms <= max(GOAL_MS, theirs.longest_ms if theirs is not None else 0.0)


def lag_buckets(metrics: str) -> dict[float, int]:
    """The cumulative counts of ottla_loop_lag_seconds by bound in seconds."""
    return {float(bound): int(count) for bound, count in _BUCKET.findall(metrics)}


def most_lag_ms(before: Mapping[float, int], after: Mapping[float, int]) -> float:
    """The bound below which the lag has stayed between two looks at the buckets; 0 where it was not looked at.

    >>> most_lag_ms({0.01: 5, 0.1: 6, float("inf"): 6}, {0.01: 7, 0.1: 9, float("inf"): 9})
    100.0
    """
    added = {bound: count - before.get(bound, 0) for bound, count in after.items()}
    total = max(added.values(), default=0)
    return min((bound for bound, count in added.items() if count == total and total), default=0.0) * 1000


def page_of(
    systems: list[str], table: Mapping[str, Mapping[str, Harm]], command: str, machine: str, left_out: list[str]
) -> str:
    """The page.

    Args:
        left_out: what the run did not measure, a line each.
    """
    lines = [
        "# What a hostile client costs others",
        "",
        f"<!-- Written by `{command}`: do not edit. -->",
        "",
        machine,
        "",
        "One client sends the request of the row, with as many elements as fit. Another one asks for Metadata every",
        "two milliseconds: its longest wait and its 99th percentile, and the resident memory that the broker gains.",
        "Loop lag: a timer of the broker's loop was late by no more than this (`ottla_loop_lag_seconds`). It runs once",
        "a second, so a short row may miss the lag.",
        "`closed`: ours refuses a request of more elements than its API may have.",
        "The rows of `elements at most` have as many as are allowed.",
        f"Goal: at most Apache Kafka's wait, or at most 100 ms. Made by `{command}`.",
        "",
        "Not measured here:",
        "",
        *(f"- {one}" for one in left_out),
        "",
        f"| request | {' | '.join(_heading(name) for name in systems)} | goal met |",
        "|---|" + "".join("---|" * (4 if name == OURS else 3) for name in systems) + "---|",
    ]
    for name, figures in table.items():
        cells = [_cells(each, figures.get(each)) for each in systems]
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {'yes' if meets(figures) else '**no**'} |")
    return "\n".join([*lines, ""])


def _heading(system: str) -> str:
    lag = " | loop lag (ms)" if system == OURS else ""
    return f"{system}: longest, p99 (ms){lag} | gained (MB) | answer"


def _cells(system: str, harm: Harm | None) -> str:
    if harm is None:
        return " | ".join("-" * (4 if system == OURS else 3))
    lag = "" if system != OURS else " | -" if harm.lag_ms is None else f" | {harm.lag_ms:.0f}"
    return f"{harm.longest_ms:.0f}, {harm.p99_ms:.0f}{lag} | {harm.gained_mb:.0f} | {harm.answer}"

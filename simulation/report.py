"""The report of many runs: a line per scenario, and the table of faults by the state of the fleet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.table import Table

from simulation.coverage import STATES
from simulation.runner import Outcome
from simulation.scenarios import NAMES


def summary_lines(outcomes: Sequence[Outcome], wall_s: float) -> list[str]:
    """One line for each scenario that was run and one for all; `wall_s` is the real time that all took together."""
    lines = []
    minutes = wall_s / 60
    for name in NAMES:
        runs = [outcome for outcome in outcomes if outcome.scenario == name]
        if runs:
            flushed = sum(any("flush.messages=1" in note for note in each.notes) for each in runs)
            faults = sum(each.faults for each in runs)
            tallies: Counter[str] = Counter()
            for each in runs:
                tallies.update(each.tallies)
            lines.append(
                f"  {name}: {len(runs)} seeds, {sum(each.virtual_s for each in runs):,.0f} s of virtual time,"
                f" {sum(each.messages for each in runs):,} messages,"
                + (f" {faults:,} faults," if faults else "")
                + f" {sum(each.process_crashes for each in runs)} process crashes,"
                f" {sum(each.power_losses for each in runs)} replicas lost power,"
                f" {sum(each.session_expiries for each in runs)} sessions expired,"
                f" flush.messages=1 in {flushed}; {sum(each.acknowledged for each in runs):,} records acknowledged,"
                f" {sum(each.delivered for each in runs):,} delivered"
                + "".join(f", {count:,} {what}" for what, count in tallies.items())
            )
    lines.append(
        f"{len(outcomes)} seeds in {wall_s:.0f} s: {len(outcomes) / minutes:,.0f} seeds and"
        f" {sum(each.messages for each in outcomes) / minutes:,.0f} messages a minute of real time,"
        f" {sum(each.power_losses for each in outcomes)} power losses,"
        f" {sum(each.process_crashes for each in outcomes)} process crashes,"
        f" {sum(bool(each.error) for each in outcomes)} failed"
    )
    return lines


def coverage_table(outcomes: Sequence[Outcome]) -> Table | None:
    """How often each fault struck a fleet that was doing what; None when no run counted that."""
    counts: dict[str, dict[str, int]] = {}
    for outcome in outcomes:
        for (fault, state), count in outcome.coverage.items():
            row = counts.setdefault(fault, {})
            row[state] = row.get(state, 0) + count
    if not counts:
        return None
    table = Table(title="faults, by what the fleet was doing when they struck")
    table.add_column("fault")
    for state in STATES:
        table.add_column(state, justify="right")
    for fault in sorted(counts):
        table.add_row(fault, *(str(counts[fault].get(state, 0)) for state in STATES))
    return table

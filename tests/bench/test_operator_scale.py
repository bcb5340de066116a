"""The page of scale says what was measured, and which targets were missed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bench.operator_scale import page, roll
from bench.operator_scale.measurement import PassTimes, ScaleFigures
from e2e.machine import CommandFailed
from tests.operator.noop_pass import measure

GOOD = ScaleFigures(
    10_000, 2, 0.5, 100.0, 1.0, 1.0, 60.0, 200.0, {"fleet": 100.0, "operator": 60.0, "Kubernetes": 140.0}, 30_000,
    600.0, 0, 8.0, 0, 150.0, 170.0, 120.0,
)  # fmt: skip
TIMES = PassTimes(12, 30, 40.0, 60.0, 30.0, 0)


def test_a_run_that_meets_every_target_says_so() -> None:
    found = page.text(GOOD, TIMES)
    assert page.missed(GOOD, TIMES) == [] and "Every target is met." in found
    assert "| from the first document to 10 000 KafkaTopics Ready | 200 s | 300 s |" in found
    assert "the same fleet creates the same topics without Kubernetes | 100 s" in found


def test_a_run_that_misses_a_target_names_it() -> None:
    assert page.missed(replace(GOOD, ready_s=301.0), TIMES) == ["ready_s"]
    assert "Missed in this run: the time until all are Ready." in page.text(replace(GOOD, ready_s=301.0), TIMES)
    assert page.missed(replace(GOOD, rss_peak_mib=201.0, writes_at_rest=1), TIMES) == ["rss_mib", "writes_at_rest"]
    assert page.missed(GOOD, replace(TIMES, median_ms=201.0, writes=1)) == ["pass_ms", "writes_at_rest"]


def test_a_run_with_fewer_topics_says_that_it_is_not_about_the_targets() -> None:
    found = page.text(replace(GOOD, topics=1000), TIMES)
    assert "The targets are those of 10000 topics; this run had fewer." in found
    assert "300 ms of processor time for each topic" in found and "1500 s of 2 idle cores" in found


def test_a_run_on_a_machine_that_others_use_says_so() -> None:
    assert "Other programs used them then" in page.text(replace(GOOD, load=13.0), TIMES)
    assert "Nothing else ran." in page.text(GOOD, TIMES)


def test_a_reconciliation_of_twelve_brokers_that_finds_nothing_writes_nothing() -> None:
    assert asyncio.run(measure(passes=3))["writes"] == 0


def test_a_section_is_replaced_and_the_other_one_stays_as_its_run_wrote_it() -> None:
    before = page.with_section(page.with_section("", page.TOPICS_TITLE, "ten thousand\n"), page.ROLL_TITLE, "slow\n")
    after = page.with_section(before, page.ROLL_TITLE, "fast\n")
    assert after == before.replace("slow", "fast")
    assert page.with_section(after, page.TOPICS_TITLE, "ten thousand") == after


def _window(p99: float, failed: int = 0) -> dict[str, Any]:
    spread = {"count": 72, "p50": 0.3, "p99": p99, "longest": 0.9}
    return {
        "acknowledged": 900, "failed_sends": failed, "unavailable": spread, "clients_paused_s": 0.4,
        "group_gaps": {"classic": spread, "consumer": {**spread, "longest": 1.5}},
    }  # fmt: skip


def _report(ratio: float = 0.5, p99: float = 0.7, failed: int = 0, *, good: bool = True) -> dict[str, Any]:
    steps = {"pods end": 30.0, "brokers start": 30.0}
    scenario = {
        "name": "roll-six", "began": "2026-11-27T09:00:00+00:00", "load": 2.4, "brokers": 6,
        "figures": {"racks": 3, "partitions under load": 12, "batches": 3, "batches of one": 6, roll.RATIO: ratio},
        "timelines": {"one by one": steps, "in batches": {name: seconds / 2 for name, seconds in steps.items()}},
        "windows": {"one by one": _window(0.6), "in batches": _window(p99, failed)},
    }  # fmt: skip
    return {"good": good, "machine": {"cores": 2}, "scenarios": [scenario]}


def test_the_section_on_a_roll_has_the_figures_of_the_run_and_where_its_seconds_went() -> None:
    found = roll.text(_report())
    assert "A roll of 6 brokers in 3 racks" in found and "Measured on 2026-11-27 on 2 cores" in found
    assert (
        "| from the first batch to the end of the last | 60.0 s | 30.0 s | at most 0.5 of one by one: 0.50 |" in found
    )
    assert "| … p99 | 0.60 s | 0.70 s | < 1 s |" in found and "| failed sends | 0 | 0 | 0 |" in found
    assert "| brokers start | 5.00 s | 5.00 s |" in found and "Every target is met" in found


def test_the_section_on_a_roll_names_what_its_run_missed() -> None:
    found = roll.text(_report(ratio=0.53, p99=1.2, failed=1, good=False))
    for missed in ("no failed send", "the p99", "the time in batches", "every record there once"):
        assert missed in found
    with pytest.raises(CommandFailed):
        roll.text({"good": True, "machine": {"cores": 2}, "scenarios": []})

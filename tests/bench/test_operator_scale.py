"""The page of scale says what was measured, and which targets were missed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from bench.operator_scale import page
from bench.operator_scale.measurement import PassTimes, ScaleFigures
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

"""The scenario operator of `python -m bench`: its figures as rows of the report."""

from __future__ import annotations

from pathlib import Path

from bench.java import LoadFailed
from bench.operator_scale import page, roll
from bench.operator_scale.measurement import measure, measure_passes
from bench.scenarios import OPERATOR as NAME
from bench.spark_read import SparkReadResults
from bench.systems import OURS
from e2e import binaries
from e2e.machine import CommandFailed, NotInTime

TOPICS, REST_S = 10_000, 600.0
FEW_TOPICS, SHORT_REST_S = 200, 20.0


def run(work: Path, is_full: bool, measured: SparkReadResults) -> None:
    """Measures with 10 000 topics and ten minutes at rest, and a roll as root, and writes docs/reference/scale.md; or
    measures a little of it.

    Raises:
        LoadFailed: nothing was measured.
    """
    try:
        binaries.build()
        topics, rest_s = (TOPICS, REST_S) if is_full else (FEW_TOPICS, SHORT_REST_S)
        figures, times = measure(work / "operator-scale", topics, rest_s), measure_passes()
    except (CommandFailed, NotInTime) as error:
        raise LoadFailed(f"the operator was not measured: {error}") from error
    if is_full:
        page.write(page.TOPICS_TITLE, page.text(figures, times))
        roll.measure_where_possible()
    for metric, value in (
        ("writes_at_rest", figures.writes_at_rest),
        ("rss_mb", figures.rss_mib * 1.048576),
        ("topics_ready_s", figures.ready_s),
        ("noop_pass_ms", times.median_ms),
    ):
        measured.add(NAME, metric, OURS, value)

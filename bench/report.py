"""The report: report.json (one entry per scenario and metric), rounds.json (every value), report.md."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from bench.availability import outage_table as availability
from bench.coordinators import coordinator_table as coordinators
from bench.runner import FLOOR, METRICS, Measured
from bench.scenarios import SCENARIOS
from bench.storage.storage_table import FLOOR_GOALS, RATIO_GOALS, STORAGE, VALUE_GOALS
from bench.systems import APACHE_KAFKA, NULL_BROKER, OURS

_WITHOUT_LOAD_GOALS = (
    "spark-read",
    "spark-read-100b",
    "spark-write",
    "spark-stream",
    "operator",
    *(item.name for item in (*STORAGE, *availability.AVAILABILITY, *coordinators.COORDINATORS)),
)

GOALS: dict[tuple[str, str], tuple[str, float]] = {
    ("produce-java-256k", "cpu_s_per_gb"): ("at most", 0.6),
    ("produce-librdkafka-1m", "cpu_s_per_gb"): ("at most", 0.6),
    ("produce-java-64k", "cpu_s_per_gb"): ("at most", 0.6),
    ("produce-java-16k", "cpu_s_per_gb"): ("at most", 0.7),
    ("consume-java", "cpu_s_per_gb"): ("at most", 1.0),
    ("consume-librdkafka", "cpu_s_per_gb"): ("at most", 1.0),
    ("single-100b", "cpu_us_per_request"): ("at most", 0.5),
    ("sync-100b", "p50_ms"): ("at most", 1.0),
    ("sync-100b", "p99_ms"): ("at most", 1.0),
    ("produce-java-64k-half-rate", "p99_ms"): ("at most", 1.0),
    ("produce-java-64k-tls", "cpu_s_per_gb"): ("at most", 0.7),
    ("produce-librdkafka-1m-tls", "cpu_s_per_gb"): ("at most", 0.7),
    ("consume-java-tls", "cpu_s_per_gb"): ("at most", 0.8),
    ("consume-librdkafka-tls", "cpu_s_per_gb"): ("at most", 0.8),
    ("single-100b-tls", "cpu_us_per_request"): ("at most", 0.7),
    ("sync-100b-tls", "cpu_us_per_request"): ("at most", 1.0),
    ("idle", "start_s"): ("at most", 0.25),
    **{
        (scenario.name, "throughput_mb_s"): ("at least", 1.0)
        for scenario in SCENARIOS
        if scenario.half_rate_of is None and scenario.name not in ("idle", *_WITHOUT_LOAD_GOALS)
    },
    ("rf3-java-64k", "throughput_mb_s"): ("at least", 1.2),
    ("rf3-java-64k", "cpu_s_per_gb"): ("at most", 0.5),
    ("rf3-java-64k-half-rate", "p99_ms"): ("at most", 1.0),
    **{
        (scenario.name, "rss_mb"): ("at most", 0.2)
        for scenario in SCENARIOS
        if scenario.name not in _WITHOUT_LOAD_GOALS
    },
    ("spark-read", "rows_per_s"): ("at least", 2.0),
    ("spark-read-100b", "rows_per_s"): ("at least", 4.0),
    ("spark-write", "rows_per_s"): ("at least", 2.0),
    ("spark-stream", "p50_ms"): ("at most", 1.2),
    **RATIO_GOALS,
    **availability.RATIO_GOALS,
    **coordinators.RATIO_GOALS,
}
"""The ratio (ours / Apache Kafka) that each figure is held to."""

_VALUE_GOALS = {**VALUE_GOALS, **availability.VALUE_GOALS}

FLOOR_GOAL = 1.3
"""Our CPU is at most this multiple of the null broker's, which does what no broker in Python can leave out."""


def entries(measured: Measured) -> list[dict[str, object]]:
    """The list of report.json: medians over the rounds; None where something does not apply."""
    found: list[dict[str, object]] = []
    for scenario in SCENARIOS:
        metrics = measured.values.get(scenario.name, {})
        for metric in METRICS:
            systems = metrics.get(metric)
            if not systems:
                continue
            ours = measured.median(scenario.name, metric, OURS)
            theirs = measured.median(scenario.name, metric, APACHE_KAFKA)
            sizes = measured.bytes_per_request.get(scenario.name, {})
            requests = sizes.get(OURS) or sizes.get(APACHE_KAFKA)
            found.append(
                {
                    "scenario": scenario.name,
                    "metric": metric,
                    "ours": _rounded(ours),
                    "apache_kafka": _rounded(theirs),
                    "ratio": _rounded(ours / theirs) if ours is not None and theirs else None,
                    "floor": _rounded(measured.median(scenario.name, metric, FLOOR)),
                    "null_broker": _rounded(measured.median(scenario.name, metric, NULL_BROKER)),
                    "rounds": max(len(values) for values in systems.values()),
                    "bytes_per_request": round(statistics.median(requests)) if requests else None,
                }
            )
    return found


def goal_of(entry: dict[str, object]) -> tuple[str, bool | None]:
    """The goal of an entry in words ("" for none) and whether it is met (None when it cannot be told)."""
    key = (str(entry["scenario"]), str(entry["metric"]))
    ours, floor, null = entry["ours"], entry["floor"], entry["null_broker"]
    if key in _VALUE_GOALS:
        return _held(_VALUE_GOALS[key], ours, "")
    if key in FLOOR_GOALS:
        share = ours / floor if isinstance(ours, float) and isinstance(floor, float) else None
        return _held(FLOOR_GOALS[key], share, " × plain")
    goal = GOALS.get(key)
    if goal is None:
        return "", None
    words, met = _held(goal, entry["ratio"], "")
    if met is None:
        return words, None
    if str(entry["metric"]).startswith("cpu_") and isinstance(ours, float) and isinstance(null, float):
        words += f", ≤ {FLOOR_GOAL:g} × null"
        met = met and ours <= FLOOR_GOAL * null
    return words, met


def _held(goal: tuple[str, float], value: object, unit: str) -> tuple[str, bool | None]:
    words = f"{'≤' if goal[0] == 'at most' else '≥'} {goal[1]:g}{unit}"
    if not isinstance(value, float):
        return words, None
    return words, value <= goal[1] if goal[0] == "at most" else value >= goal[1]


def write(out: Path, measured: Measured) -> list[dict[str, object]]:
    """Writes the three files into `out` and gives the entries."""
    out.mkdir(parents=True, exist_ok=True)
    found = entries(measured)
    (out / "report.json").write_text(json.dumps(found, indent=1) + "\n")
    every = {"rounds": measured.values, "bytes_per_request": measured.bytes_per_request, "cold": measured.cold}
    (out / "rounds.json").write_text(json.dumps(every, indent=1) + "\n")
    (out / "report.md").write_text("\n".join(_markdown(found, measured, [])) + "\n")
    return found


def write_page(path: Path, measured: Measured, made: str) -> None:
    """Writes the page of the manual, whole. `made`: the date, the build and the machine, as `machine.description`."""
    head = [
        "<!-- Written by `make bench`: do not edit. -->",
        "",
        made,
        "The scenarios, and how they are measured: [benchmarks.md](../internals/benchmarks.md). The costs of a",
        "hostile client: [benchmark-hostile.md](benchmark-hostile.md).",
        "",
    ]
    path.write_text("\n".join(_markdown(entries(measured), measured, head)) + "\n")


def _markdown(found: Sequence[dict[str, object]], measured: Measured, head: Sequence[str]) -> list[str]:
    lines = [
        "# Beside Apache Kafka 3.9.1",
        "",
        *head,
        "Medians over the rounds, lowest to highest value in brackets; ratio = ours / Apache Kafka. Broker processes",
        "only: clients and ZooKeeper are not counted. Bytes per request: ours / Apache Kafka. Made by `make bench`.",
        "The null broker parses each request, checks the CRC and writes the bytes: the floor of a broker in Python.",
        "In the scenarios of Spark, Apache Kafka stands for Spark's own Kafka connector; both use our broker.",
        "",
        "| scenario | metric | ours | Apache Kafka | ratio | goal | met | null broker | plain writes | bytes/request |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for entry in found:
        scenario, metric = str(entry["scenario"]), str(entry["metric"])
        goal, met = goal_of(entry)
        cells = [
            scenario,
            metric,
            _spread(measured, scenario, metric, OURS),
            _spread(measured, scenario, metric, APACHE_KAFKA),
            _text(entry["ratio"]),
            goal,
            {True: "yes", False: "**no**", None: ""}[met],
            _text(entry["null_broker"]),
            _text(entry["floor"]),
            " / ".join(_request_size(measured, scenario, name) for name in (OURS, APACHE_KAFKA)),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    if measured.cold:
        lines += [
            "",
            "## Cold: the first gigabyte after a start",
            "",
            "| scenario | system | MB/s | CPU s/GB |",
            "|---|---|---|---|",
        ]
        for cold in measured.cold:
            values = (cold["scenario"], cold["system"], _text(cold["throughput_mb_s"]), _text(cold["cpu_s_per_gb"]))
            lines.append("| " + " | ".join(str(value) for value in values) + " |")
    return lines


def _spread(measured: Measured, scenario: str, metric: str, system: str) -> str:
    values = measured.values.get(scenario, {}).get(metric, {}).get(system)
    if not values:
        return ""
    text = _text(statistics.median(values))
    return text if len(values) == 1 else f"{text} ({_text(min(values))} to {_text(max(values))})"


def _request_size(measured: Measured, scenario: str, system: str) -> str:
    sizes = measured.bytes_per_request.get(scenario, {}).get(system)
    return f"{statistics.median(sizes):.0f}" if sizes else "–"


def _text(value: object) -> str:
    if not isinstance(value, int | float):
        return ""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")

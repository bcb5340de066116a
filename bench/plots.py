"""One PNG per metric: the systems by scenario, with the spread of the rounds; and one of the ratios."""

from __future__ import annotations

import statistics
from pathlib import Path

from bench import spark_read, spark_stream
from bench.availability import outage_table as availability
from bench.coordinators import coordinator_table as coordinators
from bench.report import GOALS
from bench.runner import FLOOR, METRICS, Measured
from bench.scenarios import SCENARIOS
from bench.storage.storage_table import TITLES
from bench.systems import APACHE_KAFKA, NULL_BROKER, OURS

_TITLES = {
    "throughput_mb_s": "Throughput, MB/s (higher is better)",
    "cpu_s_per_gb": "Broker CPU, seconds per GB (lower is better)",
    "cpu_us_per_request": "Broker CPU, µs per request (lower is better)",
    "p50_ms": "Median latency, ms (lower is better)",
    "p99_ms": "99th percentile of latency, ms (lower is better)",
    "rss_mb": "Resident memory of a broker, MB (lower is better)",
    "start_s": "Start until the first answers, s (lower is better)",
    "writes_at_rest": "Writes of the operator in ten minutes at rest",
    "topics_ready_s": "10 000 KafkaTopics, from the first document to all Ready, s (lower is better)",
    "noop_pass_ms": "A reconciliation of 12 brokers that finds nothing to do, ms (lower is better)",
    "failover_s": "a broker dies with 10 000 partitions in the fleet, until all have leaders, s (lower is better)",
    "election_s": "of that, from the first new leader to the last, s (lower is better)",
    "rows_per_s": "Rows that Spark reads or writes a second, our data source and its own connector (higher is better)",
    spark_read.SPARK_CPU: "CPU of Spark and its Python processes, seconds per GB (lower is better)",
    **{
        f"{step}_ms": f"A micro-batch of Spark: of its median, {step}, ms (lower is better)"
        for step in spark_stream.STEPS
    },
    **TITLES,
    **availability.TITLES,
    **coordinators.TITLES,
}
_SYSTEMS = (
    (OURS, "Ottla", "#1b6ca8"),
    (APACHE_KAFKA, "Apache Kafka 3.9.1", "#d1495b"),
    (NULL_BROKER, "null broker", "#9aa5b1"),
    (FLOOR, "plain writes", "#d9d9d9"),
)


def draw(out: Path, measured: Measured) -> list[Path]:
    """Writes the plots of what was measured into `out`."""
    import matplotlib

    matplotlib.use("Agg")
    drawn = [path for metric in METRICS if (path := _metric(out, measured, metric)) is not None]
    ratios = _ratios(out, measured)
    return [*drawn, ratios] if ratios is not None else drawn


def _metric(out: Path, measured: Measured, metric: str) -> Path | None:
    from matplotlib import pyplot

    names = [item.name for item in SCENARIOS if metric in measured.values.get(item.name, {})]
    if metric in ("cpu_s_per_gb", "throughput_mb_s"):
        # A gigabyte of 100-byte records says nothing: those are counted by the request.
        names = [name for name in names if not name.endswith("-100b")]
    elif metric == "cpu_us_per_request":
        names = [name for name in names if name.endswith("-100b")]
    if not names:
        return None
    figure, axes = pyplot.subplots(figsize=(2.5 + 1.3 * len(names), 4.5))
    width = 0.8 / len(_SYSTEMS)
    for place, (system, label, colour) in enumerate(_SYSTEMS):
        shown = [(x, measured.values[name][metric].get(system)) for x, name in enumerate(names)]
        points = [(x + (place - 1.5) * width, values) for x, values in shown if values]
        if not points:
            continue
        middles = [statistics.median(values) for _, values in points]
        below = [middle - min(values) for middle, (_, values) in zip(middles, points, strict=True)]
        above = [max(values) - middle for middle, (_, values) in zip(middles, points, strict=True)]
        axes.bar([x for x, _ in points], middles, width, label=label, color=colour, yerr=[below, above], capsize=2)
    axes.set_xticks(range(len(names)), names, rotation=25, ha="right")
    axes.set_title(_TITLES[metric])
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    if metric in ("p50_ms", "p99_ms"):
        axes.set_yscale("log")
    figure.tight_layout()
    path = out / f"{metric}.png"
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return path


def _ratios(out: Path, measured: Measured) -> Path | None:
    """Every figure with a goal as one point on a logarithmic scale, with its goal as a tick."""
    from matplotlib import pyplot

    rows: list[tuple[str, float, tuple[str, float]]] = []
    for (scenario, metric), goal in sorted(GOALS.items(), key=lambda item: (item[0][1], item[0][0])):
        ours = measured.median(scenario, metric, OURS)
        theirs = measured.median(scenario, metric, APACHE_KAFKA)
        if ours and theirs:
            rows.append((f"{scenario}  {metric}", ours / theirs, goal))
    if not rows:
        return None
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.28 * len(rows)))
    for y, (_, ratio, (kind, goal_ratio)) in enumerate(rows):
        met = ratio <= goal_ratio if kind == "at most" else ratio >= goal_ratio
        axes.plot([ratio], [y], "o", color="#2a9d4a" if met else "#d1495b")
        axes.plot([goal_ratio], [y], "|", color="black", markersize=11)
    axes.axvline(1, color="#9aa5b1", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(range(len(rows)), [row[0] for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_title("Ottla / Apache Kafka 3.9.1 (dot) and its goal (bar)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path = out / "ratios.png"
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return path

"""The plot of log-growth: latencies and bytes read from the disk against the size of the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

_COLOURS = {"ours": ("Ottla", "#1b6ca8"), "apache_kafka": ("Apache Kafka 3.9.1", "#d1495b")}
_PANELS = (
    ("append", "Append of 100 bytes, acks=all, ms"),
    ("tail", "Fetch at the end, ms"),
    ("random", "Fetch at a random place, ms"),
)


def draw(path: Path, series: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    """`series`: per system, points with `gb`, `disk_read_mb` and `<panel>_p50_ms`, `<panel>_p99_ms`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, all_axes = pyplot.subplots(2, 2, figsize=(11, 7), sharex=True)
    for axes, (name, title) in zip(all_axes.flat, _PANELS, strict=False):
        for system, points in series.items():
            label, colour = _COLOURS[system]
            sizes = [point["gb"] for point in points]
            axes.plot(sizes, [point[f"{name}_p50_ms"] for point in points], color=colour, label=f"{label}, median")
            p99 = [point[f"{name}_p99_ms"] for point in points]
            axes.plot(sizes, p99, ":", color=colour, label=f"{label}, p99")
        axes.set_title(title)
        axes.set_yscale("log")
    axes = all_axes.flat[3]
    for system, points in series.items():
        label, colour = _COLOURS[system]
        axes.plot([p["gb"] for p in points], [p["disk_read_mb"] for p in points], color=colour, label=label)
    axes.set_title("Read from the disk per gigabyte written and consumed, MB")
    for axes in all_axes.flat:
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    for axes in all_axes[1]:
        axes.set_xlabel("size of the log, GB")
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)

"""The plot of the demo: acknowledged records per second over time, with the kill marked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_BIN_S = 0.1


def prepare() -> subprocess.Popen[bytes]:
    """Begins what takes seconds at the first plot on a machine: matplotlib lists its fonts, once."""
    command = [sys.executable, "-c", "import matplotlib.font_manager"]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def plot(acknowledged_at: Sequence[float | None], killed_at: float, broker_id: int, path: Path) -> None:
    """Writes a PNG. Times are seconds after the first record was sent."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    times = [at for at in acknowledged_at if at is not None]
    bins = int(max(times) / _BIN_S) + 1
    counts = [0] * bins
    for at in times:
        counts[int(at / _BIN_S)] += 1
    figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
    axes.fill_between([b * _BIN_S for b in range(bins)], [c / _BIN_S for c in counts], step="post", color="#3572a5")
    axes.axvline(killed_at, color="#c0392b", linewidth=2)
    axes.annotate(
        f"broker {broker_id} killed",
        (killed_at, axes.get_ylim()[1] * 0.95),
        xytext=(6, 0),
        textcoords="offset points",
        color="#c0392b",
        verticalalignment="top",
    )
    axes.set_xlabel("seconds")
    axes.set_ylabel("acknowledged records per second")
    axes.set_title(f"{len(times):,}".replace(",", " ") + " flights, acks=all, three brokers")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)

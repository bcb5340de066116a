"""The scenario operator: the figures of `python -m e2e figures` as rows of the report. There is no counterpart.

The figures come from one run in a cluster that is created for it: it needs root on Debian, and ten more minutes when
the programs of Kubernetes are not built yet.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.java import LoadFailed
from bench.scenarios import OPERATOR as NAME
from bench.spark_read import SparkReadResults
from bench.systems import OURS

_METRICS = {"writes_at_rest": "writes_at_rest", "rss_mb": "rss_mb", "topics_ready_s": "ready_s"}
_SMOKE = ("--topics", "20", "--rest", "20")


def run(work: Path, is_full: bool, measured: SparkReadResults) -> None:
    """Measures with 1 000 topics and five minutes at rest, or a little of it. LoadFailed when nothing was measured."""
    out = work / "operator.json"
    command = [sys.executable, "-m", "e2e", "figures", "--out", str(out), *(() if is_full else _SMOKE)]
    if subprocess.run(command, check=False).returncode != 0 and not out.exists():
        raise LoadFailed("the operator was not measured, see above")
    found = json.loads(out.read_text())
    for metric, name in _METRICS.items():
        measured.add(NAME, metric, OURS, found[name])

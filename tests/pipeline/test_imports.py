"""What Spark's Python processes load: each of them loads it again, for every read and write and for each commit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "module", ["source", "reading.batch", "reading.stream", "sink.writers", "sink.commit", "running.query_options"]
)
def test_what_plans_or_commits_loads_neither_pyarrow_nor_numpy_nor_what_only_tls_needs(module: str) -> None:
    unwanted = ("numpy", "pyarrow", "cryptography")
    program = f"import sys, ottla_pipeline.{module}; print([name for name in {unwanted} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("broker", "operator", "pipeline")),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"

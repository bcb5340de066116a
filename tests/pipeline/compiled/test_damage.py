"""The compiled walk reads and writes nothing beside its buffers, whatever the records say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla_pipeline.compiled import build

ROOT = Path(__file__).parents[3]


def test_damaged_records_lead_to_no_byte_outside_of_the_buffers(tmp_path: Path) -> None:
    library = tmp_path / "records.so"
    problem = build.compile_library(
        library, ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
    )
    if problem is not None:
        pytest.skip(f"no compiler with sanitizers: {problem}")
    runtimes = []
    for name in ("libasan.so", "libubsan.so"):
        found = subprocess.run(["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        runtimes.append(found.stdout.strip())
    done = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.compiled.damage", str(library), "20000", "7"],
        cwd=ROOT,
        env={
            **os.environ,
            "LD_PRELOAD": " ".join(runtimes),
            "ASAN_OPTIONS": "detect_leaks=0",
            "PYTHONPATH": os.pathsep.join(["broker", "pipeline", "."]),
        },
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "walked 20000", done.stderr[-4000:]

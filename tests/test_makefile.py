"""What the make targets hand on to the scripts behind them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import EXTENDED, FIRST_LOOK, LONG

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_the_setup_is_told_which_python_to_use() -> None:
    asked = subprocess.run(
        ["make", "--no-print-directory", "--eval", "asked: ; @echo $$PYTHON", "asked"],
        cwd=ROOT,
        env=os.environ | {"PYTHON": "/opt/other/bin/python3"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert asked.stdout.strip() == "/opt/other/bin/python3"


def test_what_make_test_leaves_out_is_there() -> None:
    """A path that was renamed would be run, or left out, unseen."""
    looked = [path.partition("::") for path in FIRST_LOOK]
    named = [path.partition("::") for path in (*FIRST_LOOK, *LONG)]
    assert [path for path in (*EXTENDED, *(path for path, _, _ in named)) if not (ROOT / path).exists()] == []
    assert all(f"def {name.partition('[')[0]}" in (ROOT / path).read_text() for path, _, name in named)
    spark = [path for path, _, _ in looked if "pytest.mark.spark" in (ROOT / path).read_text()]
    assert all(path.startswith(EXTENDED) or path in spark for path, _, _ in looked)

"""The worked example of docs/internals/add-a-concern.md, applied to a copy of the operator."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "internals" / "add-a-concern.md"
PACKAGES = ("broker", "documents", "pipeline", "command")
"""What the operator needs beside itself, from the checkout."""


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def _apply(diff: str, root: Path) -> None:
    """Applies the hunks of one file: each has lines that stay, so it says by itself where it belongs."""
    named = re.search(r"^\+\+\+ b/(\S+)$", diff, re.MULTILINE)
    assert named is not None
    path = root / named[1]
    text = path.read_text(encoding="utf-8")
    for hunk in re.split(r"^@@\n", diff, flags=re.MULTILINE)[1:]:
        lines = hunk.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] != "+")
        assert text.count(before) == 1, f"{named[1]} has {text.count(before)} times:\n{before}"
        text = text.replace(before, "".join(line[1:] for line in lines if line[0] != "-"))
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The operator and its tests with the concern of the page; the other packages of the checkout."""
    leave = shutil.ignore_patterns("__pycache__")
    for folder in ("operator", "tests/operator"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=leave)
    for name in (*PACKAGES, "e2e", "crds", "charts", "manifests", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in (".importlinter", "pyproject.toml", "tests/__init__.py", "tests/conftest.py", "tests/run_report.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "tests" / "admin_clients.py", tmp_path / "tests")
    for block in _blocks("python"):
        path = tmp_path / block.split("\n", 1)[0].removeprefix("# ")
        path.parent.mkdir(exist_ok=True)
        path.write_text(block, encoding="utf-8")
    for diff in _blocks("diff"):
        _apply(diff, tmp_path)
    return tmp_path


def _run(copy: Path, *command: str) -> str:
    path = os.pathsep.join(str(copy / name) for name in ("operator", *PACKAGES))
    ended = subprocess.run(
        [sys.executable, *command],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{copy}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_concern_of_the_page_passes_its_test_and_the_contracts(copy: Path) -> None:
    tests = ["tests/operator/concerns/test_restarts.py", "tests/operator/api/test_condition_reasons.py"]
    assert "passed" in _run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests)
    page = _run(copy, "-m", "ottla_operator.reference", "reasons")
    assert "| False | `Restarting` | Containers of brokers end again and again. |" in page
    lint = Path(sys.executable).with_name("lint-imports")
    _run(copy, str(lint), "--no-cache")

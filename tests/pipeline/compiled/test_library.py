"""The compiled library is taken where it fits, and what is taken can be seen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ottla_pipeline.compiled import build
from ottla_pipeline.compiled.library import NotCompiled, load

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


def said(**variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ottla_pipeline.compiled"],
        env={**os.environ, "PYTHONPATH": f"{build.HERE.parents[1]}{os.pathsep}broker", **variables},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


@needs_compiler
def test_a_checkout_with_a_compiler_has_compiled_code_and_says_so() -> None:
    assert load(build.LIBRARY).decode is not None
    assert said(OTTLA_COMPILED="auto") == "records are decoded and encoded by compiled code"


def test_the_variable_switches_to_numpy() -> None:
    assert said(OTTLA_COMPILED="off") == "records are decoded and encoded by numpy: OTTLA_COMPILED is off"


def test_without_a_library_the_reason_is_a_missing_compiler(tmp_path: Path) -> None:
    with pytest.raises(NotCompiled, match="installed without a C compiler"):
        load(tmp_path / "records.so")


def test_a_file_that_is_no_library_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "records.so").write_bytes(b"for another machine")
    with pytest.raises(NotCompiled, match=r"records\.so cannot be loaded"):
        load(tmp_path / "records.so")


@needs_compiler
def test_a_library_of_other_sources_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert build.compile_library(tmp_path / "records.so") is None
    monkeypatch.setattr(build, "source_digest", lambda: "0" * 16)
    with pytest.raises(NotCompiled, match="was made of other sources"):
        load(tmp_path / "records.so")


def test_a_missing_compiler_and_one_that_fails_are_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert build.compile_library(tmp_path / "records.so") == "there is no C compiler (no-such-compiler)"
    monkeypatch.setenv("CC", "false")
    assert (build.compile_library(tmp_path / "records.so") or "").startswith("the C compiler fails")
    assert not list(tmp_path.iterdir())

"""The files that go into the images of the end-to-end tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.binaries import CHECKOUT
from e2e.images import PROGRAMS, SOURCES, load_modules


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_of_the_clients_image_finds_what_it_imports(program: str, tmp_path: Path) -> None:
    """In a folder with what the image has of this checkout, and nothing else of it."""
    shutil.copy(SOURCES / "client" / program, tmp_path)
    for module in load_modules():
        (tmp_path / module.parent.relative_to(CHECKOUT)).mkdir(parents=True, exist_ok=True)
        shutil.copy(module, tmp_path / module.relative_to(CHECKOUT))
    code = f"import {Path(program).stem}, tests; print(tests.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "BOOTSTRAP": "127.0.0.1:1"},  # the programs read it when they are imported
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == str(tmp_path / "tests" / "__init__.py"), done.stderr

"""Fixtures for tests of real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.local_fleet import Ottla


@pytest.fixture
def ottla(tmp_path: Path) -> Iterator[Ottla]:
    """The command in an empty folder; a fleet that runs there in the end is stopped."""
    run = Ottla(tmp_path)
    yield run
    if list(tmp_path.glob(".ottla/*/control.sock")):
        run("down")

"""A log in the test's own directory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.storage.logs import LogSetup, Make


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    setups: list[LogSetup] = []

    def make_setup(**config: Any) -> LogSetup:
        setup = LogSetup(str(tmp_path), {key.replace("_", "."): value for key, value in config.items()})
        setups.append(setup)
        return setup

    yield make_setup
    for setup in setups:
        setup.close()


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[LogSetup]:
    found = LogSetup(str(tmp_path))
    yield found
    found.close()

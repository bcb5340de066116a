"""The fleet whose topics the tests of this folder change, on a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.operator.fleet import Fleet
from tests.operator.topic_fleet import Topics


@pytest.fixture
def many() -> int:
    """Few: after each write of the test everything is listed."""
    return 25


@pytest.fixture
async def topics(real_fleets: None) -> AsyncIterator[Topics]:
    fleet = Fleet()
    await fleet.converge()
    fleet.kubernetes.writes.clear()
    yield Topics(fleet)

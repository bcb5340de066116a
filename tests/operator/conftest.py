"""A running fleet with the task of its topics."""

from __future__ import annotations

import pytest

from tests.operator.fleet import Fleet
from tests.operator.topic_fleet import Topics


@pytest.fixture
async def topics() -> Topics:
    fleet = Fleet()
    await fleet.converge()
    fleet.kubernetes.writes.clear()
    return Topics(fleet)

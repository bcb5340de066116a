"""The tests of tests/operator/topics/test_topic_task.py, on a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.operator.fleet import Fleet
from tests.operator.topics import test_topic_task as in_memory
from tests.operator.topics.test_topic_task import Topics

pytestmark = pytest.mark.kubernetes

NOT_HERE: dict[str, str] = {}
for _name, _test in vars(in_memory).items():
    if _name.startswith("test_") and _name not in NOT_HERE:
        globals()[_name] = _test


@pytest.fixture
async def topics(real_fleets: None) -> AsyncIterator[Topics]:
    fleet = Fleet()
    await fleet.converge()
    fleet.kubernetes.writes.clear()
    yield Topics(fleet)

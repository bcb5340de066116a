"""The tests of tests/operator/runtime/test_pipeline_executors.py, on a real API server."""

from __future__ import annotations

import pytest

from tests.operator.pipeline_fleet import Pipelines
from tests.operator.runtime import test_pipeline_executors as in_memory

pytestmark = pytest.mark.kubernetes

for _name, _test in vars(in_memory).items():
    if _name.startswith("test_"):
        globals()[_name] = _test


@pytest.fixture
async def pipelines(real_fleets: None) -> Pipelines:
    return Pipelines()

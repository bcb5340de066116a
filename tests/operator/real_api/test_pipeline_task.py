"""The tests of tests/operator/runtime/test_pipeline_task.py, on a real API server."""

from __future__ import annotations

import pytest

from tests.operator.pipeline_fleet import Pipelines
from tests.operator.runtime import test_pipeline_task as in_memory

pytestmark = pytest.mark.kubernetes

NOT_HERE = {
    "test_without_an_image_the_field_is_named_and_nothing_is_created": "it needs no API server",
}
for _name, _test in vars(in_memory).items():
    if _name.startswith("test_") and _name not in NOT_HERE:
        globals()[_name] = _test


def test_the_tests_that_run_elsewhere_exist() -> None:
    assert all(hasattr(in_memory, name) for name in NOT_HERE)


@pytest.fixture
async def pipelines(real_fleets: None) -> Pipelines:
    return Pipelines()

"""The tests of tests/operator/runtime/test_pipeline_task.py, on a real API server."""

from __future__ import annotations

from typing import Any

import pytest

from ottla_operator.api.objects import STATEFUL_SET
from tests.operator.pipeline_fleet import OBJECT, Pipelines
from tests.operator.runtime import test_pipeline_task as in_memory

pytestmark = pytest.mark.kubernetes

NOT_HERE = {
    "test_without_an_image_the_field_is_named_and_nothing_is_created": "it needs no API server",
    "test_what_the_api_server_would_not_create_either_is_not_deleted": "there is no webhook",
}
for _name, _test in vars(in_memory).items():
    if _name.startswith("test_") and _name not in NOT_HERE:
        globals()[_name] = _test


def test_the_tests_that_run_elsewhere_exist() -> None:
    assert all(hasattr(in_memory, name) for name in NOT_HERE)


@pytest.fixture
async def pipelines(real_fleets: None) -> Pipelines:
    return Pipelines()


async def test_a_dry_run_tells_a_valid_object_from_a_wrong_one_also_when_its_name_exists(pipelines: Pipelines) -> None:
    pipelines.apply()
    await pipelines.runs()
    there = pipelines.kubernetes.there(STATEFUL_SET, OBJECT)
    identity = {"name": OBJECT, "namespace": "default"}

    async def is_valid(**spec: Any) -> bool:
        return await pipelines.kubernetes.is_valid(
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": identity, "spec": {**there["spec"], **spec}}
        )

    assert await is_valid(serviceName="another")
    assert not await is_valid(serviceName="another", replicas=-1)
    assert pipelines.kubernetes.there(STATEFUL_SET, OBJECT) == there

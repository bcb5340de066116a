"""FindCoordinator of many groups at once (KIP-699)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.find_coordinator import FindCoordinatorRequest
from ottla_broker.server.handlers import find_coordinator
from tests.broker.server.contexts import handler_context


async def test_groups_of_one_request_wait_for_one_creation_of_the_offsets_topic() -> None:
    created = []

    async def auto_create_internal(topic: str) -> None:
        created.append(topic)  # it fails: the topic is not there afterwards

    services: Any = SimpleNamespace(
        metadata=SimpleNamespace(partition_count=lambda topic: 0, partition=lambda topic, index: None),
        auto_create_internal=auto_create_internal,
        group_coordinator=SimpleNamespace(partitions=SimpleNamespace(index_of=lambda group: 0)),
    )
    groups = [f"group-{number}" for number in range(1000)]
    request = FindCoordinatorRequest(key_type=find_coordinator.KEY_TYPE_GROUP, coordinator_keys=groups)
    context: Any = handler_context(api_version=6, listener="PLAINTEXT")
    response = await find_coordinator.handle(services, context, request)
    assert [one.key for one in response.coordinators] == groups
    assert {one.error_code for one in response.coordinators} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert created == ["__consumer_offsets"]

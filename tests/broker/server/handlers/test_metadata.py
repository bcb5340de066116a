"""Metadata while topics are created for it: everything in the response is current when it is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_broker.authorization.resources import NOT_ASKED, ResourceType, mask, operations_of
from ottla_broker.config import BrokerConfig
from ottla_broker.metadata.cache import LEADER_DURING_DELETE, MetadataCache
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla_broker.protocol.generated.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla_broker.server.handlers import metadata
from tests.broker.server.contexts import handler_context

LISTENER = "PLAINTEXT"
ID, ANOTHER_ID = b"\1" * 16, b"\2" * 16


def tell(cache: MetadataCache, name: str, leader: int, topic_id: bytes) -> None:
    """Applies an UpdateMetadata of the controller."""
    brokers = [
        UpdateMetadataBroker(
            id=broker,
            endpoints=[UpdateMetadataEndpoint(host="h", port=9092, listener=LISTENER, security_protocol=0)],
        )
        for broker in (1, 2)
    ]
    state = UpdateMetadataPartitionState(
        topic_name=name, partition_index=0, leader=leader, isr=[1, 2], replicas=[1, 2], leader_epoch=leader
    )
    topic = UpdateMetadataTopicState(topic_name=name, topic_id=topic_id, partition_states=[state])
    cache.update(UpdateMetadataRequest(controller_id=1, controller_epoch=1, live_brokers=brokers, topic_states=[topic]))


async def ask(
    cache: MetadataCache,
    request: MetadataRequest,
    *,
    version: int = 12,
    creates: bool = True,
    meanwhile: Callable[[], None] = lambda: None,
    error: ErrorCode = ErrorCode.NONE,
) -> MetadataResponse:
    """The response; `meanwhile` happens while topics are created."""

    async def create(names: Sequence[str]) -> dict[str, int]:
        meanwhile()
        return dict.fromkeys(names, int(error))

    services: Any = SimpleNamespace(
        metadata=cache,
        config=BrokerConfig.from_mapping({"auto.create.topics.enable": str(creates)}),
        cluster_id="c",
        broker_id=1,
        replica_manager=SimpleNamespace(has_offline=False),
        auto_create=create,
    )
    context: Any = handler_context(api_version=version, listener=LISTENER)
    return await metadata.handle(services, context, request)


def topics_of(response: MetadataResponse) -> dict[str | None, Any]:
    return {topic.name: topic for topic in response.topics}


def asking_for(*names: str, **options: bool) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **options)


async def test_metadata_has_the_new_leader_when_leadership_moves_during_a_topic_creation() -> None:
    cache = MetadataCache(1)
    tell(cache, "old", 1, ID)

    def move() -> None:
        tell(cache, "old", 2, ID)
        tell(cache, "new", 1, ANOTHER_ID)

    found = topics_of(await ask(cache, asking_for("old", "new"), meanwhile=move))
    assert [partition.leader_id for partition in found["old"].partitions] == [2]
    assert (found["new"].error_code, found["new"].topic_id) == (ErrorCode.NONE, ANOTHER_ID)


async def test_metadata_has_a_deleted_topic_as_unknown_when_it_is_deleted_during_a_topic_creation() -> None:
    cache = MetadataCache(1)
    tell(cache, "old", 1, ID)
    found = topics_of(
        await ask(cache, asking_for("old", "new"), meanwhile=lambda: tell(cache, "old", LEADER_DURING_DELETE, ID))
    )
    assert found["old"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_metadata_ignores_topic_names_when_the_request_has_a_topic_id() -> None:
    cache = MetadataCache(1)
    tell(cache, "old", 1, ID)
    for asked, error in ((ID, ErrorCode.NONE), (ANOTHER_ID, ErrorCode.UNKNOWN_TOPIC_ID)):
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name="new"), MetadataRequestTopic(name=None, topic_id=asked)]
        )
        (topic,) = (await ask(cache, request, creates=True)).topics
        assert (topic.topic_id, topic.error_code) == (asked, error)


@pytest.mark.parametrize("version", [8, 10, 12])
@pytest.mark.parametrize(
    ("name", "creates", "error"),
    [
        ("absent", False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("new", True, ErrorCode.LEADER_NOT_AVAILABLE),
        ("bad name", True, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
async def test_metadata_has_the_authorized_operations_of_a_topic_with_an_error(
    version: int, name: str, creates: bool, error: ErrorCode
) -> None:
    """kafka-python 2.3 fails on the default mask."""
    cache = MetadataCache(1)
    tell(cache, "old", 1, ID)
    for wanted, operations in ((True, mask(*operations_of(ResourceType.TOPIC))), (False, NOT_ASKED)):
        request = asking_for("old", name, include_topic_authorized_operations=wanted)
        found = topics_of(await ask(cache, request, version=version, creates=creates))
        assert found[name].error_code == error
        assert [topic.topic_authorized_operations for topic in found.values()] == [operations] * 2


async def test_a_topic_whose_creation_is_throttled_is_unknown_so_that_clients_ask_again() -> None:
    """A client does not expect THROTTLING_QUOTA_EXCEEDED in a response to Metadata."""
    cache = MetadataCache(1)
    tell(cache, "old", 1, ID)
    response = await ask(cache, asking_for("new"), error=ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    assert topics_of(response)["new"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_metadata_has_no_authorized_operations_for_an_unknown_topic_id() -> None:
    """As in Apache Kafka: an unknown topic has no name to authorize."""
    cache = MetadataCache(1)
    tell(cache, "old", 1, ID)
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=None, topic_id=ANOTHER_ID)], include_topic_authorized_operations=True
    )
    for version, error in ((12, ErrorCode.UNKNOWN_TOPIC_ID), (10, ErrorCode.INVALID_REQUEST)):
        (topic,) = (await ask(cache, request, version=version)).topics
        assert (topic.error_code, topic.topic_authorized_operations) == (error, NOT_ASKED)


async def test_a_refused_metadata_request_has_no_brokers() -> None:
    cache = MetadataCache(1)
    tell(cache, "old", 1, ID)
    response = await ask(cache, MetadataRequest(topics=[MetadataRequestTopic(name="old", topic_id=ID)]), version=11)
    assert (response.brokers, response.cluster_id, response.controller_id) == ([], None, -1)

"""Metadata of thousands of partitions: encoded in slices, with other work in between, and once for all clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_broker.authorization.access import Access
from ottla_broker.authorization.acl_authorizer import AclAuthorizer
from ottla_broker.authorization.acls import AccessControlEntry, ResourcePattern
from ottla_broker.authorization.resources import AclOperation, PatternType, PermissionType, ResourceType
from ottla_broker.config import BrokerConfig
from ottla_broker.metadata.cache import LEADER_DURING_DELETE, MetadataCache
from ottla_broker.metadata.prepared import PreparedTopics
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla_broker.protocol.generated.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla_broker.protocol.slices import SlicedResponse
from ottla_broker.security.principals import Principal
from ottla_broker.server.handlers import metadata
from tests.broker.server.contexts import handler_context

LISTENER = "PLAINTEXT"
TOPICS, PARTITIONS = 300, 5
SLICES = TOPICS * PARTITIONS // metadata.SLICE_PARTITIONS


class Turns:
    """A clock of which only the turns of the loop matter."""

    def __init__(self, meanwhile: Callable[[int], None] = lambda _: None) -> None:
        self.count = 0
        self._meanwhile = meanwhile

    async def sleep(self, delay_s: float) -> None:
        assert delay_s == 0
        self.count += 1
        self._meanwhile(self.count)
        await asyncio.sleep(0)


def update(cache: MetadataCache, names: list[str], leader: int = 1) -> None:
    brokers = [
        UpdateMetadataBroker(
            id=broker,
            endpoints=[UpdateMetadataEndpoint(host=f"h{broker}", port=9092, listener=LISTENER, security_protocol=0)],
        )
        for broker in (1, 2)
    ]
    topics = [
        UpdateMetadataTopicState(
            topic_name=name,
            topic_id=name.encode().ljust(16, b"."),
            partition_states=[
                UpdateMetadataPartitionState(
                    partition_index=index, leader=leader, isr=[1, 2], replicas=[1, 2], leader_epoch=index
                )
                for index in range(PARTITIONS)
            ],
        )
        for name in names
    ]
    cache.update(UpdateMetadataRequest(controller_id=1, controller_epoch=1, live_brokers=brokers, topic_states=topics))


def names() -> list[str]:
    return [f"topic-{number:04}" for number in range(TOPICS)]


@pytest.fixture
def cache() -> MetadataCache:
    found = MetadataCache(1)
    update(found, names())
    return found


def services_of(cache: MetadataCache, turns: Turns) -> Any:
    return SimpleNamespace(
        metadata=cache,
        prepared_topics=PreparedTopics(),
        clock=turns,
        config=BrokerConfig.from_mapping({}),
        cluster_id="c",
        broker_id=1,
        replica_manager=SimpleNamespace(has_offline=False),
    )


async def ask(
    services: Any, request: MetadataRequest, version: int = 12, access: Access | None = None
) -> MetadataResponse | SlicedResponse:
    context: Any = handler_context(api_version=version, listener=LISTENER)
    context.connection.access = access
    return await metadata.handle(services, context, request)


def on_the_wire(response: object, version: int = 12) -> bytes:
    return b"".join(bytes(chunk) for chunk in codec.frame_response(ApiKey.METADATA, version, 1, response))  # type: ignore[arg-type]


def read(response: object, version: int = 12) -> MetadataResponse:
    frame = memoryview(on_the_wire(response, version))[4:]
    found: MetadataResponse = codec.read_response_frame(ApiKey.METADATA, version, frame)[1]
    return found


@pytest.mark.parametrize("version", range(14))
async def test_metadata_in_slices_has_the_bytes_of_metadata_in_one_piece(
    cache: MetadataCache, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = MetadataRequest(
        topics=[] if version == 0 else None,
        include_cluster_authorized_operations=8 <= version <= 10,
        include_topic_authorized_operations=version >= 8,
    )
    turns = Turns()
    sliced = await ask(services_of(cache, turns), request, version)
    assert isinstance(sliced, SlicedResponse) and turns.count == SLICES
    sliced.throttle_time_ms = 7 if version >= 3 else 0
    monkeypatch.setattr(metadata, "SLICE_PARTITIONS", 1_000_000)
    whole = await ask(services_of(cache, Turns()), request, version)
    assert isinstance(whole, MetadataResponse)
    whole.throttle_time_ms = 7 if version >= 3 else 0
    assert on_the_wire(sliced, version) == on_the_wire(whole, version)


async def test_nobody_shares_the_answer_that_has_a_topic_which_came_behind_the_question_about_rights(
    cache: MetadataCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    authorizer = AclAuthorizer()
    allowed = AccessControlEntry("User:alice", "*", AclOperation.DESCRIBE, PermissionType.ALLOW)
    authorizer.put(ResourcePattern(ResourceType.TOPIC, "topic-", PatternType.PREFIXED), frozenset({allowed}))
    services = services_of(cache, Turns())
    every = MetadataRequest(topics=None)
    count = metadata._partition_count

    async def count_meanwhile(*args: Any) -> int:
        monkeypatch.setattr(metadata, "_partition_count", count)
        update(cache, ["secret"])
        assert "secret" in {topic.name for topic in read(await ask(services, every)).topics}
        return await count(*args)

    monkeypatch.setattr(metadata, "_partition_count", count_meanwhile)
    access = Access(authorizer, Principal("User", "alice"), "127.0.0.1")
    assert [topic.name for topic in read(await ask(services, every, access=access)).topics] == names()


async def test_clients_that_ask_for_all_topics_share_one_encoding_until_the_metadata_changes(
    cache: MetadataCache,
) -> None:
    turns = Turns()
    services = services_of(cache, turns)
    every = MetadataRequest(topics=None)
    answers = await asyncio.gather(*(ask(services, every) for _ in range(5)))
    assert len({on_the_wire(answer) for answer in answers}) == 1
    assert turns.count == SLICES
    await ask(services, every)
    assert turns.count == SLICES

    update(cache, ["topic-0007"], leader=2)
    changed = read(await ask(services, every))
    assert turns.count == 2 * SLICES
    leaders = {topic.name: {partition.leader_id for partition in topic.partitions} for topic in changed.topics}
    assert leaders.pop("topic-0007") == {2} and set(map(frozenset, leaders.values())) == {frozenset({1})}


async def test_what_changes_while_topics_are_encoded_is_in_the_next_answer(cache: MetadataCache) -> None:
    def meanwhile(turn: int) -> None:
        if turn == 1:
            update(cache, ["topic-0000"], leader=2)  # its slice is done
            update(cache, ["topic-0299"], leader=LEADER_DURING_DELETE)

    services = services_of(cache, Turns(meanwhile))
    first = {topic.name: topic for topic in read(await ask(services, MetadataRequest(topics=None))).topics}
    assert len(first) == TOPICS - 1 and "topic-0299" not in first
    second = {topic.name: topic for topic in read(await ask(services, MetadataRequest(topics=None))).topics}
    assert {partition.leader_id for partition in second["topic-0000"].partitions} == {2}


async def test_a_topic_that_is_deleted_while_many_named_ones_are_encoded_is_unknown(cache: MetadataCache) -> None:
    def meanwhile(turn: int) -> None:
        if turn == 1:
            update(cache, ["topic-0299"], leader=LEADER_DURING_DELETE)

    turns = Turns(meanwhile)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names()])
    found = {topic.name: topic for topic in read(await ask(services_of(cache, turns), request)).topics}
    assert turns.count == SLICES - 1
    assert len(found) == TOPICS and found["topic-0299"].error_code == 3
    assert found["topic-0298"].error_code == 0 and len(found["topic-0298"].partitions) == PARTITIONS


async def test_a_failed_encoding_fails_every_request_that_waits_for_it_and_none_later() -> None:
    prepared = PreparedTopics()
    gate = asyncio.Event()

    async def fail() -> Any:
        await gate.wait()
        raise OSError("no")

    async def succeed() -> Any:
        return "topics"

    waiting = [asyncio.ensure_future(prepared.get("kind", lambda: 1, fail)) for _ in range(3)]
    await asyncio.sleep(0)
    gate.set()
    assert all(isinstance(error, OSError) for error in await asyncio.gather(*waiting, return_exceptions=True))
    assert await prepared.get("kind", lambda: 1, succeed) == "topics"

"""The handlers that know groups of the consumer protocol, in every version: from request bytes to response bytes."""

from __future__ import annotations

import asyncio
import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_broker.authorization.access import Access
from ottla_broker.authorization.acl_authorizer import AclAuthorizer
from ottla_broker.authorization.acls import AccessControlEntry, ResourcePattern
from ottla_broker.authorization.resources import (
    NOT_ASKED,
    AclOperation,
    PermissionType,
    ResourceType,
    mask,
    operations_of,
)
from ottla_broker.config import BrokerConfig
from ottla_broker.metadata.cache import MetadataCache
from ottla_broker.ports.clock import Clock
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import consumer_group_heartbeat as wire
from ottla_broker.protocol.generated import update_metadata as um
from ottla_broker.security.principals import Principal
from ottla_broker.server.assembly.group_topics import GroupTopics
from ottla_broker.server.store.fleet_features import FleetView
from tests.broker.groups.surroundings import Broker, in_virtual_time
from tests.broker.server.contexts import handler_context

T = bytes(range(16))
MODULES = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "consumer_group_heartbeat",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "consumer_group_describe",
    ApiKey.LIST_GROUPS: "list_groups",
    ApiKey.DESCRIBE_GROUPS: "describe_groups",
    ApiKey.OFFSET_COMMIT: "offset_commit",
    ApiKey.OFFSET_FETCH: "offset_fetch",
    ApiKey.JOIN_GROUP: "join_group",
    ApiKey.LEAVE_GROUP: "leave_group",
    ApiKey.DELETE_GROUPS: "delete_groups",
}


class Server:
    """The handlers; every call goes through bytes both ways. `level` is that of group.version."""

    def __init__(self, clock: Clock, *, level: int = 1, protocols: str = "classic,consumer") -> None:
        self.access: Access | None = None
        self.metadata = MetadataCache(7)
        topics: Any = GroupTopics(self.metadata)
        self.broker = Broker(clock, topics=topics)
        self.add_topic("t", 2, T)
        self.services = SimpleNamespace(
            clock=clock,
            metadata=self.metadata,
            group_coordinator=self.broker.coordinator,
            config=BrokerConfig.from_mapping({"group.coordinator.rebalance.protocols": protocols}),
            fleet_features=SimpleNamespace(view=FleetView({"group.version": level} if level else {}, 0, True)),
        )

    def add_topic(self, name: str, partitions: int, topic_id: bytes) -> None:
        states = [
            um.UpdateMetadataPartitionState(partition_index=index, leader=7, isr=[7], replicas=[7])
            for index in range(partitions)
        ]
        topic = um.UpdateMetadataTopicState(topic_name=name, topic_id=topic_id, partition_states=states)
        self.metadata.update(um.UpdateMetadataRequest(controller_id=7, controller_epoch=1, topic_states=[topic]))

    async def call(self, api: ApiKey, version: int, **fields: Any) -> Any:
        module = codec.module(api)
        request_class = getattr(module, f"{codec.spec(api).name}Request")
        sent = b"".join(module.write_request(version, request_class(**fields)))
        request = module.read_request(version, memoryview(sent))
        context = handler_context(api_version=version, client_id="app", listener="CLIENT", peer=("127.0.0.1", 5))
        context.connection.access = self.access
        handler = importlib.import_module(f"ottla_broker.server.handlers.{MODULES[api]}")
        response = await handler.handle(self.services, context, request)
        return module.read_response(version, memoryview(b"".join(module.write_response(version, response))))

    async def beat(self, version: int, member_id: str, epoch: int, **fields: Any) -> Any:
        if epoch == 0:
            fields = {
                "rebalance_timeout_ms": 60_000,
                "subscribed_topic_names": ["t"],
                "topic_partitions": [],
            } | fields
        return await self.call(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, version, group_id="g", member_id=member_id, member_epoch=epoch, **fields
        )


def owned(*partitions: int) -> list[wire.TopicPartitions]:
    return [wire.TopicPartitions(topic_id=T, partitions=list(partitions))]


@pytest.mark.parametrize("version", [0, 1])
def test_members_join_reconcile_and_leave(version: int) -> None:
    async def scenario(clock: Clock) -> None:
        server = Server(clock)
        await server.broker.loaded()
        joined = await server.beat(version, "a", 0)
        assert (joined.error_code, joined.error_message, joined.member_id, joined.member_epoch) == (0, None, "a", 1)
        assert joined.heartbeat_interval_ms == 5_000
        assert joined.assignment.topic_partitions == owned(0, 1)
        await server.beat(version, "b", 0)
        assert (await server.beat(version, "a", 1)).assignment.topic_partitions == owned(0)
        assert (await server.beat(version, "a", 1, topic_partitions=owned(0))).assignment is None
        assert (await server.beat(version, "b", 2)).assignment.topic_partitions == owned(1)
        left = await server.beat(version, "b", -1)
        assert (left.error_code, left.member_epoch) == (0, -1)

    in_virtual_time(scenario)


def test_a_member_of_version_0_is_given_an_id_and_one_of_version_1_brings_its_own() -> None:
    async def scenario(clock: Clock) -> None:
        server = Server(clock)
        await server.broker.loaded()
        assert len((await server.beat(0, "", 0)).member_id) == 36
        refused = await server.beat(1, "", 0)
        assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")

    in_virtual_time(scenario)


def test_a_subscription_by_a_regular_expression() -> None:
    async def scenario(clock: Clock) -> None:
        server = Server(clock)
        await server.broker.loaded()
        fields = {"subscribed_topic_names": None, "subscribed_topic_regex": "t.*"}
        assert (await server.beat(1, "a", 0, **fields)).assignment.topic_partitions == []
        await clock.sleep(0.1)
        assert (await server.beat(1, "a", 1)).assignment.topic_partitions == owned(0, 1)
        refused = await server.beat(1, "b", 0, subscribed_topic_names=None, subscribed_topic_regex="(")
        assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION

    in_virtual_time(scenario)


def access_to_topics(*names: str) -> Access:
    """To all groups, and to describe these topics alone."""
    allowed = AccessControlEntry("User:alice", "*", AclOperation.ALL, PermissionType.ALLOW)
    authorizer = AclAuthorizer()
    for pattern in [(ResourceType.GROUP, "*"), *((ResourceType.TOPIC, name) for name in names)]:
        authorizer.put(ResourcePattern(*pattern), frozenset({allowed}))
    return Access(authorizer, Principal("User", "alice"), "127.0.0.1")


def test_a_regular_expression_finds_no_topic_that_the_member_may_not_describe() -> None:
    async def scenario(clock: Clock) -> None:
        server = Server(clock)
        await server.broker.loaded()
        server.add_topic("t-secret", 3, b"s" * 16)
        server.access = access_to_topics("t")
        await server.beat(1, "a", 0, subscribed_topic_names=None, subscribed_topic_regex="t.*")
        await clock.sleep(0.1)
        assert (await server.beat(1, "a", 1)).assignment.topic_partitions == owned(0, 1)
        described = await server.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"])
        assert described.groups[0].error_code == 0

    in_virtual_time(scenario)


def test_a_member_that_names_many_topics_without_rights_holds_up_nobody() -> None:
    async def scenario(clock: Clock) -> None:
        server = Server(clock)
        await server.broker.loaded()
        server.access = access_to_topics()
        names = [f"t{number}" for number in range(5_000)]
        refused = asyncio.ensure_future(server.beat(1, "a", 0, subscribed_topic_names=names))
        turns = 0
        while not refused.done():
            turns += 1
            await asyncio.sleep(0)
        assert (await refused).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert turns > 100

    in_virtual_time(scenario)


@pytest.mark.parametrize("version", [0, 1])
def test_groups_are_described_with_current_and_target_assignments(version: int) -> None:
    async def scenario(clock: Clock) -> None:
        server = Server(clock)
        await server.broker.loaded()
        await server.beat(1, "a", 0, instance_id="i", rack_id="r", server_assignor="range")
        await server.beat(1, "b", 0)
        answer = await server.call(
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            version,
            group_ids=["g", "none", "g"],
            include_authorized_operations=True,
        )
        group, unknown, again = answer.groups
        assert group == again
        assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Reconciling", 2, 2)
        assert (group.assignor_name, group.authorized_operations) == ("range", mask(*operations_of(ResourceType.GROUP)))
        first = group.members[0]
        assert (first.member_id, first.instance_id, first.rack_id, first.member_epoch) == ("a", "i", "r", 1)
        assert (first.client_id, first.client_host) == ("app", "/127.0.0.1")
        assert (first.subscribed_topic_names, first.subscribed_topic_regex) == (["t"], None)
        assert first.member_type == (1 if version else -1)
        (assigned,), (target,) = first.assignment.topic_partitions, first.target_assignment.topic_partitions
        assert (assigned.topic_name, assigned.topic_id, assigned.partitions) == ("t", T, [0, 1])
        assert target.partitions == [0]
        assert (unknown.error_code, unknown.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group none not found.")
        assert unknown.authorized_operations == NOT_ASKED

    in_virtual_time(scenario)


def test_groups_are_listed_by_type_and_not_described_as_classic_ones() -> None:
    async def scenario(clock: Clock) -> None:
        server = Server(clock)
        await server.broker.loaded()
        await server.beat(1, "a", 0)

        async def listed(**filters: list[str]) -> list[tuple[str, str, str]]:
            answer = await server.call(ApiKey.LIST_GROUPS, 5, **filters)
            return [(group.group_id, group.group_type, group.group_state) for group in answer.groups]

        assert await listed() == await listed(types_filter=["Consumer"]) == [("g", "consumer", "Stable")]
        assert await listed(types_filter=["classic"]) == []
        assert await listed(states_filter=["stable"]) == [("g", "consumer", "Stable")]
        described = await server.call(ApiKey.DESCRIBE_GROUPS, 5, groups=["g"])
        assert described.groups[0].group_state == "Dead"

    in_virtual_time(scenario)


def test_offsets_are_committed_and_fetched_with_the_member_epoch() -> None:
    async def scenario(clock: Clock) -> None:
        server = Server(clock)
        await server.broker.loaded()
        await server.beat(1, "a", 0)
        commit_module, fetch_module = codec.module(ApiKey.OFFSET_COMMIT), codec.module(ApiKey.OFFSET_FETCH)

        async def commit(version: int, epoch: int) -> int:
            partition = commit_module.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
            topic = commit_module.OffsetCommitRequestTopic(name="t", partitions=[partition])
            fields = {"group_id": "g", "member_id": "a", "generation_id_or_member_epoch": epoch, "topics": [topic]}
            answer = await server.call(ApiKey.OFFSET_COMMIT, version, **fields)
            return int(answer.topics[0].partitions[0].error_code)

        assert await commit(8, 1) == ErrorCode.UNSUPPORTED_VERSION
        assert await commit(9, 3) == ErrorCode.STALE_MEMBER_EPOCH
        assert await commit(9, 1) == ErrorCode.NONE

        async def fetch(**member: Any) -> tuple[int, list[int]]:
            topic = fetch_module.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
            group = fetch_module.OffsetFetchRequestGroup(group_id="g", topics=[topic], **member)
            (answer,) = (await server.call(ApiKey.OFFSET_FETCH, 9, groups=[group])).groups
            return answer.error_code, [part.committed_offset for each in answer.topics for part in each.partitions]

        assert await fetch() == await fetch(member_id="a", member_epoch=1) == (0, [7])
        assert await fetch(member_id="a", member_epoch=2) == (ErrorCode.STALE_MEMBER_EPOCH, [])
        assert await fetch(member_id="x", member_epoch=1) == (ErrorCode.UNKNOWN_MEMBER_ID, [])

    in_virtual_time(scenario)


def test_an_administrator_removes_a_static_member_by_its_instance_id_and_deletes_the_group() -> None:
    async def scenario(clock: Clock) -> None:
        server = Server(clock)
        await server.broker.loaded()
        await server.beat(1, "a", 0, instance_id="i")
        members = [codec.module(ApiKey.LEAVE_GROUP).MemberIdentity(group_instance_id="i")]
        answer = await server.call(ApiKey.LEAVE_GROUP, 5, group_id="g", members=members)
        assert [member.error_code for member in answer.members] == [0]
        deleted = await server.call(ApiKey.DELETE_GROUPS, 2, groups_names=["g"])
        assert [result.error_code for result in deleted.results] == [0]

    in_virtual_time(scenario)


@pytest.mark.parametrize(("level", "protocols"), [(0, "classic,consumer"), (1, "classic")])
def test_without_the_feature_or_the_key_there_are_no_such_groups(level: int, protocols: str) -> None:
    async def scenario(clock: Clock) -> None:
        server = Server(clock, level=level, protocols=protocols)
        await server.broker.loaded()
        assert (await server.beat(0, "a", 0)).error_code == ErrorCode.UNSUPPORTED_VERSION
        described = await server.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, group_ids=["g"])
        assert [group.error_code for group in described.groups] == [ErrorCode.UNSUPPORTED_VERSION]

    in_virtual_time(scenario)

"""The handlers of the group APIs in every version, from request bytes to response bytes."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_broker.authorization.resources import NOT_ASKED, ResourceType, mask, operations_of
from ottla_broker.config import BrokerConfig
from ottla_broker.config.topics import CONSUMER_OFFSETS
from ottla_broker.coordination import znodes
from ottla_broker.internal_topics.partitioning import partition_for
from ottla_broker.metadata.cache import MetadataCache
from ottla_broker.ports.clock import Clock
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import update_metadata as um
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.local_replicas.fencing import CommandFence
from ottla_broker.server.handlers import update_metadata
from ottla_broker.server.peers.producer_ids import ProducerIds
from simulation.clock import SimulatedClock
from simulation.coordination import SimulatedCoordination, SimulatedStore
from simulation.world import World
from tests.broker.groups.surroundings import Broker
from tests.broker.server.contexts import handler_context

PARTITIONS = 4
LOGGER = logging.LoggerAdapter(logging.getLogger("test"))
HANDLERS = {
    ApiKey.OFFSET_COMMIT: "offset_commit",
    ApiKey.OFFSET_FETCH: "offset_fetch",
    ApiKey.TXN_OFFSET_COMMIT: "txn_offset_commit",
    ApiKey.FIND_COORDINATOR: "find_coordinator",
    ApiKey.JOIN_GROUP: "join_group",
    ApiKey.HEARTBEAT: "heartbeat",
    ApiKey.LEAVE_GROUP: "leave_group",
    ApiKey.SYNC_GROUP: "sync_group",
    ApiKey.DESCRIBE_GROUPS: "describe_groups",
    ApiKey.LIST_GROUPS: "list_groups",
    ApiKey.DELETE_GROUPS: "delete_groups",
    ApiKey.OFFSET_DELETE: "offset_delete",
    ApiKey.INIT_PRODUCER_ID: "init_producer_id",
}
LAST_VERSIONS = {
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.TXN_OFFSET_COMMIT: 4,
    ApiKey.FIND_COORDINATOR: 6,
    ApiKey.JOIN_GROUP: 9,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 5,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.LIST_GROUPS: 5,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.OFFSET_DELETE: 0,
    ApiKey.INIT_PRODUCER_ID: 5,
}


class Server:
    """The handlers on a real coordinator and metadata cache; every call goes through bytes both ways."""

    def __init__(self, clock: Clock, coordination: SimulatedCoordination, store: SimulatedStore) -> None:
        self.broker = Broker(clock, partitions=PARTITIONS, group__initial__rebalance__delay__ms=0)
        self.clock = clock
        self.store = store
        self.metadata = MetadataCache(7)
        self.created: list[str] = []
        self.services = SimpleNamespace(
            broker_id=7,
            clock=clock,
            coordination=coordination,
            metadata=self.metadata,
            group_coordinator=self.broker.coordinator,
            producer_ids=ProducerIds(7, coordination),
            auto_create_internal=self._create,
            config=BrokerConfig.from_mapping({}),
            replica_manager=SimpleNamespace(
                fence=CommandFence(clock, lambda: -1, LOGGER), on_metadata_changed=lambda: None
            ),
        )
        self.add_topic("t", 2)

    async def _create(self, name: str) -> int:
        self.created.append(name)
        return 0

    def add_topic(self, name: str, partitions: int, leader: int = 7, topic_id: bytes = ZERO_UUID) -> None:
        """As an UpdateMetadata of the controller tells it."""
        self.metadata.update(self._update(name, partitions, leader, topic_id))

    async def tell(self, name: str, partitions: int, topic_id: bytes) -> None:
        """An UpdateMetadata of the controller, taken in by its handler."""
        context: Any = handler_context(api_version=8, connection_number=1)
        services: Any = self.services
        await update_metadata.handle(services, context, self._update(name, partitions, 7, topic_id))

    def _update(self, name: str, partitions: int, leader: int, topic_id: bytes) -> um.UpdateMetadataRequest:
        states = [
            um.UpdateMetadataPartitionState(partition_index=index, leader=leader, isr=[leader], replicas=[leader])
            for index in range(partitions)
        ]
        live_brokers = []
        for broker_id in {7, leader} - {-1}:
            host = f"kafka-{broker_id}"
            endpoint = um.UpdateMetadataEndpoint(host=host, port=9092, listener="CLIENT", security_protocol=0)
            live_brokers.append(um.UpdateMetadataBroker(id=broker_id, endpoints=[endpoint]))
        topic = um.UpdateMetadataTopicState(topic_name=name, topic_id=topic_id, partition_states=states)
        return um.UpdateMetadataRequest(
            controller_id=7, controller_epoch=1, topic_states=[topic], live_brokers=live_brokers
        )

    async def call(self, api: ApiKey, version: int, **fields: Any) -> Any:
        module = codec.module(api)
        request_class = getattr(module, f"{codec.spec(api).name}Request")
        sent = b"".join(module.write_request(version, request_class(**fields)))
        request = module.read_request(version, memoryview(sent))
        context = handler_context(api_version=version, client_id="app", listener="CLIENT", peer=("127.0.0.1", 5))
        handler = importlib.import_module(f"ottla_broker.server.handlers.{HANDLERS[api]}")
        if api is ApiKey.HEARTBEAT:
            responses: list[Any] = []
            handler.handle(self.services, context, request, responses.append)
            (response,) = responses
        else:
            response = await handler.handle(self.services, context, request)
        answered = b"".join(module.write_response(version, response))
        return module.read_response(version, memoryview(answered))

    async def join(self, version: int, member_id: str = "", **fields: Any) -> Any:
        module = codec.module(ApiKey.JOIN_GROUP)
        fields.setdefault("protocols", [module.JoinGroupRequestProtocol(name="range", metadata=b"meta")])
        if version >= 1:
            fields.setdefault("rebalance_timeout_ms", 60_000)
        return await self.call(
            ApiKey.JOIN_GROUP,
            version,
            group_id="g",
            session_timeout_ms=10_000,
            member_id=member_id,
            protocol_type="consumer",
            **fields,
        )

    async def stable_member(self, version: int = 9) -> tuple[str, int]:
        answer = await self.join(version)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            answer = await self.join(version, answer.member_id)
        module = codec.module(ApiKey.SYNC_GROUP)
        assignment = module.SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"assigned")
        await self.call(
            ApiKey.SYNC_GROUP,
            3,
            group_id="g",
            generation_id=answer.generation_id,
            member_id=answer.member_id,
            assignments=[assignment],
        )
        return answer.member_id, answer.generation_id

    def commit_fields(self, version: int, offset: int, metadata: str | None = "note") -> dict[str, Any]:
        module = codec.module(ApiKey.OFFSET_COMMIT)
        partition = module.OffsetCommitRequestPartition(
            partition_index=1, committed_offset=offset, committed_metadata=metadata
        )
        if version >= 6:
            partition.committed_leader_epoch = 3
        unknown = module.OffsetCommitRequestPartition(partition_index=5, committed_offset=1, committed_metadata="")
        topics = [module.OffsetCommitRequestTopic(name="t", partitions=[partition, unknown])]
        return {"group_id": "simple", "topics": topics}


def served(scenario: Callable[[Server], Coroutine[Any, Any, None]]) -> None:
    world = World(2)
    process = world.machine("m", "10.0.0.1").start_process()
    clock, store = SimulatedClock(process), SimulatedStore(world)

    async def run() -> None:
        coordination = SimulatedCoordination(process, store)
        await coordination.start()
        server = Server(clock, coordination, store)
        await server.broker.loaded()
        await scenario(server)

    try:
        world.run(run())
    finally:
        world.discard()  # tasks that the scenario did not wait for
    assert world.problems == []


def versions(api: ApiKey, first: int = 0) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("version", range(first, LAST_VERSIONS[api] + 1))


@versions(ApiKey.FIND_COORDINATOR)
def test_find_coordinator_names_the_leader_of_the_groups_partition(version: int) -> None:
    async def scenario(server: Server) -> None:
        fields = {"key": "g"} if version < 4 else {"coordinator_keys": ["g", "h"]}
        answers = []
        for _ in range(2):
            response = await server.call(ApiKey.FIND_COORDINATOR, version, **fields)
            answers.append([response] if version < 4 else response.coordinators)
            server.add_topic(CONSUMER_OFFSETS, PARTITIONS)
        missing, found = answers
        assert server.created == [CONSUMER_OFFSETS], "created once, however many groups the request names"
        assert {each.error_code for each in missing} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert {(each.node_id, each.host, each.port) for each in missing} == {(-1, "", -1)}
        assert [(each.error_code, each.node_id, each.host, each.port) for each in found] == [
            (0, 7, "kafka-7", 9092)
        ] * len(found)
        if version >= 4:
            assert [each.key for each in found] == ["g", "h"]
        server.add_topic(CONSUMER_OFFSETS, PARTITIONS, leader=-1)
        response = await server.call(ApiKey.FIND_COORDINATOR, version, **fields)
        headless = response if version < 4 else response.coordinators[0]
        assert headless.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    served(scenario)


@versions(ApiKey.FIND_COORDINATOR)
def test_a_broker_that_has_not_heard_that_it_leads_is_not_named_by_itself(version: int) -> None:
    """The controller's UpdateMetadata comes before its LeaderAndIsr: who was sent here met NOT_COORDINATOR, which
    librdkafka hands to the application."""

    async def scenario(server: Server) -> None:
        async def found() -> tuple[int, int]:
            fields = {"key": "g"} if version < 4 else {"coordinator_keys": ["g"]}
            response = await server.call(ApiKey.FIND_COORDINATOR, version, **fields)
            one = response if version < 4 else response.coordinators[0]
            return one.error_code, one.node_id

        coordinator = server.broker.coordinator
        server.add_topic(CONSUMER_OFFSETS, PARTITIONS)
        coordinator.partitions.on_resignation(coordinator.partitions.index_of("g"), 1)
        assert await found() == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
        server.add_topic(CONSUMER_OFFSETS, PARTITIONS, leader=8)
        assert await found() == (0, 8), "of another broker's turn to lead we know the metadata alone"
        server.add_topic(CONSUMER_OFFSETS, PARTITIONS)
        server.broker.elect(coordinator.partitions.index_of("g"), 2)
        assert await found() == (0, 7)

    served(scenario)


@versions(ApiKey.FIND_COORDINATOR, 1)
def test_find_coordinator_refuses_unknown_key_types(version: int) -> None:
    async def scenario(server: Server) -> None:
        fields = {"key": "x"} if version < 4 else {"coordinator_keys": ["x"]}
        for key_type, error in ((2, 42), (9, 42)):
            response = await server.call(ApiKey.FIND_COORDINATOR, version, key_type=key_type, **fields)
            answer = response if version < 4 else response.coordinators[0]
            assert answer.error_code == error
            assert answer.error_message
        assert server.created == []

    served(scenario)


@versions(ApiKey.JOIN_GROUP)
def test_join_group_makes_a_leader(version: int) -> None:
    async def scenario(server: Server) -> None:
        answer = await server.join(version)
        if version >= 4:
            assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
            assert answer.generation_id == -1
            assert answer.protocol_name == (None if version >= 7 else "")
            answer = await server.join(version, answer.member_id)
        assert answer.error_code == 0
        assert answer.generation_id == 1
        assert answer.member_id.startswith("app-")
        assert answer.leader == answer.member_id
        assert answer.protocol_name == "range"
        assert [(each.member_id, bytes(each.metadata)) for each in answer.members] == [(answer.member_id, b"meta")]
        if version >= 7:
            assert answer.protocol_type == "consumer"

    served(scenario)


def test_join_group_without_a_rebalance_timeout_uses_the_session_timeout() -> None:
    async def scenario(server: Server) -> None:
        await server.join(0)
        snapshot = server.broker.coordinator.describe("g").snapshot
        assert snapshot is not None
        assert server.broker.coordinator._find("g").group.membership.rebalance_timeout_ms == 10_000  # type: ignore[union-attr]

    served(scenario)


@versions(ApiKey.JOIN_GROUP, 5)
def test_static_members_need_no_second_round(version: int) -> None:
    async def scenario(server: Server) -> None:
        answer = await server.join(version, group_instance_id="i-1")
        assert answer.error_code == 0
        assert answer.member_id.startswith("i-1-")
        assert answer.members[0].group_instance_id == "i-1"

    served(scenario)


@versions(ApiKey.SYNC_GROUP)
def test_sync_group_hands_out_the_assignment(version: int) -> None:
    async def scenario(server: Server) -> None:
        joined = await server.join(3)
        module = codec.module(ApiKey.SYNC_GROUP)
        assignment = module.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"assigned")
        names = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
        fields = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id}
        answer = await server.call(ApiKey.SYNC_GROUP, version, assignments=[assignment], **fields, **names)
        assert (answer.error_code, bytes(answer.assignment)) == (0, b"assigned")
        if version >= 5:
            assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
            nameless = await server.call(ApiKey.SYNC_GROUP, version, **fields)
            assert nameless.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    served(scenario)


@versions(ApiKey.HEARTBEAT)
def test_heartbeat_tells_the_state_of_the_group(version: int) -> None:
    async def scenario(server: Server) -> None:
        member_id, generation = await server.stable_member()
        fields = {"group_id": "g", "generation_id": generation, "member_id": member_id}
        assert (await server.call(ApiKey.HEARTBEAT, version, **fields)).error_code == 0
        fields["generation_id"] = 9
        answer = await server.call(ApiKey.HEARTBEAT, version, **fields)
        assert answer.error_code == ErrorCode.ILLEGAL_GENERATION

    served(scenario)


@versions(ApiKey.LEAVE_GROUP)
def test_leave_group_answers_each_member(version: int) -> None:
    async def scenario(server: Server) -> None:
        member_id, _ = await server.stable_member()
        module = codec.module(ApiKey.LEAVE_GROUP)
        if version < 3:
            stranger = await server.call(ApiKey.LEAVE_GROUP, version, group_id="g", member_id="stranger")
            assert stranger.error_code == ErrorCode.UNKNOWN_MEMBER_ID
            answer = await server.call(ApiKey.LEAVE_GROUP, version, group_id="g", member_id=member_id)
            assert answer.error_code == 0
        else:
            members = [module.MemberIdentity(member_id="stranger"), module.MemberIdentity(member_id=member_id)]
            answer = await server.call(ApiKey.LEAVE_GROUP, version, group_id="g", members=members)
            assert answer.error_code == 0
            assert [(each.member_id, each.error_code) for each in answer.members] == [
                ("stranger", ErrorCode.UNKNOWN_MEMBER_ID),
                (member_id, 0),
            ]
            refused = await server.call(ApiKey.LEAVE_GROUP, version, group_id="", members=members)
            assert (refused.error_code, refused.members) == (ErrorCode.INVALID_GROUP_ID, [])
        assert server.broker.coordinator.describe("g").state == "Empty"

    served(scenario)


@pytest.mark.parametrize("fetch_version", range(1, LAST_VERSIONS[ApiKey.OFFSET_FETCH] + 1))
@versions(ApiKey.OFFSET_COMMIT, 1)
def test_committed_offsets_are_fetched(version: int, fetch_version: int) -> None:
    async def scenario(server: Server) -> None:
        answer = await server.call(ApiKey.OFFSET_COMMIT, version, **server.commit_fields(version, 41))
        assert [(each.partition_index, each.error_code) for each in answer.topics[0].partitions] == [
            (1, 0),
            (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        module = codec.module(ApiKey.OFFSET_FETCH)
        if fetch_version >= 8:
            topic = module.OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])
            groups = [
                module.OffsetFetchRequestGroup(group_id="simple", topics=[topic]),
                module.OffsetFetchRequestGroup(group_id="simple", topics=None),
            ]
            response = await server.call(ApiKey.OFFSET_FETCH, fetch_version, groups=groups)
            named, everything = response.groups
            assert (named.group_id, named.error_code, everything.error_code) == ("simple", 0, 0)
            assert [each.partition_index for each in everything.topics[0].partitions] == [1]
            partitions = named.topics[0].partitions
        else:
            topic = module.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])
            response = await server.call(ApiKey.OFFSET_FETCH, fetch_version, group_id="simple", topics=[topic])
            partitions = response.topics[0].partitions
            if fetch_version >= 2:
                everything = await server.call(ApiKey.OFFSET_FETCH, fetch_version, group_id="simple", topics=None)
                assert [each.partition_index for each in everything.topics[0].partitions] == [1]
        none, one = partitions
        assert (none.committed_offset, none.metadata, none.error_code) == (-1, "", 0)
        assert (one.committed_offset, one.metadata, one.error_code) == (41, "note", 0)
        if fetch_version >= 5:
            assert one.committed_leader_epoch == (3 if version >= 6 else -1)

    served(scenario)


async def commit_in_transaction(server: Server, version: int, **fields: Any) -> list[tuple[int, int]]:
    """Error codes by partition."""
    module = codec.module(ApiKey.TXN_OFFSET_COMMIT)
    partition = module.TxnOffsetCommitRequestPartition(partition_index=1, committed_offset=41, committed_metadata=None)
    if version >= 2:
        partition.committed_leader_epoch = 3
    unknown = module.TxnOffsetCommitRequestPartition(partition_index=5, committed_offset=1, committed_metadata="")
    topics = [module.TxnOffsetCommitRequestTopic(name="t", partitions=[partition, unknown])]
    producer = {"transactional_id": "tx", "producer_id": 7, "producer_epoch": 3}
    answer = await server.call(
        ApiKey.TXN_OFFSET_COMMIT, version, group_id="simple", topics=topics, **producer, **fields
    )
    return [(each.partition_index, each.error_code) for topic in answer.topics for each in topic.partitions]


@versions(ApiKey.TXN_OFFSET_COMMIT)
def test_offsets_of_a_transaction_are_fetched_when_it_has_committed(version: int) -> None:
    async def scenario(server: Server) -> None:
        unknown = (5, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        assert await commit_in_transaction(server, version) == [(1, 0), unknown]
        coordinator = server.broker.coordinator
        partition = TopicPartition("t", 1)
        _, (found,) = coordinator.fetch("simple", [partition], require_stable=True)
        assert found.error is ErrorCode.UNSTABLE_OFFSET_COMMIT
        coordinator.end_transaction(partition_for("simple", PARTITIONS), 0, 7, 100, is_commit=True)
        _, (found,) = coordinator.fetch("simple", [partition], require_stable=True)
        assert found.committed is not None
        assert (found.committed.offset, found.committed.metadata) == (41, "")
        assert found.committed.leader_epoch == (3 if version >= 2 else -1)
        assert found.committed.commit_timestamp_ms > 0

    served(scenario)


@versions(ApiKey.TXN_OFFSET_COMMIT, 3)
def test_a_member_that_commits_in_a_transaction_is_fenced_by_its_generation(version: int) -> None:
    async def scenario(server: Server) -> None:
        member, generation = await server.stable_member()
        for (member_id, instance, generation_id), expected in {
            (member, None, generation): ErrorCode.NONE,
            (member, None, generation - 1): ErrorCode.ILLEGAL_GENERATION,
            (member, "instance", generation): ErrorCode.UNKNOWN_MEMBER_ID,
            ("stranger", None, generation): ErrorCode.UNKNOWN_MEMBER_ID,
        }.items():
            module = codec.module(ApiKey.TXN_OFFSET_COMMIT)
            one = module.TxnOffsetCommitRequestPartition(partition_index=1, committed_offset=4, committed_metadata="")
            answer = await server.call(
                ApiKey.TXN_OFFSET_COMMIT,
                version,
                transactional_id="tx",
                producer_id=7,
                producer_epoch=3,
                group_id="g",
                member_id=member_id,
                group_instance_id=instance,
                generation_id=generation_id,
                topics=[module.TxnOffsetCommitRequestTopic(name="t", partitions=[one])],
            )
            assert answer.topics[0].partitions[0].error_code == expected

    served(scenario)


@versions(ApiKey.TXN_OFFSET_COMMIT)
def test_a_transactional_commit_is_refused_with_codes_that_its_client_knows(version: int) -> None:
    async def scenario(server: Server) -> None:
        aborted = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if version >= 2 else ErrorCode.COORDINATOR_NOT_AVAILABLE
        log = server.broker.log
        for error, expected in (
            (ErrorCode.TRANSACTION_ABORTABLE, aborted),
            (ErrorCode.NETWORK_EXCEPTION, loading),
            (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        ):
            log.verification_error = error
            assert (await commit_in_transaction(server, version))[0] == (1, int(expected))

    served(scenario)


def test_a_null_metadata_comes_back_empty() -> None:
    async def scenario(server: Server) -> None:
        await server.call(ApiKey.OFFSET_COMMIT, 9, **server.commit_fields(9, 41, None))
        _, (found,) = server.broker.coordinator.fetch("simple", None, require_stable=False)
        assert found.committed is not None and found.committed.metadata == ""

    served(scenario)


@pytest.mark.parametrize(("version", "field"), [(1, "commit_timestamp"), (2, "retention"), (4, "retention"), (5, "")])
def test_commit_times_and_retentions_of_old_versions_are_kept(version: int, field: str) -> None:
    async def scenario(server: Server) -> None:
        fields = server.commit_fields(version, 41)
        now_ms = server.clock.now_ms()
        if field == "commit_timestamp":
            fields["topics"][0].partitions[0].commit_timestamp = 123
        elif field == "retention":
            fields["retention_time_ms"] = 5_000
        await server.call(ApiKey.OFFSET_COMMIT, version, **fields)
        _, (found,) = server.broker.coordinator.fetch("simple", None, require_stable=False)
        assert found.committed is not None
        assert found.committed.commit_timestamp_ms == (123 if field == "commit_timestamp" else now_ms)
        assert found.committed.expire_timestamp_ms == (now_ms + 5_000 if field == "retention" else -1)

    served(scenario)


def test_version_0_keeps_offsets_in_zookeeper() -> None:
    async def scenario(server: Server) -> None:
        for offset in (41, 42):
            answer = await server.call(ApiKey.OFFSET_COMMIT, 0, **server.commit_fields(0, offset))
            assert [each.error_code for each in answer.topics[0].partitions] == [0, 3]
        assert server.store.data(znodes.consumer_offset_path("simple", "t", 1)) == b"42"
        module = codec.module(ApiKey.OFFSET_FETCH)
        topic = module.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1, 5])
        response = await server.call(ApiKey.OFFSET_FETCH, 0, group_id="simple", topics=[topic])
        found = [
            (each.partition_index, each.committed_offset, each.error_code) for each in response.topics[0].partitions
        ]
        assert found == [(0, -1, 3), (1, 42, 0), (5, -1, 3)]
        assert [*server.broker.coordinator.list()[1]] == []
        refused = await server.call(ApiKey.OFFSET_COMMIT, 0, **(server.commit_fields(0, 1) | {"group_id": ""}))
        assert refused.topics[0].partitions[0].error_code == ErrorCode.INVALID_GROUP_ID

    served(scenario)


def test_a_topic_made_again_begins_without_the_offsets_of_the_one_whose_deletion_was_not_heard() -> None:
    """The controller died with the news queued, or this broker had no session: readers went on in the middle."""

    async def scenario(server: Server) -> None:
        module = codec.module(ApiKey.OFFSET_FETCH)

        async def committed() -> int:
            topic = module.OffsetFetchRequestTopic(name="t", partition_indexes=[1])
            response = await server.call(ApiKey.OFFSET_FETCH, 7, group_id="simple", topics=[topic])
            return int(response.topics[0].partitions[0].committed_offset)

        server.add_topic("t", 2, topic_id=b"a" * 16)
        await server.call(ApiKey.OFFSET_COMMIT, 7, **server.commit_fields(7, 40))
        await server.tell("t", 3, b"a" * 16)
        assert await committed() == 40
        await server.tell("t", 2, b"b" * 16)
        assert await committed() == -1

    served(scenario)


@versions(ApiKey.OFFSET_FETCH, 1)
def test_an_error_of_the_group_reaches_old_and_new_clients(version: int) -> None:
    async def scenario(server: Server) -> None:
        server.broker.coordinator.partitions.on_resignation(partition_for("g", PARTITIONS), 1)
        module = codec.module(ApiKey.OFFSET_FETCH)
        if version >= 8:
            groups = [module.OffsetFetchRequestGroup(group_id="g", topics=None)]
            response = await server.call(ApiKey.OFFSET_FETCH, version, groups=groups)
            errors = [response.groups[0].error_code]
        else:
            topic = module.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
            response = await server.call(ApiKey.OFFSET_FETCH, version, group_id="g", topics=[topic])
            errors = [response.topics[0].partitions[0].error_code if version == 1 else response.error_code]
        assert errors == [ErrorCode.NOT_COORDINATOR]

    served(scenario)


@versions(ApiKey.DESCRIBE_GROUPS)
def test_describe_groups_shows_members_and_operations(version: int) -> None:
    async def scenario(server: Server) -> None:
        member_id, _ = await server.stable_member()
        asked = {"groups": ["g", "nobody"]} | ({"include_authorized_operations": True} if version >= 3 else {})
        response = await server.call(ApiKey.DESCRIBE_GROUPS, version, **asked)
        group, nobody = response.groups
        assert (group.error_code, group.group_state, group.protocol_type) == (0, "Stable", "consumer")
        assert group.protocol_data == "range"
        (member,) = group.members
        assert (member.member_id, member.client_id, member.client_host) == (member_id, "app", "/127.0.0.1")
        assert (bytes(member.member_metadata), bytes(member.member_assignment)) == (b"meta", b"assigned")
        assert (nobody.error_code, nobody.group_state, nobody.members) == (0, "Dead", [])
        if version >= 3:
            assert (
                group.authorized_operations == nobody.authorized_operations == mask(*operations_of(ResourceType.GROUP))
            )
            silent = await server.call(ApiKey.DESCRIBE_GROUPS, version, groups=["g"])
            assert silent.groups[0].authorized_operations == NOT_ASKED

    served(scenario)


@versions(ApiKey.LIST_GROUPS)
def test_list_groups_filters_by_state_and_type(version: int) -> None:
    async def scenario(server: Server) -> None:
        await server.stable_member()
        await server.call(ApiKey.OFFSET_COMMIT, 9, **server.commit_fields(9, 1))

        async def names(**filters: list[str]) -> list[str]:
            response = await server.call(ApiKey.LIST_GROUPS, version, **filters)
            assert response.error_code == 0
            return sorted(group.group_id for group in response.groups)

        assert await names() == ["g", "simple"]
        if version >= 4:
            assert await names(states_filter=["sTABLE"]) == ["g"]
            assert await names(states_filter=["Empty", "Stable"]) == ["g", "simple"]
            assert await names(states_filter=["Dead"]) == []
        if version >= 5:
            assert await names(types_filter=["Classic"]) == ["g", "simple"]
            assert await names(types_filter=["consumer"]) == []

    served(scenario)


@versions(ApiKey.DELETE_GROUPS)
def test_delete_groups_answers_each_group_once(version: int) -> None:
    async def scenario(server: Server) -> None:
        await server.stable_member()
        await server.call(ApiKey.OFFSET_COMMIT, 9, **server.commit_fields(9, 1))
        response = await server.call(ApiKey.DELETE_GROUPS, version, groups_names=["simple", "g", "simple", "nobody"])
        assert [(result.group_id, result.error_code) for result in response.results] == [
            ("simple", 0),
            ("g", ErrorCode.NON_EMPTY_GROUP),
            ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
        ]

    served(scenario)


def test_offset_delete_answers_each_partition() -> None:
    async def scenario(server: Server) -> None:
        await server.call(ApiKey.OFFSET_COMMIT, 9, **server.commit_fields(9, 1))
        module = codec.module(ApiKey.OFFSET_DELETE)
        partitions = [module.OffsetDeleteRequestPartition(partition_index=index) for index in (0, 1, 5)]
        topics = [module.OffsetDeleteRequestTopic(name="t", partitions=partitions)]
        response = await server.call(ApiKey.OFFSET_DELETE, 0, group_id="simple", topics=topics)
        assert response.error_code == 0
        found = [(each.partition_index, each.error_code) for each in response.topics[0].partitions]
        assert found == [(0, 0), (1, 0), (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        assert server.broker.coordinator.describe("simple").state == "Dead", "nothing is left of it"
        response = await server.call(ApiKey.OFFSET_DELETE, 0, group_id="simple", topics=topics)
        assert (response.error_code, response.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])

    served(scenario)


@versions(ApiKey.INIT_PRODUCER_ID)
def test_init_producer_id_without_transactional_id_gives_ids(version: int) -> None:
    async def scenario(server: Server) -> None:
        answers = await asyncio.gather(
            *[server.call(ApiKey.INIT_PRODUCER_ID, version, transactional_id=None) for _ in range(3)]
        )
        assert [(each.error_code, each.producer_epoch) for each in answers] == [(0, 0)] * 3
        assert [each.producer_id for each in answers] == [0, 1, 2]
        if version >= 3:
            again = await server.call(
                ApiKey.INIT_PRODUCER_ID, version, transactional_id=None, producer_id=1, producer_epoch=4
            )
            assert (again.error_code, again.producer_id, again.producer_epoch) == (0, 3, 0)
            broken = await server.call(ApiKey.INIT_PRODUCER_ID, version, transactional_id=None, producer_id=1)
            assert broken.error_code == ErrorCode.INVALID_REQUEST

    served(scenario)


def test_without_zookeeper_a_producer_is_told_to_try_again() -> None:
    async def scenario(server: Server) -> None:
        server.services.coordination.abandon()
        answer = await server.call(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None)
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.retriable

    served(scenario)

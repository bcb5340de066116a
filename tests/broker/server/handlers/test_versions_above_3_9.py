"""What the versions above those of Apache Kafka 3.9 change, asked over the wire of a fleet that is all ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.testing import RunningCluster, cluster
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import (
    alter_partition_reassignments,
    create_topics,
    describe_cluster,
    describe_groups,
    describe_log_dirs,
    fetch,
    find_coordinator,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
)
from ottla_broker.records.record import Record, build_batch, decode_records
from tests.integration.wire import Wire, produce_request

TOPIC = "t"


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningCluster]:
    with cluster(brokers=3, disks=2) as found:
        request = create_topics.CreateTopicsRequest(
            topics=[
                create_topics.CreatableTopic(
                    name=TOPIC,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[create_topics.CreatableReplicaAssignment(partition_index=0, broker_ids=[0, 1])],
                )
            ],
            timeout_ms=60_000,
        )
        (created,) = ask(found, controller(found), ApiKey.CREATE_TOPICS, 7, request).topics
        assert created.error_code == ErrorCode.NONE
        found.run(_known(found))
        batch = build_batch([Record(0, -1, None, b"a"), Record(1, -1, None, b"b")])
        ask(found, 0, ApiKey.PRODUCE, 11, produce_request(TOPIC, batch))
        yield found


async def _known(fleet: RunningCluster) -> None:
    """Until broker 0 leads the partition."""
    assert fleet.fleet is not None
    manager = fleet.fleet.brokers[0].replica_manager
    assert manager is not None
    while isinstance(manager.leader_or_error(TOPIC, 0, -1), ErrorCode):
        await fleet.fleet.brokers[0]._ports.clock.sleep(0.01)


def ask(fleet: RunningCluster, broker: int, api_key: ApiKey, version: int, request: Any) -> Any:
    with Wire(fleet.address(broker)) as wire:
        return wire.ask(api_key, version, request)


def controller(fleet: RunningCluster) -> int:
    assert fleet.fleet is not None
    (found,) = [one.broker_id for one in fleet.fleet.brokers.values() if one.controller and one.controller.is_active]
    return found


def topic_id(fleet: RunningCluster) -> bytes:
    request = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=TOPIC)])
    response = ask(fleet, 0, ApiKey.METADATA, 13, request)
    assert response.error_code == ErrorCode.NONE
    found: bytes = response.topics[0].topic_id
    return found


def test_fetch_18_answers_a_request_with_a_high_watermark(fleet: RunningCluster) -> None:
    wanted = fetch.FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=1_000_000, current_leader_epoch=-1, high_watermark=1
    )
    request = fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_epoch=-1,
        topics=[fetch.FetchTopic(topic_id=topic_id(fleet), partitions=[wanted])],
    )
    response = ask(fleet, 0, ApiKey.FETCH, 18, request)
    (data,) = response.responses[0].partitions
    assert data.error_code == ErrorCode.NONE
    assert [record.value for record in decode_records(data.records)] == [b"a", b"b"]


@pytest.mark.parametrize(("version", "error"), [(10, ErrorCode.UNSUPPORTED_VERSION), (11, ErrorCode.NONE)])
def test_the_earliest_offset_that_waits_for_tiered_storage_is_unknown(
    fleet: RunningCluster, version: int, error: ErrorCode
) -> None:
    wanted = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-6)
    request = list_offsets.ListOffsetsRequest(
        replica_id=-1, timeout_ms=1000, topics=[list_offsets.ListOffsetsTopic(name=TOPIC, partitions=[wanted])]
    )
    (found,) = ask(fleet, 0, ApiKey.LIST_OFFSETS, version, request).topics[0].partitions
    assert (found.error_code, found.offset, found.timestamp, found.leader_epoch) == (error, -1, -1, -1)


@pytest.mark.parametrize(
    ("version", "error", "message"),
    [(5, ErrorCode.NONE, None), (6, ErrorCode.GROUP_ID_NOT_FOUND, "Group nobody not found.")],
)
def test_an_unknown_group_is_an_error_from_describe_groups_6_on(
    fleet: RunningCluster, version: int, error: ErrorCode, message: str | None
) -> None:
    coordinator = find_coordinator.FindCoordinatorRequest(coordinator_keys=["nobody"])
    while (place := ask(fleet, 0, ApiKey.FIND_COORDINATOR, 6, coordinator).coordinators[0]).error_code:
        pass  # its topic is being created; every round is a request over a socket
    request = describe_groups.DescribeGroupsRequest(groups=["nobody"])
    retried = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
    while (
        found := ask(fleet, place.node_id, ApiKey.DESCRIBE_GROUPS, version, request).groups[0]
    ).error_code in retried:
        pass
    assert (found.error_code, found.error_message, found.group_state) == (error, message, "Dead")


def test_no_broker_is_fenced(fleet: RunningCluster) -> None:
    request = describe_cluster.DescribeClusterRequest(include_fenced_brokers=True)
    response = ask(fleet, 0, ApiKey.DESCRIBE_CLUSTER, 2, request)
    assert [(broker.broker_id, broker.is_fenced) for broker in response.brokers] == [(n, False) for n in range(3)]


def test_a_cordoned_log_directory_is_shown(fleet: RunningCluster) -> None:
    assert fleet.fleet is not None
    manager = fleet.fleet.brokers[2].log_manager
    before, (first, second) = manager.cordoned, manager.paths
    manager.cordoned = (second,)
    request = describe_log_dirs.DescribeLogDirsRequest(topics=None)
    response = ask(fleet, 2, ApiKey.DESCRIBE_LOG_DIRS, 5, request)
    manager.cordoned = before
    assert {one.log_dir: one.is_cordoned for one in response.results} == {first: False, second: True}


@pytest.mark.parametrize(
    ("allowed", "replicas", "error"),
    [
        (False, [0, 1, 2], ErrorCode.INVALID_REPLICATION_FACTOR),
        (False, [0], ErrorCode.INVALID_REPLICATION_FACTOR),
        (False, [1, 0], ErrorCode.NONE),
        (False, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_a_reassignment_that_may_not_change_the_replication_factor_keeps_it(
    fleet: RunningCluster, allowed: bool, replicas: list[int] | None, error: ErrorCode
) -> None:
    wanted = alter_partition_reassignments.ReassignablePartition(partition_index=0, replicas=replicas)
    request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=allowed,
        topics=[alter_partition_reassignments.ReassignableTopic(name=TOPIC, partitions=[wanted])],
    )
    response = ask(fleet, controller(fleet), ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, request)
    assert (response.error_code, response.allow_replication_factor_change) == (ErrorCode.NONE, allowed)
    assert response.responses[0].partitions[0].error_code == error


UNKNOWN_ID = bytes(range(16))


def produce_by_id(*topic_ids: bytes) -> Any:
    batch = build_batch([Record(0, -1, None, b"c")])
    return produce.ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            produce.TopicProduceData(
                topic_id=topic_id, partition_data=[produce.PartitionProduceData(index=0, records=batch)]
            )
            for topic_id in topic_ids
        ],
    )


@pytest.mark.parametrize("acks", [1, -1])
def test_produce_13_names_topics_by_id(fleet: RunningCluster, acks: int) -> None:
    known = topic_id(fleet)
    request = produce_by_id(UNKNOWN_ID, known)
    request.acks = acks
    response = ask(fleet, 0, ApiKey.PRODUCE, 13, request)
    assert [(one.topic_id, one.partition_responses[0].error_code) for one in response.responses] == [
        (UNKNOWN_ID, ErrorCode.UNKNOWN_TOPIC_ID),
        (known, ErrorCode.NONE),
    ]


def test_a_topic_without_a_name_is_unknown_before_version_13(fleet: RunningCluster) -> None:
    batch = build_batch([Record(0, -1, None, b"c")])
    response = ask(fleet, 0, ApiKey.PRODUCE, 12, produce_request("", batch))
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_produce_13_answers_a_follower_with_the_leader(fleet: RunningCluster) -> None:
    response = ask(fleet, 1, ApiKey.PRODUCE, 13, produce_by_id(topic_id(fleet)))
    (found,) = response.responses[0].partition_responses
    assert (found.error_code, found.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
    assert [endpoint.node_id for endpoint in response.node_endpoints] == [0]


def test_produce_13_does_not_write_to_the_replica_of_an_earlier_topic_of_the_name(fleet: RunningCluster) -> None:
    """The metadata has the new topic before this broker has exchanged its replica."""
    assert fleet.fleet is not None
    manager = fleet.fleet.brokers[0].replica_manager
    assert manager is not None
    known = topic_id(fleet)
    partition = manager.topics[TOPIC][0]
    end = partition.log.state.log_end_offset
    partition.topic_id = UNKNOWN_ID
    try:
        response = ask(fleet, 0, ApiKey.PRODUCE, 13, produce_by_id(known))
    finally:
        partition.topic_id = known
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert partition.log.state.log_end_offset == end


def test_offsets_are_committed_and_fetched_by_topic_id(fleet: RunningCluster) -> None:
    group, known = "by-id", topic_id(fleet)
    coordinator = find_coordinator.FindCoordinatorRequest(coordinator_keys=[group])
    while (place := ask(fleet, 0, ApiKey.FIND_COORDINATOR, 6, coordinator).coordinators[0]).error_code:
        pass  # its topic is being created; every round is a request over a socket

    def commit(*topic_ids: bytes) -> dict[bytes, int]:
        request = offset_commit.OffsetCommitRequest(
            group_id=group,
            topics=[
                offset_commit.OffsetCommitRequestTopic(
                    topic_id=one,
                    partitions=[offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)],
                )
                for one in topic_ids
            ],
        )
        response = ask(fleet, place.node_id, ApiKey.OFFSET_COMMIT, 10, request)
        return {one.topic_id: one.partitions[0].error_code for one in response.topics}

    def fetched(topics: list[Any] | None) -> Any:
        request = offset_fetch.OffsetFetchRequest(
            groups=[offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=topics)]
        )
        (found,) = ask(fleet, place.node_id, ApiKey.OFFSET_FETCH, 10, request).groups
        assert found.error_code == ErrorCode.NONE
        return [
            (one.topic_id, one.partitions[0].committed_offset, one.partitions[0].error_code) for one in found.topics
        ]

    while commit(known)[known] in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        pass
    assert commit(UNKNOWN_ID, known) == {known: ErrorCode.NONE, UNKNOWN_ID: ErrorCode.UNKNOWN_TOPIC_ID}
    assert fetched(None) == [(known, 7, ErrorCode.NONE)]
    asked = [offset_fetch.OffsetFetchRequestTopics(topic_id=one, partition_indexes=[0]) for one in (UNKNOWN_ID, known)]
    assert fetched(asked) == [(known, 7, ErrorCode.NONE), (UNKNOWN_ID, -1, ErrorCode.UNKNOWN_TOPIC_ID)]


@pytest.mark.parametrize("acks", [0, 1])
def test_a_request_of_several_transactional_producers_is_refused_and_with_acks_0_its_connection_closed(
    fleet: RunningCluster, acks: int
) -> None:
    """Once seed 1034 of the fuzzer: a request that wants no answer got one."""
    batches = [
        build_batch([Record(0, -1, None, b"x")], attributes=0x10, producer_id=one, producer_epoch=0, base_sequence=0)
        for one in (1, 2)
    ]
    request = produce.ProduceRequest(
        transactional_id="t",
        acks=acks,
        timeout_ms=10_000,
        topic_data=[
            produce.TopicProduceData(
                name=TOPIC,
                partition_data=[
                    produce.PartitionProduceData(index=index, records=bytes(batch))
                    for index, batch in enumerate(batches)
                ],
            )
        ],
    )
    with Wire(fleet.address(0)) as wire:
        wire.send(wire.request_bytes(ApiKey.PRODUCE, 11, request))
        if acks == 0:
            assert wire.frame() is None
        else:
            found = wire.answer(ApiKey.PRODUCE, 11).responses[0].partition_responses
            assert {one.error_code for one in found} == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}

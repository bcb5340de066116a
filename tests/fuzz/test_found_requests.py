"""Requests that a broker once mishandled, as the fuzzer found them: each is answered, and the broker goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.record import build_batch, build_records
from simulation.client import Client, Unavailable
from simulation.cluster import SimulatedFleet
from simulation.world import World

Ask = Callable[[ApiKey, int, Any], Awaitable[Any]]
Scene = Callable[[World, Ask], Awaitable[None]]


def with_a_broker(scene: Scene) -> None:
    """Runs `scene` against one simulated broker with the topic "t" of one partition."""
    world = World(1)

    async def run() -> None:
        fleet = SimulatedFleet(world, 1, {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1"})
        await fleet.start()
        client = Client(world, fleet.fabric, "client", "10.1.0.1", fleet.bootstrap)

        async def ask(api_key: ApiKey, version: int, request: Any) -> Any:
            return await client.request(fleet.bootstrap[0], api_key, version, request, timeout_s=60.0)

        topics = codec.module(ApiKey.CREATE_TOPICS)
        topic = topics.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        await ask(ApiKey.CREATE_TOPICS, 7, topics.CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        await scene(world, ask)

    world.run(run())
    world.discard()
    assert world.problems == []


def produce(value: bytes) -> Any:
    api = codec.module(ApiKey.PRODUCE)
    records = bytes(build_batch(build_records([(None, value)], timestamp=1_700_000_000_000)))
    part = api.PartitionProduceData(index=0, records=records)
    data = api.TopicProduceData(name="t", partition_data=[part])
    return api.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])


def fetch(*, offset: int, partition_max_bytes: int, max_wait_ms: int) -> Any:
    api = codec.module(ApiKey.FETCH)
    part = api.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
    topic = api.FetchTopic(topic="t", partitions=[part])
    return api.FetchRequest(replica_id=-1, max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=2**31 - 1, topics=[topic])


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize("partition_max_bytes", [0, -1])
@pytest.mark.parametrize("offset", [0, 1], ids=["records", "no records"])
def test_an_old_fetch_that_has_room_for_nothing_is_answered_after_its_wait(
    offset: int, partition_max_bytes: int, version: int
) -> None:
    async def scene(world: World, ask: Ask) -> None:
        await ask(ApiKey.PRODUCE, 9, produce(b"v"))
        request = fetch(offset=offset, partition_max_bytes=partition_max_bytes, max_wait_ms=5000)
        before = world.loop.callbacks_run
        answer = await ask(ApiKey.FETCH, version, request)
        assert world.loop.callbacks_run - before < 1000, "the fetch computes while it waits"
        (found,) = answer.responses[0].partitions
        assert found.error_code == ErrorCode.NONE
        # From version 3 on the first batch comes whatever its size (KIP-74).
        assert bool(found.records) == (version == 3 and offset == 0)

    with_a_broker(scene)


@pytest.mark.parametrize("version", [1, 4, 7])
def test_a_partition_named_twice_in_one_leader_and_isr_has_the_state_that_comes_last(
    version: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(world: World, ask: Ask) -> None:
        await offsets_topic_exists(ask)
        api = codec.module(ApiKey.LEADER_AND_ISR)
        states = [
            api.LeaderAndIsrPartitionState(
                topic_name="__consumer_offsets" if version < 2 else "",
                partition_index=0,
                controller_epoch=1,
                leader=leader,
                leader_epoch=epoch,
                isr=[0],
                partition_epoch=epoch,
                replicas=[0, 1],
            )
            for leader, epoch in ((0, 7), (1, 8))
        ]
        request = api.LeaderAndIsrRequest(controller_id=0, controller_epoch=1, broker_epoch=-1)
        if version < 2:
            request.ungrouped_partition_states = states
        else:
            request.topic_states = [
                api.LeaderAndIsrTopicState(topic_name="__consumer_offsets", topic_id=ZERO_UUID, partition_states=[one])
                for one in states
            ]
        answer = await ask(ApiKey.LEADER_AND_ISR, version, request)
        assert answer.error_code == ErrorCode.NONE
        await asyncio.sleep(10)  # virtual: a broker that loads what it does not lead tries again every second
        offsets = codec.module(ApiKey.OFFSET_FETCH)
        found = await ask(ApiKey.OFFSET_FETCH, 5, offsets.OffsetFetchRequest(group_id="g", topics=None))
        assert found.error_code == ErrorCode.NOT_COORDINATOR

    with_a_broker(scene)
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR] == []


async def offsets_topic_exists(ask: Ask) -> None:
    api = codec.module(ApiKey.FIND_COORDINATOR)
    while True:
        answer = await ask(ApiKey.FIND_COORDINATOR, 1, api.FindCoordinatorRequest(key="g", key_type=0))
        if not answer.error_code:
            return
        await asyncio.sleep(0.1)


def test_metadata_of_names_that_are_no_topics_is_left_out() -> None:
    async def scene(world: World, ask: Ask) -> None:
        api = codec.module(ApiKey.UPDATE_METADATA)
        states = [
            api.UpdateMetadataTopicState(
                topic_name=name,
                partition_states=[
                    api.UpdateMetadataPartitionState(partition_index=0, leader=0, isr=[0], zk_version=0, replicas=[0])
                ],
            )
            for name in ("good", ".", "../x", "a\0b")
        ]
        brokers = [api.UpdateMetadataBroker(id=0, endpoints=[])]
        request = api.UpdateMetadataRequest(
            controller_id=0, controller_epoch=1, broker_epoch=-1, topic_states=states, live_brokers=brokers
        )
        assert (await ask(ApiKey.UPDATE_METADATA, 8, request)).error_code == ErrorCode.NONE
        offsets = codec.module(ApiKey.OFFSET_FETCH)
        topics = [offsets.OffsetFetchRequestTopic(name=one.topic_name, partition_indexes=[0]) for one in states]
        answer = await ask(ApiKey.OFFSET_FETCH, 0, offsets.OffsetFetchRequest(group_id="g", topics=topics))
        assert [one.name for one in answer.topics] == [one.topic_name for one in states]

    with_a_broker(scene)


@pytest.mark.parametrize("name", [".", ".."])
def test_a_client_metrics_resource_may_have_a_name_that_is_no_znode(name: str) -> None:
    async def scene(world: World, ask: Ask) -> None:
        configs = codec.module(ApiKey.INCREMENTAL_ALTER_CONFIGS)
        change = configs.AlterableConfig(name="interval.ms", config_operation=0, value="1000")
        resource = configs.AlterConfigsResource(resource_type=16, resource_name=name, configs=[change])
        request = configs.IncrementalAlterConfigsRequest(resources=[resource])
        (answer,) = (await ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)).responses
        assert answer.error_code == ErrorCode.NONE, answer
        describe = codec.module(ApiKey.DESCRIBE_CONFIGS)
        asked = describe.DescribeConfigsResource(resource_type=16, resource_name=name)
        request = describe.DescribeConfigsRequest(resources=[asked])
        (found,) = (await ask(ApiKey.DESCRIBE_CONFIGS, 4, request)).results
        assert [(one.name, one.value) for one in found.configs] == [("interval.ms", "1000")]

    with_a_broker(scene)


@pytest.mark.parametrize("version", [3, 9])
def test_a_produce_with_acks_0_is_never_answered_not_even_with_a_refusal(version: int) -> None:
    """Its client takes the next answer for that to its next request."""

    async def scene(world: World, ask: Ask) -> None:
        request = produce(b"v")
        request.acks, request.transactional_id = 0, "id"
        (data,) = request.topic_data[0].partition_data
        for producer_id in (1, 2):
            batch = build_batch(
                build_records([(None, b"v")]),
                attributes=0x10,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
            )
            request.topic_data[0].partition_data.append(
                codec.module(ApiKey.PRODUCE).PartitionProduceData(index=producer_id, records=bytes(batch))
            )
        request.topic_data[0].partition_data.remove(data)
        with pytest.raises(Unavailable, match="closed the connection"):
            await ask(ApiKey.PRODUCE, version, request)

    with_a_broker(scene)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_an_offset_may_be_kept_for_longer_than_there_are_timestamps(version: int) -> None:
    async def scene(world: World, ask: Ask) -> None:
        await offsets_topic_exists(ask)
        api, find = codec.module(ApiKey.OFFSET_COMMIT), codec.module(ApiKey.OFFSET_FETCH)
        part = api.OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
        topic = api.OffsetCommitRequestTopic(name="t", partitions=[part])
        request = api.OffsetCommitRequest(group_id="g", retention_time_ms=2**63 - 1, topics=[topic])
        answer = await ask(ApiKey.OFFSET_COMMIT, version, request)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        wanted = find.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
        found = await ask(ApiKey.OFFSET_FETCH, 5, find.OffsetFetchRequest(group_id="g", topics=[wanted]))
        assert found.topics[0].partitions[0].committed_offset == 7

    with_a_broker(scene)

"""No request of many partitions that this broker has holds the loop, and none of its answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bench.hostile.many_elements import TOPIC
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.replication.fetch.fetch_values import MANY
from tests.broker.server.edge.line_counting import MOST_LINES, Broker, answered, produced

PARTITIONS = 1200
"""More than twice of what is handled at once. Handling one takes 100 lines and more, so all of them at once would be
twice what a callback may run."""

MOST = 3 * MOST_LINES
"""An answer with records has two chunks for each partition, which are framed and queued at once."""

_VERSION = 12


def fetch_request(offset: int | None, **fields: Any) -> Any:
    """A Fetch of all partitions from an offset on; None: it names none."""
    fetch = codec.module(ApiKey.FETCH)
    wanted = [
        fetch.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=100_000)
        for index in range(PARTITIONS)
    ]
    topics = [] if offset is None else [fetch.FetchTopic(topic=TOPIC, partitions=wanted)]
    values = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 50_000_000, "session_epoch": -1, **fields}
    return fetch.FetchRequest(topics=topics, **values)


async def fetch(broker: Broker, client: Any, request: Any, version: int = _VERSION) -> Any:
    """The answer; no callback may be long meanwhile."""
    with broker.counting():
        response = await client.request(broker.address, ApiKey.FETCH, version, request)
    assert broker.most_lines < MOST, broker.longest
    assert response.error_code == 0
    return response


def entries_of(response: Any) -> list[Any]:
    assert len(response.responses) <= 1  # a topic is divided for no reader
    return [data for topic in response.responses for data in topic.partitions]


def indexes_of(response: Any) -> list[int]:
    return [data.partition_index for data in entries_of(response)]


def with_records(response: Any) -> list[int]:
    return [data.partition_index for data in entries_of(response) if len(data.records)]


async def produce_to_all(broker: Broker) -> None:
    response = await broker.client().request(broker.address, ApiKey.PRODUCE, 9, produced(range(PARTITIONS)))
    assert {entry.error_code for topic in response.responses for entry in topic.partition_responses} == {0}


@pytest.mark.parametrize("version", [3, 12])
def test_a_fetch_without_a_session_waits_and_then_has_the_records_of_all_partitions(version: int) -> None:
    async def scenario(broker: Broker) -> None:
        client = broker.client()
        empty = await fetch(broker, client, fetch_request(0), version)
        assert indexes_of(empty) == [*range(PARTITIONS)]
        assert with_records(empty) == []
        await produce_to_all(broker)
        full = await fetch(broker, client, fetch_request(0), version)
        assert indexes_of(full) == with_records(full) == [*range(PARTITIONS)]

    answered(scenario, partitions=PARTITIONS)


def test_a_session_of_many_partitions_names_those_with_news() -> None:
    async def scenario(broker: Broker) -> None:
        client = broker.client()
        opened = await fetch(broker, client, fetch_request(0, session_epoch=0))
        assert indexes_of(opened) == [*range(PARTITIONS)]
        session: dict[str, Any] = {"session_id": opened.session_id}
        assert opened.session_id
        await produce_to_all(broker)
        news = await fetch(broker, client, fetch_request(None, **session, session_epoch=1))
        assert sorted(with_records(news)) == [*range(PARTITIONS)]
        ends = await fetch(broker, client, fetch_request(1, **session, session_epoch=2))
        assert indexes_of(ends) == []
        await broker.client().request(broker.address, ApiKey.PRODUCE, 9, produced([7]))
        one = await fetch(broker, client, fetch_request(None, **session, session_epoch=3))
        assert with_records(one) == [7]

    answered(scenario, partitions=PARTITIONS)


@pytest.mark.parametrize("is_in_session", [False, True])
def test_a_fetch_that_waits_is_answered_when_enough_has_come_to_its_partitions(is_in_session: bool) -> None:
    async def scenario(broker: Broker) -> None:
        client = broker.client()
        fields: dict[str, Any] = {"max_wait_ms": 60_000, "min_bytes": 60 * 100}
        if is_in_session:
            opened = await fetch(broker, client, fetch_request(0, session_epoch=0))
            waiting = fetch_request(None, session_id=opened.session_id, session_epoch=1, **fields)
        else:
            waiting = fetch_request(0, **fields)
        with broker.counting():
            answer = await client.post(broker.address, ApiKey.FETCH, _VERSION, waiting)
            for first in (0, 50, 100):  # 69 bytes each
                await broker.client().request(broker.address, ApiKey.PRODUCE, 9, produced(range(first, first + 50)))
            response = await answer
        assert broker.most_lines < MOST, broker.longest
        assert sum(len(data.records) for data in entries_of(response)) >= 60 * 100

    answered(scenario, partitions=PARTITIONS)


def test_a_second_request_of_a_session_ends_the_first_one() -> None:
    async def scenario(broker: Broker) -> None:
        client, other = broker.client(), broker.client()
        opened = await fetch(broker, client, fetch_request(0, session_epoch=0))
        named = fetch_request(0, session_id=opened.session_id, session_epoch=1, max_wait_ms=60_000)
        first = await client.post(broker.address, ApiKey.FETCH, _VERSION, named)
        error = 71  # INVALID_FETCH_SESSION_EPOCH: the first one is not handled yet, or it waits
        while error == 71:
            later = fetch_request(None, session_id=opened.session_id, session_epoch=2, max_wait_ms=0)
            error = (await other.request(broker.address, ApiKey.FETCH, _VERSION, later)).error_code
        assert error == 0
        assert (await first).error_code == 71

    answered(scenario, partitions=PARTITIONS)


@pytest.mark.parametrize(("rate", "is_throttled"), [(1e12, False), (1.0, True)])
def test_the_quota_of_a_client_counts_all_partitions(rate: float, is_throttled: bool) -> None:
    async def scenario(broker: Broker) -> None:
        quotas = codec.module(ApiKey.ALTER_CLIENT_QUOTAS)
        client = broker.client()
        entity = quotas.EntityData(entity_type="client-id", entity_name=client.name)
        entry = quotas.EntryData(entity=[entity], ops=[quotas.OpData(key="consumer_byte_rate", value=rate)])
        request = quotas.AlterClientQuotasRequest(entries=[entry], validate_only=False)
        response = await client.request(broker.address, ApiKey.ALTER_CLIENT_QUOTAS, 1, request)
        assert [each.error_code for each in response.entries] == [0]
        await asyncio.sleep(2)
        found = await fetch(broker, client, fetch_request(0, max_wait_ms=0))
        assert indexes_of(found) == ([] if is_throttled else [*range(PARTITIONS)])
        assert (found.throttle_time_ms > 0) == is_throttled

    answered(scenario, partitions=PARTITIONS)


def test_the_fetches_of_a_follower_of_many_partitions_acknowledge_all_of_them() -> None:
    """And takes turns in between: twice, as its session begins with one request and goes on with another."""

    async def scenario(broker: Broker) -> None:
        client = broker.client()
        metadata = codec.module(ApiKey.METADATA)
        wanted = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=TOPIC)])
        (topic,) = (await client.request(broker.address, ApiKey.METADATA, 9, wanted)).topics
        led = [each.partition_index for each in topic.partitions if each.leader_id == 0]
        assert len(led) == PARTITIONS // 2 > MANY
        for _ in range(2):
            with broker.counting("fetcher "):
                response = await client.request(broker.address, ApiKey.PRODUCE, 9, produced(led))  # acks=all
            assert 0 < broker.most_lines < MOST, broker.longest
            results = [data for topic in response.responses for data in topic.partition_responses]
            assert {data.error_code for data in results} == {0} and len(results) == len(led)

    answered(scenario, brokers=2, partitions=PARTITIONS, replication_factor=2)


def test_a_client_that_goes_away_ends_its_fetch() -> None:
    async def scenario(broker: Broker) -> None:
        client = broker.client()
        await client.post(broker.address, ApiKey.FETCH, _VERSION, fetch_request(0, max_wait_ms=60_000))
        client.close()
        response = await fetch(broker, broker.client(), fetch_request(0))
        assert indexes_of(response) == [*range(PARTITIONS)]

    answered(scenario, partitions=PARTITIONS)


def test_markers_of_a_transaction_of_many_partitions() -> None:
    async def scenario(broker: Broker) -> None:
        markers = codec.module(ApiKey.WRITE_TXN_MARKERS)
        marker = markers.WritableTxnMarker(
            producer_id=77,
            producer_epoch=1,
            transaction_result=True,
            coordinator_epoch=1,
            topics=[markers.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[*range(PARTITIONS)])],
        )
        request = markers.WriteTxnMarkersRequest(markers=[marker])
        with broker.counting():
            response = await broker.client().request(broker.address, ApiKey.WRITE_TXN_MARKERS, 1, request)
        assert broker.most_lines < MOST, broker.longest
        (result,) = response.markers
        found = {entry.partition_index: entry.error_code for topic in result.topics for entry in topic.partitions}
        assert found == dict.fromkeys(range(PARTITIONS), 0)

    answered(scenario, partitions=PARTITIONS)


def test_an_update_of_the_metadata_of_many_partitions() -> None:
    async def scenario(broker: Broker) -> Any:
        update = codec.module(ApiKey.UPDATE_METADATA)
        host, port = broker.address
        endpoint = update.UpdateMetadataEndpoint(port=port, host=host, listener="PLAINTEXT", security_protocol=0)
        states = [
            update.UpdateMetadataPartitionState(
                partition_index=index, controller_epoch=1, leader=0, leader_epoch=1, isr=[0], replicas=[0]
            )
            for index in range(3 * PARTITIONS)
        ]
        request = update.UpdateMetadataRequest(
            controller_id=0,
            controller_epoch=1,
            broker_epoch=-1,
            live_brokers=[update.UpdateMetadataBroker(id=0, endpoints=[endpoint])],
            topic_states=[
                update.UpdateMetadataTopicState(topic_name="told", topic_id=bytes([1] * 16), partition_states=states)
            ],
        )
        client = broker.client()
        with broker.counting():
            response = await client.request(broker.address, ApiKey.UPDATE_METADATA, 7, request)
        assert broker.most_lines < MOST, broker.longest
        assert response.error_code == 0
        metadata = codec.module(ApiKey.METADATA)
        wanted = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="told")])
        (told,) = (await client.request(broker.address, ApiKey.METADATA, 9, wanted)).topics
        assert [each.partition_index for each in told.partitions] == [*range(3 * PARTITIONS)]

    answered(scenario)

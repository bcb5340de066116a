"""One broker: produce and fetch over the wire, in the versions and with the errors that clients see."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from ottla_broker.exposition import Exposition
from ottla_broker.metadata.cache import MetadataCache
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import api_versions as api_versions_api
from ottla_broker.protocol.generated import list_offsets as list_offsets_api
from ottla_broker.protocol.generated import metadata as metadata_api
from ottla_broker.protocol.generated import offset_for_leader_epoch as epoch_api
from ottla_broker.protocol.generated import produce as produce_api
from ottla_broker.records import formats
from ottla_broker.records.compression import Codec
from ottla_broker.records.control_records import ControlType, EndTransactionMarker, build_marker
from ottla_broker.records.ids import TopicPartition
from ottla_broker.records.record import Record, build_batch
from ottla_broker.replication.replica_states.commands import StopCommand
from ottla_broker.server.edge.connection import MAX_PIPELINED_PRODUCES
from ottla_broker.server.peers.broker_client import BrokerDisconnected
from tests.broker.replication.fleet import (
    CLIENT,
    CLUSTER_ID,
    Fleet,
    Node,
    batch,
    fetch_request,
    produce_request,
    until,
    values_of,
)

STRANGER = uuid.UUID(int=7).bytes


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", [3, 8, 9, 11])
async def test_what_is_produced_is_fetched(one: Fleet, version: int, acks: int) -> None:
    first = await one.produce(1, "orders", "a", "b", acks=acks, version=version)
    second = await one.produce(1, "orders", "c", acks=acks, version=version)
    assert (first.error_code, first.base_offset, second.base_offset) == (0, 0, 2)
    for fetch_version in (4, 7, 11, 12, 13, 17):
        data = await one.fetch(1, "orders", version=fetch_version)
        assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 3, 3)
        assert values_of(data.records) == ["a", "b", "c"]


async def test_a_fetch_from_the_middle_begins_with_the_batch_that_holds_the_offset(one: Fleet) -> None:
    for values in (("a", "b"), ("c", "d")):
        await one.produce(1, "orders", *values)
    assert values_of((await one.fetch(1, "orders", 3)).records) == ["c", "d"]


async def test_acks_zero_gets_no_answer_and_the_records_are_there(one: Fleet) -> None:
    client = await one.client(1)
    silent = client.send(int(ApiKey.PRODUCE), 9, produce_request("orders", batch("a"), acks=0))
    assert await one.values(1, "orders") in (["a"], [])
    second = client.send(int(ApiKey.PRODUCE), 9, produce_request("orders", batch("b"), acks=-1))
    # The only answer that comes is the second request's, and the client holds it against the first.
    with pytest.raises(BrokerDisconnected, match="is due"):
        await silent
    with pytest.raises(BrokerDisconnected):
        await second
    assert await one.values(1, "orders") == ["a", "b"]


async def test_a_directory_that_hangs_is_not_buried_under_requests_with_acks_zero(one: Fleet) -> None:
    """They count as under way until they are written, so that a connection holds a bounded number of them."""
    node = one.nodes[1]
    is_released = threading.Event()
    node.disk._lane.call(is_released.wait)
    client = await one.client(1)
    silent = [
        client.send(int(ApiKey.PRODUCE), 9, produce_request("orders", batch("a"), acks=0))
        for _ in range(3 * MAX_PIPELINED_PRODUCES)
    ]
    log = node.partition("orders").log
    await until(lambda: log.state.assigned_offset >= MAX_PIPELINED_PRODUCES, "the requests are taken in")
    for _ in range(5):
        await one.ask(1, ApiKey.API_VERSIONS, 0, api_versions_api.ApiVersionsRequest())
    assert log.state.assigned_offset == MAX_PIPELINED_PRODUCES
    is_released.set()
    await until(lambda: log.state.log_end_offset == 3 * MAX_PIPELINED_PRODUCES, "the others follow")
    client.close()
    await asyncio.wait(silent)
    for one_of_them in silent:
        one_of_them.exception()


async def test_acks_zero_with_an_error_closes_the_connection(one: Fleet) -> None:
    client = await one.client(1)
    with pytest.raises(BrokerDisconnected):
        await client.send(int(ApiKey.PRODUCE), 9, produce_request("nowhere", batch("a"), acks=0))


async def test_pipelined_produces_keep_their_order_and_each_gets_its_offset(one: Fleet) -> None:
    client = await one.client(1)
    answers = [
        client.send(int(ApiKey.PRODUCE), 9, produce_request("orders", batch(str(number)))) for number in range(200)
    ]
    offsets = [(await answer).responses[0].partition_responses[0].base_offset for answer in answers]
    assert offsets == list(range(200))
    assert await one.values(1, "orders") == [str(number) for number in range(200)]


@pytest.mark.parametrize(
    ("topic", "acks", "records", "error"),
    [
        ("nowhere", -1, batch("a"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", 2, batch("a"), ErrorCode.INVALID_REQUIRED_ACKS),
        ("orders", -1, batch("a")[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE),
        ("orders", -1, batch("a")[:16] + b"\1" + batch("a")[17:], ErrorCode.INVALID_RECORD),
        ("orders", -1, batch("a") + batch("b"), ErrorCode.INVALID_RECORD),
        ("orders", -1, b"", ErrorCode.INVALID_RECORD),
    ],
)
async def test_a_refused_batch_gets_kafkas_error_and_leaves_nothing_behind(
    one: Fleet, topic: str, acks: int, records: bytes, error: ErrorCode
) -> None:
    request = produce_request(topic, records, acks=acks)
    response = await one.ask(1, ApiKey.PRODUCE, 11, request)
    part = response.responses[0].partition_responses[0]
    assert (ErrorCode.of(part.error_code), part.base_offset) == (error, -1)
    assert await one.values(1, "orders") == []


async def test_before_the_first_metadata_a_broker_calls_no_topic_unknown(one: Fleet) -> None:
    """It has just started, and a client that asks it for a topic's offsets must ask elsewhere, not give up."""
    metadata_cache = one.nodes[1].metadata
    one.nodes[1].dispatcher.services.replica_manager.metadata = MetadataCache(1)
    asked = list_offsets_api.ListOffsetsRequest(
        topics=[
            list_offsets_api.ListOffsetsTopic(
                name="nowhere", partitions=[list_offsets_api.ListOffsetsPartition(partition_index=0, timestamp=-2)]
            )
        ]
    )
    for error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        listed = await one.ask(1, ApiKey.LIST_OFFSETS, 5, asked)
        produced = await one.ask(1, ApiKey.PRODUCE, 9, produce_request("nowhere", batch("a")))
        fetched = await one.ask(1, ApiKey.FETCH, 12, fetch_request(bytes(16), "nowhere"))
        assert listed.topics[0].partitions[0].error_code == error
        assert produced.responses[0].partition_responses[0].error_code == error
        assert fetched.responses[0].partitions[0].error_code == error
        one.nodes[1].dispatcher.services.replica_manager.metadata = metadata_cache


async def test_zstd_needs_version_seven(one: Fleet) -> None:
    zstd = bytes(build_batch([Record(0, 1000, None, b"a")], codec=Codec.ZSTD))
    for version, error in ((6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (7, ErrorCode.NONE)):
        response = await one.ask(1, ApiKey.PRODUCE, version, produce_request("orders", zstd))
        assert response.responses[0].partition_responses[0].error_code == error
    assert await one.values(1, "orders") == ["a"]


async def test_one_bad_partition_does_not_touch_the_other(one: Fleet) -> None:
    request = produce_request("orders", batch("a"))
    request.topic_data[0].partition_data.append(produce_api.PartitionProduceData(index=9, records=batch("b")))
    response = await one.ask(1, ApiKey.PRODUCE, 11, request)
    codes = [part.error_code for part in response.responses[0].partition_responses]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await one.values(1, "orders") == ["a"]


# Fetch


async def test_a_long_poll_is_answered_by_the_next_record(one: Fleet) -> None:
    client = await one.client(1)
    request = fetch_request(one.topics["orders"].topic_id, "orders", max_wait_ms=60_000)
    waiting = client.send(int(ApiKey.FETCH), 17, request)
    partition = one.nodes[1].partition("orders")
    await until(lambda: partition.watermark_waiters, "the fetch waits")
    await one.produce(1, "orders", "a", index=1)
    assert not waiting.done()
    await one.produce(1, "orders", "a")
    data = (await waiting).responses[0].partitions[0]
    assert values_of(data.records) == ["a"]
    assert not partition.watermark_waiters


async def test_a_long_poll_for_more_bytes_than_there_are_gives_what_there_is_when_time_is_up(one: Fleet) -> None:
    await one.produce(1, "orders", "a")
    data = await one.fetch(1, "orders", max_wait_ms=30, min_bytes=100_000)
    assert values_of(data.records) == ["a"]
    data = await one.fetch(1, "orders", 1, max_wait_ms=30)
    assert (data.error_code, data.high_watermark, bytes(data.records)) == (0, 1, b"")


@pytest.mark.parametrize("version", [1, 3])
async def test_an_old_consumer_does_not_ask_for_a_marker_again_and_again(one: Fleet, version: int) -> None:
    """A marker of a transaction is something to fetch, and nothing that formats 0 and 1 can tell."""
    await one.produce(1, "orders", "a")
    partition = one.nodes[1].partition("orders")
    marker = build_marker(
        EndTransactionMarker(ControlType.COMMIT, 0), producer_id=1, producer_epoch=0, timestamp=5, leader_epoch=0
    )
    marker[:8] = (1).to_bytes(8, "big")
    partition.log.append_as_follower(memoryview(marker))
    await until(lambda: partition.log.state.high_watermark == 2, "the marker is written")
    client = await one.client(1)
    request = fetch_request(bytes(16), "orders", 1, max_wait_ms=60_000)
    waiting = client.send(int(ApiKey.FETCH), version, request)
    await until(lambda: partition.watermark_waiters, "the fetch waits")
    await one.produce(1, "orders", "b")
    data = (await waiting).responses[0].partitions[0]
    found = [formats.decode_batch(data.records)[0].offset, formats.decode_batch(data.records)[0].value]
    assert found == [2, b"b"]
    request.max_wait_ms = 30
    request.topics[0].partitions[0].fetch_offset = 3
    data = (await client.send(int(ApiKey.FETCH), version, request)).responses[0].partitions[0]
    assert (data.error_code, bytes(data.records)) == (0, b"")


async def test_min_bytes_counts_over_several_appends(one: Fleet) -> None:
    client = await one.client(1)
    size = len(batch("a" * 100))
    request = fetch_request(one.topics["orders"].topic_id, "orders", max_wait_ms=60_000, min_bytes=3 * size)
    waiting = client.send(int(ApiKey.FETCH), 17, request)
    for _ in range(2):
        await one.produce(1, "orders", "a" * 100)
    assert not waiting.done()
    await one.produce(1, "orders", "a" * 100)
    assert len((await waiting).responses[0].partitions[0].records) == 3 * size


async def test_min_bytes_is_never_more_than_a_fetch_may_bring(one: Fleet) -> None:
    """fetch.min.bytes above fetch.max.bytes, the client's or ours: nobody can wait for what will never be answered."""
    for _ in range(2):
        await one.produce(1, "orders", "x" * 5000)
    data = await one.fetch(1, "orders", max_wait_ms=600_000, min_bytes=100_000, max_bytes=6000)
    assert values_of(data.records) == ["x" * 5000]


async def test_who_reads_closed_segments_does_not_wait_for_min_bytes(one: Fleet) -> None:
    """A consumer that is behind and whose fetch.min.bytes is above its max.partition.fetch.bytes: there is more to read
    than ever fits, so each of its fetches would wait out its time until it has caught up."""
    one.nodes[1].overrides = {"segment.bytes": "6000"}
    await one.create("rolling", (1,))
    for _ in range(2):
        await one.produce(1, "rolling", "x" * 5000)
    data = await one.fetch(1, "rolling", max_wait_ms=600_000, min_bytes=100_000, partition_max_bytes=5500)
    assert values_of(data.records) == ["x" * 5000]
    data = await one.fetch(1, "rolling", 1, max_wait_ms=30, min_bytes=100_000, partition_max_bytes=5500)
    assert values_of(data.records) == ["x" * 5000], "in the last segment it waits for more"


async def test_a_batch_larger_than_every_limit_is_returned_when_it_is_the_first(one: Fleet) -> None:
    await one.produce(1, "orders", "x" * 5000)
    await one.produce(1, "orders", "y" * 5000)
    data = await one.fetch(1, "orders", max_bytes=10, partition_max_bytes=10)
    assert values_of(data.records) == ["x" * 5000]


async def test_max_bytes_holds_over_all_partitions(one: Fleet) -> None:
    for index in (0, 1):
        await one.produce(1, "orders", "x" * 5000, index=index)
    request = fetch_request(one.topics["orders"].topic_id, "orders", max_bytes=6000)
    part = request.topics[0].partitions[0]
    request.topics[0].partitions.append(type(part)(partition=1, fetch_offset=0, partition_max_bytes=1 << 20))
    first, second = (await one.ask(1, ApiKey.FETCH, 17, request)).responses[0].partitions
    assert values_of(first.records) == ["x" * 5000]
    assert len(second.records) < 1000


@pytest.mark.parametrize(("isolation", "aborted"), [(0, None), (1, [])])
async def test_read_committed_gets_an_empty_list_of_aborted_transactions_and_read_uncommitted_null(
    one: Fleet, isolation: int, aborted: object
) -> None:
    await one.produce(1, "orders", "a")
    data = await one.fetch(1, "orders", isolation_level=isolation)
    assert data.aborted_transactions == aborted and data.last_stable_offset == 1


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"offset": 5}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"index": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"current_leader_epoch": 4}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"offset": 1, "last_fetched_epoch": 9}, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
async def test_errors_of_a_fetch(one: Fleet, fields: dict[str, int], error: ErrorCode) -> None:
    await one.produce(1, "orders", "a")
    data = await one.fetch(1, "orders", **fields, max_wait_ms=60_000)
    assert (ErrorCode.of(data.error_code), data.high_watermark, bytes(data.records)) == (error, -1, b"")


async def test_an_older_epoch_is_fenced_and_told_who_leads(one: Fleet) -> None:
    await one.elect("orders", 1, (1,))
    data = await one.fetch(1, "orders", current_leader_epoch=0)
    assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (1, 1)


async def test_unknown_and_mistaken_topic_ids_have_their_own_errors(one: Fleet) -> None:
    request = fetch_request(STRANGER, "")
    response = await one.ask(1, ApiKey.FETCH, 13, request)
    assert response.responses[0].topic_id == STRANGER
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    # The metadata has heard of a new topic of that name, this broker's partition is still the old one.
    one.nodes[1].metadata.names[STRANGER] = "orders"
    response = await one.ask(1, ApiKey.FETCH, 13, request)
    assert response.responses[0].partitions[0].error_code == ErrorCode.INCONSISTENT_TOPIC_ID


async def test_deleting_a_topic_wakes_its_waiting_fetches(one: Fleet) -> None:
    client = await one.client(1)
    request = fetch_request(one.topics["orders"].topic_id, "orders", max_wait_ms=60_000)
    waiting = client.send(int(ApiKey.FETCH), 17, request)
    node = one.nodes[1]
    partition = node.partition("orders")
    await until(lambda: partition.watermark_waiters, "the fetch waits")
    await node.manager.stop_replicas(1, [StopCommand(TopicPartition("orders", 0), -2, True)])
    data = (await waiting).responses[0].partitions[0]
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert node.manager.partition("orders", 0) is None


async def test_a_failed_directory_is_a_storage_error_and_not_leader_for_clients_that_do_not_know_it(one: Fleet) -> None:
    await one.produce(1, "orders", "a")
    client = await one.client(1)
    request = fetch_request(one.topics["orders"].topic_id, "orders", 1, max_wait_ms=60_000)
    waiting = client.send(int(ApiKey.FETCH), 17, request)
    partition = one.nodes[1].partition("orders")
    await until(lambda: partition.watermark_waiters, "the fetch waits")
    assert partition.log.failures.mark_offline()
    table = one.nodes[1].manager.log_manager.table
    table.on_logs_offline(partition.log.state.disk.path, [partition.topic_partition])
    partition.log.failures.notify_failure()
    assert (await waiting).responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    for version, error in ((3, ErrorCode.NOT_LEADER_OR_FOLLOWER), (4, ErrorCode.KAFKA_STORAGE_ERROR)):
        assert (await one.produce(1, "orders", "b", version=version)).error_code == error
    for version, error in ((5, ErrorCode.NOT_LEADER_OR_FOLLOWER), (6, ErrorCode.KAFKA_STORAGE_ERROR)):
        assert (await one.fetch(1, "orders", version=version)).error_code == error
    assert (await list_offset(one, -1))[0] == ErrorCode.KAFKA_STORAGE_ERROR
    # The other partition goes on, and the controller hears which one is gone.
    assert (await one.produce(1, "orders", "c", index=1)).error_code == 0
    assert await one.command("orders") == {1: [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.STALE_CONTROLLER_EPOCH]}


# ListOffsets, OffsetForLeaderEpoch, Metadata


async def list_offset(fleet: Fleet, timestamp: int, version: int = 9, replica_id: int = -1) -> tuple[int, int, int]:
    """(error, offset, timestamp)."""
    asked = list_offsets_api.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = list_offsets_api.ListOffsetsRequest(
        replica_id=replica_id, topics=[list_offsets_api.ListOffsetsTopic(name="orders", partitions=[asked])]
    )
    data = (await fleet.ask(1, ApiKey.LIST_OFFSETS, version, request)).topics[0].partitions[0]
    return data.error_code, data.offset, data.timestamp


async def test_every_special_timestamp_has_its_offset(one: Fleet) -> None:
    await one.produce(1, "orders", "a", "b")
    assert await list_offset(one, -1) == (0, 2, -1)
    assert await list_offset(one, -2) == (0, 0, -1)
    assert (await list_offset(one, -3))[::2] == (0, 1000)
    assert await list_offset(one, -4) == (0, 0, -1)
    assert await list_offset(one, -5) == (0, -1, -1)
    assert await list_offset(one, 1000) == (0, 0, 1000)
    assert await list_offset(one, 1001) == (0, -1, -1)
    for timestamp, version in ((-3, 6), (-4, 7), (-5, 8), (-6, 9)):
        assert (await list_offset(one, timestamp, version))[0] == ErrorCode.UNSUPPORTED_VERSION
    for version in range(1, 10):
        assert (await list_offset(one, -1, version))[:2] == (0, 2)


async def test_the_end_of_an_epoch(one: Fleet) -> None:
    await one.produce(1, "orders", "a", "b")
    await one.elect("orders", 1, (1,))
    await one.produce(1, "orders", "c")
    for version in (0, 1, 2, 3, 4):
        parts = [epoch_api.OffsetForLeaderPartition(partition=0, leader_epoch=epoch) for epoch in (0, 1, 2)]
        answers = []
        for part in parts:
            request = epoch_api.OffsetForLeaderEpochRequest(
                replica_id=-1, topics=[epoch_api.OffsetForLeaderTopic(topic="orders", partitions=[part])]
            )
            data = (await one.ask(1, ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request)).topics[0].partitions[0]
            answers.append((data.error_code, data.end_offset))
        assert answers == [(0, 2), (0, 3), (0, -1)]


async def metadata(
    fleet: Fleet, version: int, topics: list[str] | None, **fields: object
) -> metadata_api.MetadataResponse:
    asked = None if topics is None else [metadata_api.MetadataRequestTopic(name=name) for name in topics]
    response = await fleet.ask(1, ApiKey.METADATA, version, metadata_api.MetadataRequest(topics=asked, **fields))
    assert isinstance(response, metadata_api.MetadataResponse)
    return response


@pytest.mark.parametrize("version", range(13))
async def test_metadata_names_the_endpoints_of_the_listener_that_was_asked(one: Fleet, version: int) -> None:
    response = await metadata(one, version, ["orders"])
    assert [(broker.node_id, broker.port) for broker in response.brokers] == [(1, one.nodes[1].ports[CLIENT])]
    topic = response.topics[0]
    assert (topic.error_code, topic.name, len(topic.partitions)) == (0, "orders", 2)
    assert topic.partitions[1].leader_id == 1
    if version >= 2:
        assert response.cluster_id == CLUSTER_ID
    if version >= 10:
        assert topic.topic_id == one.topics["orders"].topic_id


async def test_metadata_of_all_none_and_unknown_topics(one: Fleet) -> None:
    assert [topic.name for topic in (await metadata(one, 0, [])).topics] == ["orders"]
    assert [topic.name for topic in (await metadata(one, 1, None)).topics] == ["orders"]
    assert (await metadata(one, 1, [])).topics == []
    for name, error in (("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION)):
        response = await metadata(one, 12, [name], allow_auto_topic_creation=False)
        assert response.topics[0].error_code == error
    assert "nowhere" not in one.topics


async def test_metadata_creates_a_topic_when_both_sides_allow_it_and_has_it_in_the_answer(one: Fleet) -> None:
    response = await metadata(one, 12, ["flights"])
    assert (response.topics[0].error_code, len(response.topics[0].partitions)) == (0, 1)


async def test_metadata_computes_authorized_operations_only_when_asked(one: Fleet) -> None:
    plain = await metadata(one, 8, ["orders"])
    assert plain.cluster_authorized_operations == plain.topics[0].topic_authorized_operations == -2147483648
    asked = await metadata(
        one,
        8,
        ["orders"],
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    assert (asked.cluster_authorized_operations, asked.topics[0].topic_authorized_operations) == (8096, 3576)


async def test_metadata_by_topic_id(one: Fleet) -> None:
    known = metadata_api.MetadataRequestTopic(topic_id=one.topics["orders"].topic_id, name=None)
    unknown = metadata_api.MetadataRequestTopic(topic_id=STRANGER, name=None)
    response = await one.ask(1, ApiKey.METADATA, 12, metadata_api.MetadataRequest(topics=[known, unknown]))
    by_error = {topic.error_code: topic for topic in response.topics}
    assert by_error[0].name == "orders"
    assert by_error[ErrorCode.UNKNOWN_TOPIC_ID].topic_id == STRANGER


@pytest.fixture
async def untold(tmp_path: Path) -> AsyncIterator[Fleet]:
    """A broker that has started, and that no controller has told of the others."""
    fleet = Fleet(tmp_path)
    fleet.nodes[1] = node = Node(fleet, 1, tmp_path, {})
    await node.start()
    yield fleet
    fleet.stop()


async def test_who_asks_before_the_controller_has_named_the_brokers_is_told_of_them(untold: Fleet) -> None:
    asking = untold.clock.spawn(untold.ask(1, ApiKey.METADATA, 12, metadata_api.MetadataRequest()), name="client")
    await untold.ask(1, ApiKey.API_VERSIONS, 3, api_versions_api.ApiVersionsRequest())
    assert not asking.done()
    await untold.send_metadata()
    assert [broker.node_id for broker in (await asking).brokers] == [1]


async def test_who_asks_and_no_controller_comes_is_sent_to_another_broker(
    untold: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla_broker.server.handlers.metadata.FIRST_METADATA_S", 0.05)
    created: list[str] = []

    async def create(names: Iterable[str]) -> dict[str, int]:
        created.extend(names)
        return {}

    services = untold.nodes[1].dispatcher.services
    assert services is not None
    services.auto_create = create
    asked = [metadata_api.MetadataRequestTopic(name="new")]
    with pytest.raises(BrokerDisconnected):
        await untold.ask(1, ApiKey.METADATA, 12, metadata_api.MetadataRequest(topics=asked))
    await asyncio.sleep(0)
    assert created == [], "nobody waits for it"


async def test_the_gauges_tell_what_the_broker_leads_and_what_waits(one: Fleet) -> None:
    client = await one.client(1)
    request = fetch_request(one.topics["orders"].topic_id, "orders", max_wait_ms=60_000)
    waiting = client.send(int(ApiKey.FETCH), 17, request)
    await until(lambda: one.nodes[1].partition("orders").watermark_waiters, "the fetch waits")
    text = Exposition(one.nodes[1].metrics).text().decode()
    assert 'kafka_server_delayedoperationpurgatory_purgatorysize{delayedOperation="Fetch"} 1.0' in text
    assert "kafka_server_replicamanager_leadercount 2.0" in text
    await one.produce(1, "orders", "a", "b")
    await waiting
    text = Exposition(one.nodes[1].metrics).text().decode()
    assert 'kafka_server_delayedoperationpurgatory_purgatorysize{delayedOperation="Fetch"} 0.0' in text
    assert 'kafka_server_brokertopicmetrics_messagesin_total{topic="orders"} 2.0' in text

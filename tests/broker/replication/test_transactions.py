"""Transactions over the wire: batches and markers as a coordinator has them written, and what consumers are told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.config import BrokerConfig
from ottla_broker.config.topics import CONSUMER_OFFSETS
from ottla_broker.groups.coordinator import GroupCoordinator
from ottla_broker.groups.offsets import CommittedOffset
from ottla_broker.groups.records import offset_record
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import describe_producers as describe_api
from ottla_broker.protocol.generated import list_offsets as list_offsets_api
from ottla_broker.protocol.generated import write_txn_markers as markers_api
from ottla_broker.records.compression import Codec
from ottla_broker.records.ids import TopicPartition
from ottla_broker.records.record import Record, build_batch, build_records
from ottla_broker.replication.replica_states.commands import LeadershipCommand
from ottla_broker.server.assembly.group_topics import GroupTopics
from ottla_broker.server.assembly.internal_topic_log import follow_leadership
from ottla_broker.server.assembly.offsets_topic_log import ReplicatedOffsetsLog
from ottla_broker.storage.log.verification import FROM_CLIENT
from tests.broker.replication.fleet import CLIENT, INTERNAL, Fleet, Node, fetch_request, produce_request, until

ABORT, COMMIT = False, True
COMMITTED = {"isolation_level": 1}


def part(producer_id: int, sequence: int, *values: str, epoch: int = 0, attributes: int = 0x10) -> bytes:
    """A batch of a transaction."""
    records = [Record(number, 1_000, None, value.encode()) for number, value in enumerate(values)]
    return bytes(
        build_batch(
            records, attributes=attributes, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )
    )


async def produce(fleet: Fleet, records: bytes, transactional_id: str | None = "tx", index: int = 0) -> Any:
    request = produce_request("orders", records, index=index)
    request.transactional_id = transactional_id
    response = await fleet.ask(1, ApiKey.PRODUCE, 9, request)
    return response.responses[0].partition_responses[0]


def end(
    producer_id: int,
    result: bool,
    *partitions: int,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    topic: str = "orders",
) -> Any:
    return markers_api.WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=result,
        coordinator_epoch=coordinator_epoch,
        topics=[markers_api.WritableTxnMarkerTopic(name=topic, partition_indexes=list(partitions or (0,)))],
    )


async def mark(fleet: Fleet, *markers: Any, version: int = 1, broker: int = 1) -> dict[int, list[int]]:
    """Error codes of the partitions, by producer id."""
    request = markers_api.WriteTxnMarkersRequest(markers=list(markers))
    response = await fleet.ask(broker, ApiKey.WRITE_TXN_MARKERS, version, request, INTERNAL)
    return {
        result.producer_id: [one.error_code for topic in result.topics for one in topic.partitions]
        for result in response.markers
    }


def told(data: Any) -> list[tuple[int, int]]:
    return [(one.producer_id, one.first_offset) for one in data.aborted_transactions]


async def latest(fleet: Fleet, isolation_level: int, timestamp: int = -1) -> int:
    asked = list_offsets_api.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topic = list_offsets_api.ListOffsetsTopic(name="orders", partitions=[asked])
    request = list_offsets_api.ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[topic])
    response = await fleet.ask(1, ApiKey.LIST_OFFSETS, 7, request)
    offset: int = response.topics[0].partitions[0].offset
    return offset


@pytest.mark.parametrize("version", [0, 1])
async def test_read_committed_ends_where_the_oldest_open_transaction_begins(one: Fleet, version: int) -> None:
    assert (await one.produce(1, "orders", "plain")).base_offset == 0
    assert (await produce(one, part(7, 0, "a", "b"))).error_code == 0
    assert (await produce(one, part(8, 0, "c"))).error_code == 0
    data = await one.fetch(1, "orders", **COMMITTED)
    assert (data.high_watermark, data.last_stable_offset, told(data)) == (4, 1, [])
    assert await latest(one, 1) == 1 and await latest(one, 0) == 4
    assert await latest(one, 1, timestamp=1_001) == -1
    uncommitted = await one.fetch(1, "orders")
    assert uncommitted.last_stable_offset == 1 and uncommitted.aborted_transactions is None
    assert len(uncommitted.records) > len(data.records)
    assert await mark(one, end(8, COMMIT), version=version) == {8: [0]}
    assert (await one.fetch(1, "orders", **COMMITTED)).last_stable_offset == 1
    assert await mark(one, end(7, ABORT), version=version) == {7: [0]}
    data = await one.fetch(1, "orders", **COMMITTED)
    assert (data.last_stable_offset, told(data)) == (6, [(7, 1)])
    assert told(await one.fetch(1, "orders", 3, **COMMITTED)) == [(7, 1)]
    assert told(await one.fetch(1, "orders", 6, **COMMITTED)) == []
    assert await latest(one, 1) == 6


async def test_markers_are_answered_when_every_in_sync_replica_has_them(hasty: Fleet) -> None:
    await produce(hasty, part(7, 0, "a"))
    hasty.nodes[3].kill()
    answer = asyncio.ensure_future(mark(hasty, end(7, ABORT)))
    await until(lambda: hasty.nodes[2].partition("orders").log.state.log_end_offset == 2, "broker 2 has the marker")
    # Until broker 3 has been taken out of the ISR it is missed, and the transaction is not settled.
    if 3 in hasty.nodes[1].partition("orders").in_sync.committed:
        assert hasty.nodes[1].partition("orders").log.state.last_stable_offset == 0
    assert await answer == {7: [0]}
    assert hasty.nodes[1].partition("orders").log.state.last_stable_offset == 2
    await until(
        lambda: hasty.nodes[2].partition("orders").log.state.last_stable_offset == 2,
        "broker 2 knows that it is settled",
    )
    leader, follower = (hasty.nodes[number].partition("orders").log for number in (1, 2))
    assert leader.state.producers.dump().producers == follower.state.producers.dump().producers
    assert leader.aborted.aborted_transactions(0, 2) == follower.aborted.aborted_transactions(0, 2) != []


async def test_a_new_leader_knows_the_transactions_of_the_one_before(three: Fleet) -> None:
    await produce(three, part(7, 0, "a"))
    await mark(three, end(7, ABORT))
    await produce(three, part(7, 1, "b"))
    await until(lambda: three.nodes[2].partition("orders").log.state.log_end_offset == 3, "broker 2 has all")
    await three.elect("orders", 2, (1, 2, 3))
    assert await mark(three, end(7, COMMIT), broker=1) == {7: [int(ErrorCode.NOT_LEADER_OR_FOLLOWER)]}
    data = await three.fetch(2, "orders", **COMMITTED)
    assert (data.last_stable_offset, told(data)) == (2, [(7, 0)])
    assert await mark(three, end(7, COMMIT), broker=2) == {7: [0]}
    assert (await three.fetch(2, "orders", **COMMITTED)).last_stable_offset == 4


async def test_a_marker_is_refused_with_the_code_that_the_coordinator_acts_on(hasty: Fleet) -> None:
    await produce(hasty, part(7, 0, "a"))
    assert await mark(hasty, end(7, ABORT, epoch=3, coordinator_epoch=9)) == {7: [0]}
    assert await mark(hasty, end(7, ABORT, epoch=3, coordinator_epoch=9)) == {7: [0]}
    refused = await mark(
        hasty,
        end(7, ABORT, 0, epoch=2, coordinator_epoch=9),
        end(7, ABORT, 1, epoch=2, coordinator_epoch=9),
        end(8, ABORT, 0),
    )
    unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert refused == {7: [int(ErrorCode.INVALID_PRODUCER_EPOCH), unknown], 8: [0]}
    fenced = int(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    assert await mark(hasty, end(7, COMMIT, epoch=3, coordinator_epoch=8)) == {7: [fenced]}
    assert await mark(hasty) == {}
    hasty.nodes[2].kill()
    hasty.nodes[3].kill()
    await hasty.produce(1, "orders", "which they miss", acks=1)
    await until(lambda: hasty.nodes[1].partition("orders").is_under_min_isr, "the ISR is too small")
    assert await mark(hasty, end(8, ABORT)) == {8: [int(ErrorCode.NOT_ENOUGH_REPLICAS)]}


async def test_a_waiting_fetch_is_answered_when_the_transaction_ends(one: Fleet) -> None:
    await produce(one, part(7, 0, "a"))
    client = await one.client(1, CLIENT)
    request = fetch_request(one.topics["orders"].topic_id, "orders", 0, max_wait_ms=20_000, **COMMITTED)
    waiting = asyncio.ensure_future(client.send(int(ApiKey.FETCH), 17, request))
    partition = one.nodes[1].partition("orders")
    await until(lambda: bool(partition.watermark_waiters), "the fetch waits")
    await one.produce(1, "orders", "plain")
    assert not waiting.done()
    await mark(one, end(7, ABORT))
    data = (await waiting).responses[0].partitions[0]
    assert (data.last_stable_offset, told(data)) == (3, [(7, 0)])
    client.close()


async def test_a_transactional_batch_needs_a_transactional_id(one: Fleet) -> None:
    refused = await produce(one, part(7, 0, "a"), transactional_id=None)
    assert refused.error_code == int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert (await produce(one, part(7, 0, "a"))).base_offset == 0
    assert (await produce(one, part(7, 0, "a"))).base_offset == 0  # sent again
    plain = await produce(one, part(7, 1, "b", attributes=0))
    assert plain.error_code == int(ErrorCode.INVALID_TXN_STATE)


async def test_producers_are_described_with_their_open_transactions(three: Fleet) -> None:
    await three.produce(1, "orders", "plain")
    await produce(three, part(7, 0, "a", "b", epoch=4))
    await produce(three, part(8, 5, "c", attributes=0))
    await mark(three, end(9, COMMIT, epoch=1, coordinator_epoch=6))
    topics = [
        describe_api.TopicRequest(name="orders", partition_indexes=[0, 1]),
        describe_api.TopicRequest(name="unknown", partition_indexes=[0]),
        describe_api.TopicRequest(name="not/allowed", partition_indexes=[0]),
    ]
    await until(lambda: three.nodes[3].partition("orders").log.state.log_end_offset == 5, "broker 3 has all")
    for broker in (1, 3):
        request = describe_api.DescribeProducersRequest(topics=topics)
        response = await three.ask(broker, ApiKey.DESCRIBE_PRODUCERS, 0, request)
        orders, unknown, bad = response.topics
        assert [one.error_code for one in (*orders.partitions, *unknown.partitions, *bad.partitions)] == [0, 3, 3, 17]
        found = {one.producer_id: one for one in orders.partitions[0].active_producers}
        assert {
            number: (one.producer_epoch, one.last_sequence, one.coordinator_epoch, one.current_txn_start_offset)
            for number, one in found.items()
        } == {7: (4, 1, -1, 1), 8: (0, 5, -1, -1), 9: (1, -1, 6, -1)}
        assert found[7].last_timestamp == 1_000 and found[9].last_timestamp > 1_000


ORDERS = TopicPartition("orders", 0)


def coordinator_of(node: Node) -> GroupCoordinator:
    coordinator = GroupCoordinator(
        clock=node.clock,
        log=ReplicatedOffsetsLog(
            node.manager, node.clock, node.fleet.coordinator, codec=Codec.NONE, load_bytes=5 << 20
        ),
        metrics=node.metrics,
        config=BrokerConfig.from_mapping({}),
        partition_count=lambda: 1,
        topics=GroupTopics(node.metadata),
    )
    coordinator.start()
    follow_leadership(
        CONSUMER_OFFSETS, node.manager, coordinator.partitions.on_election, coordinator.partitions.on_resignation
    )
    assert node.dispatcher.services is not None
    node.dispatcher.services.group_coordinator = coordinator
    return coordinator


def stable_offset(coordinator: GroupCoordinator, group_id: str) -> int | ErrorCode:
    """What the group has committed for ORDERS, or why nobody can say."""
    error, found = coordinator.fetch(group_id, [ORDERS], require_stable=True)
    error = error or found[0].error
    if error or found[0].committed is None:
        return error
    return found[0].committed.offset


async def test_a_topic_created_again_while_its_coordinator_was_cut_off_has_a_coordinator(one: Fleet) -> None:
    """A full LeaderAndIsr names another topic id, and an epoch below that of the former topic's last leader."""
    node = one.nodes[1]
    coordinator = coordinator_of(node)
    await one.create(CONSUMER_OFFSETS, (1,))
    await one.elect(CONSUMER_OFFSETS, 1, (1,))
    await until(lambda: stable_offset(coordinator, "g") is ErrorCode.NONE, "the log is loaded")
    committed = {ORDERS: CommittedOffset(5, -1, "", node.clock.now_ms())}
    assert await coordinator.commit("g", "", None, -1, committed) == {ORDERS: ErrorCode.NONE}
    assert stable_offset(coordinator, "g") == 5

    partition = TopicPartition(CONSUMER_OFFSETS, 0)
    again = LeadershipCommand(partition, b"created again...", 1, 0, 0, 1, (1,), (1,), True)
    assert await node.manager.apply_leadership(1, [again], is_full=True) == {partition: ErrorCode.NONE}
    assert coordinator.partitions.owns(0)
    await until(lambda: stable_offset(coordinator, "g") is ErrorCode.NONE, "only the new log is loaded")
    coordinator.close()


async def test_a_marker_settles_the_offsets_that_a_leader_before_took_of_its_transaction(tmp_path: Path) -> None:
    settings = {"replica.lag.time.max.ms": "3600000", "request.timeout.ms": "300"}
    fleet = Fleet(tmp_path, settings | {"transaction.partition.verification.enable": "false"})
    await fleet.start(1, 2)
    await fleet.create(CONSUMER_OFFSETS, (1, 2))
    node = fleet.nodes[1]
    partition = node.partition(CONSUMER_OFFSETS)
    now_ms = node.clock.now_ms()

    def taken(group_id: str, at: int, **transaction: int) -> memoryview:
        record = offset_record(group_id, ORDERS, CommittedOffset(at, -1, "", now_ms))
        return memoryview(build_batch(build_records([record], now_ms), **transaction))

    for group_id, producer_id in (("committed", 7), ("aborted", 8), ("open", 9)):
        partition.append(taken(group_id, 1), -1)
        transaction = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "attributes": 0x10}
        partition.append(taken(group_id, 5, **transaction), -1, False, FROM_CLIENT)
    coordinator = coordinator_of(node)
    await fleet.elect(CONSUMER_OFFSETS, 1, (1, 2))
    groups = ("committed", "aborted", "open")
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    await until(
        lambda: [stable_offset(coordinator, group_id) for group_id in groups] == [unstable] * 3, "the log is loaded"
    )
    await until(lambda: partition.log.state.high_watermark == 6, "all is committed")

    fleet.nodes[2].kill()  # it is missed until it has been taken out of the ISR
    markers = [end(7, COMMIT, topic=CONSUMER_OFFSETS), end(8, ABORT, topic=CONSUMER_OFFSETS)]
    timed_out = [int(ErrorCode.REQUEST_TIMED_OUT)]
    assert await mark(fleet, *markers) == {7: timed_out, 8: timed_out}
    assert [stable_offset(coordinator, group_id) for group_id in groups] == [unstable] * 3
    await fleet.elect(CONSUMER_OFFSETS, 1, (1,))
    assert await mark(fleet, *markers) == {7: [0], 8: [0]}
    assert [stable_offset(coordinator, group_id) for group_id in groups] == [5, 1, unstable]
    coordinator.close()
    fleet.stop()

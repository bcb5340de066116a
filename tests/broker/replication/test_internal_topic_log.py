"""The log of an internal topic on real replicas: what a new leader has counts once it is committed."""

from __future__ import annotations

import asyncio

import pytest

from ottla_broker.internal_topics.topic_log import StateRecord
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.compression import Codec
from ottla_broker.server.assembly.internal_topic_log import ReplicatedTopicLog
from tests.broker.replication.fleet import Fleet, Node, until


def log_of(node: Node) -> ReplicatedTopicLog:
    return ReplicatedTopicLog("orders", node.manager, node.clock, codec=Codec.NONE, load_bytes=1 << 20)


async def test_a_leader_waits_until_the_in_sync_replicas_have_what_it_has(three: Fleet) -> None:
    node = three.nodes[1]
    log, epoch = log_of(node), node.partition("orders").leader_epoch
    await log.await_committed(0, epoch)
    for number in (2, 3):
        three.nodes[number].kill()
    appending = log.append(0, epoch, [StateRecord(b"k", b"v")], required_acks=-1, timeout_ms=60_000)
    waiting = asyncio.ensure_future(log.await_committed(0, epoch))
    await until(lambda: node.partition("orders").log.state.log_end_offset == 1, "the leader has the record")
    assert not waiting.done() and not appending.done()
    await three.start(2, 3)
    await three.elect("orders", 1, (1, 2, 3))
    with pytest.raises(KafkaError):
        await waiting  # it was elected once more
    await log.await_committed(0, node.partition("orders").leader_epoch)
    assert node.partition("orders").log.state.high_watermark == 1


async def test_a_broker_that_leads_no_more_stops_waiting(three: Fleet) -> None:
    node = three.nodes[1]
    log, epoch = log_of(node), node.partition("orders").leader_epoch
    for number in (2, 3):
        three.nodes[number].kill()
    log.append(0, epoch, [StateRecord(b"k", b"v")], required_acks=-1, timeout_ms=60_000)
    waiting = asyncio.ensure_future(log.await_committed(0, epoch))
    await three.elect("orders", 2, (1, 2, 3))
    with pytest.raises(KafkaError) as raised:
        await waiting
    assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_batch_of_many_records_comes_in_parts_between_which_others_run(one: Fleet) -> None:
    node = one.nodes[1]
    log, epoch = log_of(node), node.partition("orders").leader_epoch
    written = [StateRecord(b"k%d" % number, b"v") for number in range(1000)]
    await log.append(0, epoch, written, required_acks=-1, timeout_ms=60_000)
    await log.append(0, epoch, [StateRecord(b"last", None)], required_acks=-1, timeout_ms=60_000)
    parts, turns = [], 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        node.clock.call_soon(turn)

    turn()
    async for part in log.read(0, epoch):
        parts.append((turns, part))
    assert [record.key for _, part in parts for record in part.records] == [*(one.key for one in written), b"last"]
    assert max(len(part.records) for _, part in parts) <= 200
    assert {part.base_offset for _, part in parts[:-1]} == {0} and parts[-1][1].base_offset == 1000
    assert len({at for at, _ in parts}) >= 5, "others run between two parts"

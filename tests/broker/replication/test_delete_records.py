"""DeleteRecords over the wire: one broker and three, and what a restart remembers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.config import TopicValues
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import delete_records as api
from ottla_broker.protocol.generated import list_offsets as list_offsets_api
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.checkpoints import decode_offsets
from ottla_broker.storage.log.config import LogConfig
from tests.broker.replication.fleet import Fleet, until

EARLIEST = -2


def request(*asked: tuple[str, int, int], timeout_ms: int = 25_000) -> api.DeleteRecordsRequest:
    """(topic, partition, offset)"""
    return api.DeleteRecordsRequest(
        timeout_ms=timeout_ms,
        topics=[
            api.DeleteRecordsTopic(
                name=topic, partitions=[api.DeleteRecordsPartition(partition_index=index, offset=offset)]
            )
            for topic, index, offset in asked
        ],
    )


async def delete(fleet: Fleet, offset: int, *, broker: int = 1, version: int = 2, **more: Any) -> tuple[int, int]:
    """(error code, low watermark) of the topic "orders"."""
    asked = request(("orders", 0, offset), **more)
    answer = await fleet.ask(broker, ApiKey.DELETE_RECORDS, version, asked)
    part = answer.topics[0].partitions[0]
    return part.error_code, part.low_watermark


async def earliest(fleet: Fleet, broker: int = 1) -> int:
    asked = list_offsets_api.ListOffsetsRequest(
        replica_id=-1,
        topics=[
            list_offsets_api.ListOffsetsTopic(
                name="orders",
                partitions=[list_offsets_api.ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)],
            )
        ],
    )
    answer = await fleet.ask(broker, ApiKey.LIST_OFFSETS, 9, asked)
    offset: int = answer.topics[0].partitions[0].offset
    return offset


def starts(fleet: Fleet) -> list[int]:
    return [node.partition("orders").log.state.log_start_offset for node in fleet.live]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_records_below_the_offset_are_gone_in_every_version(one: Fleet, version: int) -> None:
    await one.produce(1, "orders", *"abcde")  # one batch: the log now begins in the middle of it
    assert await delete(one, 3, version=version) == (0, 3)
    assert await earliest(one) == 3
    assert (await one.fetch(1, "orders", 2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await one.fetch(1, "orders", 3)).error_code == 0
    assert await delete(one, 1, version=version) == (0, 3), "an offset below the start changes nothing"
    assert await delete(one, -1, version=version) == (0, 5), "-1 is the high watermark"
    assert await earliest(one) == 5


async def test_the_new_start_is_on_disk_when_it_is_answered(one: Fleet) -> None:
    await one.produce(1, "orders", *"abc")
    assert await delete(one, 2) == (0, 2)
    path = Path(one.nodes[1].disk.path) / "log-start-offset-checkpoint"
    assert decode_offsets(path.name, path.read_bytes()) == {TopicPartition("orders", 0): 2}


async def test_what_cannot_be_deleted_is_refused_with_kafkas_code(one: Fleet) -> None:
    await one.produce(1, "orders", *"abc")
    assert await delete(one, 4) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await delete(one, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    await one.create("__consumer_offsets", (1,))
    answer = await one.ask(
        1, ApiKey.DELETE_RECORDS, 2, request(("nowhere", 0, 0), ("orders", 7, 0), ("__consumer_offsets", 0, 0))
    )
    assert [topic.partitions[0].error_code for topic in answer.topics] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    one.nodes[1].partition("orders").log.configure(LogConfig(TopicValues({"cleanup.policy": "compact"})))
    assert await delete(one, 1) == (ErrorCode.POLICY_VIOLATION, -1)
    one.nodes[1].partition("orders").log.configure(LogConfig(TopicValues({"cleanup.policy": "compact,delete"})))
    assert await delete(one, 1) == (0, 1)


async def test_a_follower_does_not_delete(three: Fleet) -> None:
    await three.produce(1, "orders", "a")
    assert await delete(three, 1, broker=2) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert starts(three) == [0, 0, 0]


async def test_the_answer_waits_until_every_live_replica_begins_there(three: Fleet) -> None:
    for number in range(10):
        await three.produce(1, "orders", str(number))
    assert await delete(three, 7) == (0, 7)
    assert starts(three) == [7, 7, 7]


async def test_a_dead_replica_is_not_waited_for(three: Fleet) -> None:
    for number in range(10):
        await three.produce(1, "orders", str(number))
    three.nodes[3].kill()
    deletion = asyncio.ensure_future(delete(three, 7, timeout_ms=60_000))
    partition = three.nodes[1].partition("orders")
    await until(lambda: len(partition.deletions) == 1, "the request waits for the dead replica")
    await three.send_metadata()  # what the controller sends when a broker is gone
    assert await deletion == (0, 7)


async def test_a_replica_that_does_not_move_in_time_is_told_with_the_low_watermark_there_is(three: Fleet) -> None:
    await three.produce(1, "orders", *"abc")
    three.nodes[3].kill()
    assert await delete(three, 2, timeout_ms=50) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    assert starts(three)[0] == 2, "the leader's own records are gone all the same"
    await until(lambda: starts(three) == [2, 2], "the live follower comes after it")
    await three.send_metadata()
    assert len(three.nodes[1].partition("orders").deletions) == 0


async def test_a_replica_that_is_new_begins_in_the_middle_of_a_batch(hasty: Fleet) -> None:
    """What was deleted ends within a batch: the follower takes all of it, and starts where the leader does."""
    hasty.nodes[3].kill()
    await hasty.produce(1, "orders", *"abcd")
    await hasty.produce(1, "orders", "e")
    await until(lambda: hasty.nodes[1].partition("orders").log.state.high_watermark == 5, "all is acknowledged")
    await hasty.send_metadata()
    assert await delete(hasty, 2) == (0, 2)
    await hasty.start(3)
    await hasty.elect("orders", 1, (1, 2))
    await until(lambda: 3 in hasty.topics["orders"].states[0].isr, "broker 3 joins the ISR")
    log = hasty.nodes[3].partition("orders").log
    await until(
        lambda: (log.state.log_start_offset, log.state.log_end_offset) == (2, 5), "its log has the leader's bounds"
    )


async def test_a_waiting_request_fails_when_the_leadership_moves(three: Fleet) -> None:
    for number in range(3):
        await three.produce(1, "orders", str(number))
    three.nodes[3].kill()
    deletion = asyncio.ensure_future(delete(three, 2, timeout_ms=60_000))
    partition = three.nodes[1].partition("orders")
    await until(lambda: len(partition.deletions) == 1, "the request waits for the dead replica")
    await three.elect("orders", 2, (1, 2))
    assert await deletion == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


async def test_a_new_leader_keeps_to_the_start_that_its_predecessor_gave(three: Fleet) -> None:
    for number in range(10):
        await three.produce(1, "orders", str(number))
    assert await delete(three, 7) == (0, 7)
    await three.elect("orders", 2, (1, 2, 3))
    assert await earliest(three, 2) == 7
    assert (await three.fetch(2, "orders", 6)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

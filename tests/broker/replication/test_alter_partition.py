"""The queue of ISR changes, without a fleet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.protocol.generated.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication import alter_partition
from ottla_broker.replication.alter_partition import AlterPartitionQueue
from ottla_broker.replication.isr import AlterPartitionOutcome, Change, InSyncState

TOPIC_ID = bytes(range(16))


class Led:
    """A partition that asks for an ISR; `failures` come before it takes an answer."""

    is_leader = True
    leader_epoch = partition_epoch = 0
    topic, topic_id = "t", TOPIC_ID

    def __init__(self, index: int, failures: int = 0) -> None:
        self.index = index
        self.topic_partition = TopicPartition("t", index)
        self.in_sync = InSyncState((1, 2), Change.SHRINK, (1,), (-1,))
        self.failures = failures
        self.is_answered = asyncio.Event()

    def on_alter_partition_response(self, *answer: Any) -> AlterPartitionOutcome:
        if self.failures:
            self.failures -= 1
            raise ValueError("nobody thought of this")
        self.is_answered.set()
        return AlterPartitionOutcome.COMMITTED


async def send(version: int, request: AlterPartitionRequest) -> AlterPartitionResponse:
    asked = [data.partition_index for topic in request.topics for data in topic.partitions]
    data = [ResponsePartitionData(partition_index=index, leader_id=1, isr=[1]) for index in asked]
    return AlterPartitionResponse(topics=[ResponseTopicData(topic_id=TOPIC_ID, partitions=data)])


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LoopClock]:
    monkeypatch.setattr(alter_partition, "RETRY_DELAY_S", 0.0)
    made = LoopClock()
    made.on_task_failure = lambda name, error: None
    yield made
    made.cancel_all()


async def test_a_partition_that_cannot_use_its_answer_takes_the_others_answers_from_nobody(
    clock: LoopClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Their changes stayed under way until the next LeaderAndIsr: no high watermark behind a follower that is gone."""

    logger = logging.LoggerAdapter(logging.getLogger("test"), {})
    queue = AlterPartitionQueue(clock, 1, lambda: 7, send, 3, logger)
    first, second = Led(0, failures=3), Led(1)
    for partition in (first, second):
        made: Any = partition
        queue.submit(made)
    for partition in (second, first):
        await asyncio.wait_for(partition.is_answered.wait(), 10)
    assert caplog.text.count("AlterPartition is tried again until it is answered") == 1


async def test_a_follower_that_the_controller_refuses_is_not_asked_for_with_each_of_its_fetches(
    clock: LoopClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under load that is some hundred requests a second, until the controller has heard that the replica works."""
    pauses: list[float] = []
    sleep = clock.sleep

    async def note(delay_s: float) -> None:
        pauses.append(delay_s)
        await sleep(delay_s)

    class Refused(Led):
        def on_alter_partition_response(self, *answer: Any) -> AlterPartitionOutcome:
            if not self.failures:
                return super().on_alter_partition_response()
            self.failures -= 1
            self.in_sync = InSyncState((1,), Change.EXPAND, (1, 2), (-1, -1))  # the next fetch is there already
            queue.submit(made)
            return AlterPartitionOutcome.REVERT

    monkeypatch.setattr(clock, "sleep", note)
    queue = AlterPartitionQueue(clock, 1, lambda: 7, send, 3, logging.LoggerAdapter(logging.getLogger("test"), {}))
    partition = Refused(0, failures=3)
    made: Any = partition
    queue.submit(made)
    await asyncio.wait_for(partition.is_answered.wait(), 10)
    assert len(pauses) == 3


async def test_a_broker_that_joins_every_isr_at_once_gets_a_line_and_not_one_for_each_partition(
    clock: LoopClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alter_partition, "LOGGED_CHANGES", 3)
    monkeypatch.setattr(alter_partition, "_CHANGES_PER_TURN", 4)
    caplog.set_level(logging.INFO)
    queue = AlterPartitionQueue(clock, 1, lambda: 7, send, 3, logging.LoggerAdapter(logging.getLogger("test"), {}))
    partitions = [Led(index) for index in range(12)]
    for partition in partitions:
        made: Any = partition
        queue.submit(made)
    answered = [0]
    while answered[-1] < len(partitions):
        await asyncio.sleep(0)
        answered.append(sum(partition.is_answered.is_set() for partition in partitions))
    assert max(after - before for before, after in pairwise(answered)) <= 4, "the loop does other work in between"
    while queue._is_running:  # noqa: ASYNC110  # it has no event
        await asyncio.sleep(0)
    assert [line.split("] ")[-1] for line in caplog.messages] == [
        "asking for new ISRs of 12 partitions",
        "new ISRs of 12 partitions are answered",
    ]
    lone: Any = Led(99)
    queue.submit(lone)
    await asyncio.wait_for(lone.is_answered.wait(), 10)
    assert "ISR of t-99: asking for [1]" in caplog.text


async def test_a_request_asks_for_a_bounded_number_of_changes_and_the_next_one_for_the_rest(
    clock: LoopClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alter_partition, "_CHANGES_PER_REQUEST", 5)
    asked: list[list[int]] = []

    async def counted(version: int, request: AlterPartitionRequest) -> AlterPartitionResponse:
        asked.append([data.partition_index for topic in request.topics for data in topic.partitions])
        return await send(version, request)

    logger = logging.LoggerAdapter(logging.getLogger("test"), {})
    queue = AlterPartitionQueue(clock, 1, lambda: 7, counted, 3, logger)
    partitions = [Led(index, failures=index == 0) for index in range(12)]
    for partition in partitions:
        made: Any = partition
        queue.submit(made)
    for partition in partitions:
        await asyncio.wait_for(partition.is_answered.wait(), 10)
    # The first answer for partition 0 cannot be used: it is asked for once more, behind those that wait.
    assert asked == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 0]]

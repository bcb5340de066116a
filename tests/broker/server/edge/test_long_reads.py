"""Few long requests are read at a time, so that few of them have their elements in memory."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.server.edge.dispatch import Dispatcher
from ottla_broker.server.edge.long_reads import MOST_BYTES, LongReads
from ottla_broker.server.handler_api import RequestContext
from ottla_broker.server.handlers import describe_transactions, offset_for_leader_epoch
from tests.broker.server.contexts import clock_of_loop


async def _begun(reads: LongReads, *sizes: int) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(reads.begin(size)) for size in sizes]
    await asyncio.sleep(0)
    return tasks


def _done(tasks: list[asyncio.Task[None]]) -> list[bool]:
    return [task.done() for task in tasks]


async def test_as_many_are_read_as_fit_and_the_others_begin_in_their_order() -> None:
    reads, half = LongReads(clock_of_loop()), MOST_BYTES // 2
    tasks = await _begun(reads, half, half, half, 1)
    assert _done(tasks) == [True, True, False, False], "the small one does not overtake"
    reads.end(half)
    await asyncio.sleep(0)
    assert _done(tasks) == [True, True, True, False]
    reads.end(half)
    await asyncio.sleep(0)
    assert all(_done(tasks))


async def test_a_request_that_is_larger_than_the_limit_is_read_alone() -> None:
    reads = LongReads(clock_of_loop())
    tasks = await _begun(reads, 10 * MOST_BYTES, 1)
    assert _done(tasks) == [True, False]
    reads.end(10 * MOST_BYTES)
    await asyncio.sleep(0)
    assert _done(tasks) == [True, True]


@pytest.mark.parametrize("is_granted", [False, True])
async def test_a_request_that_is_given_up_while_it_waits_keeps_no_room(is_granted: bool) -> None:
    reads = LongReads(clock_of_loop())
    _, waiting, last = await _begun(reads, MOST_BYTES, MOST_BYTES, MOST_BYTES)
    if is_granted:
        reads.end(MOST_BYTES)
    waiting.cancel()
    await asyncio.wait([waiting])
    if not is_granted:
        reads.end(MOST_BYTES)
    await asyncio.sleep(0)
    assert waiting.cancelled() and last.done()


class _Asked:
    """A dispatcher whose handlers of two APIs take turns: how many of their requests are handled now, and at most."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.most = 0, 0
        self.ended: list[int] = []
        self._clock = LoopClock()
        self._dispatcher = Dispatcher(self._clock)
        self._dispatcher.services = SimpleNamespace()  # type: ignore[assignment]
        self._client: Any = SimpleNamespace(has_cluster_action=True, is_closed=False, access=None)
        for module in (describe_transactions, offset_for_leader_epoch):
            monkeypatch.setattr(module, "handle", self._handle)
        monkeypatch.setattr(RequestContext, "respond", lambda context, _: self.ended.append(context.correlation_id))

    async def _handle(self, _: object, context: RequestContext, request: Any) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        elements = request.transactional_ids if hasattr(request, "transactional_ids") else request.topics[0].partitions
        async for _ in context.each(elements, 3):
            pass
        self.now -= 1

    def send(self, api_key: ApiKey, version: int, request: Any, number: int) -> None:
        frame = memoryview(b"".join(map(bytes, codec.module(api_key).write_request(version, request))))
        context = RequestContext(self._client, int(api_key), version, number, "client", 0.0)
        self._dispatcher.dispatch(context, frame, 0)

    async def until(self, count: int) -> None:
        while len(self.ended) < count:
            await self._clock.sleep(0)


def _transactions() -> Any:
    """0.5 MB."""
    api = codec.module(ApiKey.DESCRIBE_TRANSACTIONS)
    return api.DescribeTransactionsRequest(transactional_ids=[f"{number:04}" + "n" * 240 for number in range(2000)])


async def test_of_many_long_requests_few_are_handled_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _Asked(monkeypatch)
    for number in range(200):
        asked.send(ApiKey.DESCRIBE_TRANSACTIONS, 0, _transactions(), number)
    await asked.until(200)
    assert 1 <= asked.most <= 20


async def test_what_brokers_send_each_other_waits_for_no_other_long_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, api = _Asked(monkeypatch), codec.module(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    for number in range(100):
        asked.send(ApiKey.DESCRIBE_TRANSACTIONS, 0, _transactions(), number)
    wanted = [api.OffsetForLeaderPartition(partition=index, leader_epoch=1) for index in range(20_000)]
    topic = api.OffsetForLeaderTopic(topic="t", partitions=wanted)
    asked.send(ApiKey.OFFSET_FOR_LEADER_EPOCH, 3, api.OffsetForLeaderEpochRequest(replica_id=1, topics=[topic]), 999)
    await asked.until(101)
    assert asked.ended.index(999) < 40

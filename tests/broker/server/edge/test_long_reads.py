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
from ottla_broker.server.handlers import describe_transactions
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


async def test_of_many_long_requests_few_are_handled_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """200 of 0.5 MB each, which come at the same time."""
    now, most, ended = 0, 0, 0

    async def handle(_: object, context: RequestContext, request: Any) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        async for _ in context.each(request.transactional_ids, 3):
            pass
        now -= 1

    def respond(_: object, __: object) -> None:
        nonlocal ended
        ended += 1

    monkeypatch.setattr(describe_transactions, "handle", handle)
    monkeypatch.setattr(RequestContext, "respond", respond)
    clock, api_key = LoopClock(), ApiKey.DESCRIBE_TRANSACTIONS
    dispatcher = Dispatcher(clock)
    dispatcher.services = SimpleNamespace()  # type: ignore[assignment]
    api = codec.module(api_key)
    names = [f"{number:04}" + "n" * 240 for number in range(2000)]
    request = api.DescribeTransactionsRequest(transactional_ids=names)
    frame = memoryview(b"".join(map(bytes, api.write_request(0, request))))
    client: Any = SimpleNamespace(has_cluster_action=True, is_closed=False)
    for number in range(200):
        dispatcher.dispatch(RequestContext(client, int(api_key), 0, number, "client", 0.0), frame, 0)
    while ended < 200:
        await clock.sleep(0)
    assert 1 <= most <= 20

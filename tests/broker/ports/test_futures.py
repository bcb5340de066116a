"""Futures that are passed on, and failures that nobody awaits any more."""

from __future__ import annotations

import asyncio
import gc

import pytest

from ottla_broker.ports.futures import pass_on


async def test_the_outcome_is_passed_on() -> None:
    loop = asyncio.get_running_loop()
    succeeded, failed, cancelled = (loop.create_future() for _ in range(3))
    succeeded.set_result(7)
    failed.set_exception(OSError("no room"))
    cancelled.cancel()
    targets = [loop.create_future() for _ in range(3)]
    for source, target in zip((succeeded, failed, cancelled), targets, strict=True):
        pass_on(source, target)
    assert await targets[0] == 7
    with pytest.raises(OSError, match="no room"):
        await targets[1]
    assert targets[2].cancelled()


async def test_a_failure_for_a_future_that_was_cancelled_is_not_reported() -> None:
    loop = asyncio.get_running_loop()
    reported: list[object] = []
    loop.set_exception_handler(lambda _, context: reported.append(context))
    source, target = loop.create_future(), loop.create_future()
    source.set_exception(OSError("no room"))
    target.cancel()
    pass_on(source, target)
    del source
    gc.collect()
    assert reported == []

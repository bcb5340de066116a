"""Topics that are encoded once for all who ask at the same time."""

from __future__ import annotations

import asyncio

import pytest

from ottla_broker.metadata.prepared import EncodedTopics, PreparedTopics

TOPICS = EncodedTopics(1, (b"a",))


class Making:
    """Counts what is begun, and ends when it is told to."""

    def __init__(self) -> None:
        self.begun = 0
        self.end = asyncio.Event()

    async def __call__(self) -> EncodedTopics:
        self.begun += 1
        await self.end.wait()
        return TOPICS


def asks(prepared: PreparedTopics, make: Making, version: int = 1) -> asyncio.Task[EncodedTopics]:
    return asyncio.get_running_loop().create_task(prepared.get("kind", lambda: version, make))


async def begun(make: Making, times: int) -> None:
    for _ in range(100):
        await asyncio.sleep(0)
    assert make.begun == times


async def test_all_who_ask_meanwhile_share_what_is_made_once() -> None:
    prepared, make = PreparedTopics(), Making()
    waiting = [asks(prepared, make) for _ in range(3)]
    await begun(make, 1)
    make.end.set()
    assert await asyncio.gather(*waiting, asks(prepared, make)) == [TOPICS] * 4
    assert make.begun == 1


async def test_a_client_that_goes_away_takes_nobody_with_it() -> None:
    prepared, make = PreparedTopics(), Making()
    first = asks(prepared, make)
    others = [asks(prepared, make) for _ in range(2)]
    await begun(make, 1)
    first.cancel()
    await begun(make, 2)
    make.end.set()
    assert await asyncio.gather(*others) == [TOPICS] * 2
    assert make.begun == 2
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_one_who_only_waits_can_go_away_too() -> None:
    prepared, make = PreparedTopics(), Making()
    first, second = asks(prepared, make), asks(prepared, make)
    await begun(make, 1)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    make.end.set()
    assert await first == TOPICS


async def test_what_cannot_be_made_fails_for_all_who_wait_and_is_tried_again_by_the_next() -> None:
    prepared, make = PreparedTopics(), Making()

    async def fail() -> EncodedTopics:
        await make.end.wait()
        raise ValueError("too large")

    waiting = [asyncio.ensure_future(prepared.get("kind", lambda: 1, fail)) for _ in range(2)]
    make.end.set()
    assert [str(error) for error in await asyncio.gather(*waiting, return_exceptions=True)] == ["too large"] * 2
    assert await prepared.get("kind", lambda: 1, make) == TOPICS


async def test_nobody_gets_topics_of_before_a_change() -> None:
    prepared, make = PreparedTopics(), Making()
    make.end.set()
    await asks(prepared, make, 1)
    await asks(prepared, make, 1)
    await asks(prepared, make, 2)
    assert make.begun == 2

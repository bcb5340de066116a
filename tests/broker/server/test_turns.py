"""Long work of requests takes turns: one slice of all of them in an iteration of the loop."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_broker.protocol.generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla_broker.server.turns import ELEMENTS_PER_TURN, ClientIsGone, LongWork, Turns
from simulation.loop import VirtualTimeLoop
from tests.broker.server.contexts import turns_of_loop


class _Iterations:
    """Counts the iterations of the loop."""

    def __init__(self) -> None:
        self.count = 0
        self._step()

    def _step(self) -> None:
        self.count += 1
        asyncio.get_running_loop().call_soon(self._step)


def _run(main: Any) -> Any:
    loop = VirtualTimeLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()


def _work(turns: Turns, client: Any = None, *, is_urgent: bool = False) -> LongWork:
    return LongWork(turns, client or SimpleNamespace(is_closed=False), is_urgent=is_urgent)


def test_however_many_requests_are_long_the_loop_does_one_slice_in_an_iteration() -> None:
    async def main() -> list[int]:
        turns, iterations = turns_of_loop(), _Iterations()
        done: dict[int, int] = {}

        async def handle(work: LongWork) -> None:
            async for _ in work.each(range(10 * ELEMENTS_PER_TURN)):
                done[iterations.count] = done.get(iterations.count, 0) + 1

        async with asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(handle(_work(turns)))
        return [count for iteration, count in sorted(done.items())[1:]]  # the first has the beginnings of all

    slices = _run(main())
    assert sum(slices) > 19 * 9 * ELEMENTS_PER_TURN
    assert max(slices) <= ELEMENTS_PER_TURN + 1


def test_a_short_request_takes_no_turn() -> None:
    async def main() -> tuple[int, bool]:
        iterations, work = _Iterations(), _work(turns_of_loop())
        async for _ in work.each(range(ELEMENTS_PER_TURN)):
            pass
        return iterations.count, work.is_long

    assert _run(main()) == (1, False)


def test_a_request_of_the_controller_has_the_next_turn() -> None:
    async def main() -> list[str]:
        turns = turns_of_loop()
        order: list[str] = []

        async def handle(name: str, *, is_urgent: bool) -> None:
            await _work(turns, is_urgent=is_urgent).turn()
            order.append(name)

        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(handle(f"client {number}", is_urgent=False))
            group.create_task(handle("controller", is_urgent=True))
        return order

    assert _run(main()) == ["controller", "client 0", "client 1", "client 2"]


def test_the_work_for_a_client_that_is_gone_ends_with_its_turn() -> None:
    client = SimpleNamespace(is_closed=False)
    handled: list[int] = []

    async def main() -> None:
        async for number in _work(turns_of_loop(), client).each(range(10**9)):
            handled.append(number)
            if number == 150:
                client.is_closed = True

    with pytest.raises(ClientIsGone):
        _run(main())
    assert len(handled) < 150 + ELEMENTS_PER_TURN + 2


def test_a_message_is_released_in_turns() -> None:
    topics = [
        OffsetFetchRequestTopic(name=str(number), partition_indexes=list(range(3000 if number == 7 else 1)))
        for number in range(3000)
    ]
    large, request = topics[7], OffsetFetchRequest(group_id="g", topics=topics)

    async def main() -> int:
        iterations = _Iterations()
        await _work(turns_of_loop()).release(request)
        return iterations.count

    assert _run(main()) > 5
    assert (request.topics, large.partition_indexes) == ([], [])


def test_names_are_sorted_as_at_once() -> None:
    names = [f"topic-{number * 7919 % 5003}" for number in range(5003)]
    assert _run(_work_in_loop(names)) == sorted(names)


async def _work_in_loop(names: list[str]) -> list[str]:
    return await _work(turns_of_loop()).sorted(names)

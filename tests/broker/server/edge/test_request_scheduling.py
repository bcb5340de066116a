"""Slices of the loop for data requests: whoever waits for one gets one, whatever becomes of the others."""

from __future__ import annotations

import asyncio

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.server.edge.request_scheduling import DATA_SLICE_S, DataTurns


class Clock(LoopClock):
    """The loop's clock, with a time of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.monotonic = lambda: self.now


class Request:
    """Takes all of a slice; `fails` stands for a mistake in a handler."""

    def __init__(self, clock: Clock, turns: DataTurns, *, fails: bool = False) -> None:
        self.turns_taken = 0
        self._clock = clock
        self._turns = turns
        self._fails = fails

    def arrive(self) -> None:
        now = self._clock.now
        if now < self._turns.ends or self._turns.may_go_on(now):
            self.take_turn()
        else:
            self._turns.wait(self)

    def take_turn(self) -> None:
        self.turns_taken += 1
        self._clock.now += DATA_SLICE_S
        if self._fails:
            raise ValueError("a mistake")


async def test_a_request_that_fails_in_its_turn_keeps_nobody_else_waiting() -> None:
    clock = Clock()
    turns = DataTurns(clock)
    loop = asyncio.get_running_loop()
    errors: list[object] = []
    loop.set_exception_handler(lambda _, context: errors.append(context.get("exception")))
    requests = [Request(clock, turns, fails=number == 1) for number in range(4)]
    for request in requests:
        request.arrive()
    for _ in range(10):
        await asyncio.sleep(0)
    assert [request.turns_taken for request in requests] == [1, 1, 1, 1]
    assert [type(error) for error in errors] == [ValueError]
    later = Request(clock, turns)
    later.arrive()
    assert later.turns_taken == 1


async def test_a_turn_of_the_loop_has_one_slice_also_when_who_had_it_waits_for_another() -> None:
    clock = Clock()
    turns = DataTurns(clock)

    class Insatiable(Request):
        def take_turn(self) -> None:
            super().take_turn()
            if self.turns_taken < 5:
                turns.wait(self)

    Request(clock, turns).arrive()
    waits, behind = Insatiable(clock, turns), Request(clock, turns)
    waits.arrive()
    behind.arrive()
    for taken in range(1, 7):
        await asyncio.sleep(0)
        assert waits.turns_taken + behind.turns_taken == taken
    assert (waits.turns_taken, behind.turns_taken) == (5, 1)

"""Slices of the loop for data requests: every request that waits is dispatched, also when others fail."""

from __future__ import annotations

import asyncio

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.server.edge.request_scheduling import DATA_SLICE_S, RequestScheduler


class Clock(LoopClock):
    """The loop's clock, with virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.monotonic = lambda: self.now


class Request:
    """Takes all of a slice; `fails` stands for a bug in a handler."""

    def __init__(self, clock: Clock, scheduler: RequestScheduler, *, fails: bool = False) -> None:
        self.dispatched = 0
        self._clock = clock
        self._scheduler = scheduler
        self._fails = fails

    def arrive(self) -> None:
        now = self._clock.now
        if now < self._scheduler.slice_ends or self._scheduler.may_dispatch(now):
            self.dispatch_waiting()
        else:
            self._scheduler.wait(self)

    def dispatch_waiting(self) -> None:
        self.dispatched += 1
        self._clock.now += DATA_SLICE_S
        if self._fails:
            raise ValueError("a bug")


async def test_a_request_that_fails_does_not_stop_the_requests_that_wait_behind_it() -> None:
    clock = Clock()
    scheduler = RequestScheduler(clock, 500)
    loop = asyncio.get_running_loop()
    errors: list[object] = []
    loop.set_exception_handler(lambda _, context: errors.append(context.get("exception")))
    requests = [Request(clock, scheduler, fails=number == 1) for number in range(4)]
    for request in requests:
        request.arrive()
    for _ in range(10):
        await asyncio.sleep(0)
    assert [request.dispatched for request in requests] == [1, 1, 1, 1]
    assert [type(error) for error in errors] == [ValueError]
    later = Request(clock, scheduler)
    later.arrive()
    assert later.dispatched == 1


async def test_an_iteration_of_the_loop_has_one_slice_also_when_its_request_waits_for_another() -> None:
    clock = Clock()
    scheduler = RequestScheduler(clock, 500)

    class Insatiable(Request):
        def dispatch_waiting(self) -> None:
            super().dispatch_waiting()
            if self.dispatched < 5:
                scheduler.wait(self)

    Request(clock, scheduler).arrive()
    waits, behind = Insatiable(clock, scheduler), Request(clock, scheduler)
    waits.arrive()
    behind.arrive()
    for taken in range(1, 7):
        await asyncio.sleep(0)
        assert waits.dispatched + behind.dispatched == taken
    assert (waits.dispatched, behind.dispatched) == (5, 1)


async def test_clients_are_not_read_while_too_many_requests_wait_and_read_again_at_half_of_that() -> None:
    """queued.max.requests."""
    clock = Clock()
    scheduler = RequestScheduler(clock, 4)
    seen: list[bool] = []
    scheduler.on_full_changed = lambda: seen.append(scheduler.is_full)
    requests = [Request(clock, scheduler) for _ in range(5)]
    for request in requests:
        request.arrive()
    assert (seen, scheduler.waiting) == ([True], 4)
    await asyncio.sleep(0)
    assert (seen, scheduler.waiting) == ([True], 3)
    await asyncio.sleep(0)
    assert (seen, scheduler.waiting) == ([True, False], 2)

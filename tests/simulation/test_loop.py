"""Virtual time, ownership and the ends of a run."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import time
import warnings
from collections.abc import AsyncGenerator, Coroutine, Iterator
from typing import Any

import pytest

from simulation.clock import SimulatedClock
from simulation.loop import DeadlockError, LivelockError
from simulation.world import World


def test_a_day_passes_in_no_time_and_timers_of_one_instant_keep_their_order() -> None:
    world = World(1)
    world.loop.has_no_limit = True
    fired: list[object] = []

    async def main() -> None:
        for name in "abc":
            world.call_later(86_400.0, fired.append, name)
        world.call_later(1.0, fired.append, "first")
        await asyncio.sleep(86_400.0)
        fired.append(world.loop.time())

    started = time.monotonic()
    world.run(main())
    assert fired == ["first", "a", "b", "c", 86_400.0]
    assert time.monotonic() - started < 60


def test_waiting_for_what_nobody_brings_is_an_error_that_names_the_task() -> None:
    world = World(1)

    async def main() -> None:
        waiting = world.spawn(asyncio.Event().wait(), name="the-hopeless-one")
        await waiting

    with pytest.raises(DeadlockError, match="the-hopeless-one"):
        world.run(main())


def test_a_run_that_goes_on_for_ever_is_an_error_that_names_the_task() -> None:
    world = World(1)

    async def for_ever() -> None:
        while True:  # noqa: ASYNC110 - it is what the test is about
            await asyncio.sleep(1.0)

    with pytest.raises(LivelockError, match="scenario"):
        world.run(for_ever())


def test_a_crash_runs_nothing_further_of_the_process() -> None:
    world = World(1)
    ran: list[str] = []

    async def broker(clock: SimulatedClock) -> None:
        try:
            clock.call_later(2.0, ran.append, "timer")
            clock.call_soon(ran.append, "soon")
            await asyncio.gather(clock.sleep(0.5), asyncio.create_task(clock.sleep(5.0)))
        finally:
            ran.append("finally")

    async def main() -> None:
        machine = world.machine("m", "10.0.0.1")
        process = machine.start_process()
        clock = SimulatedClock(process)
        clock.spawn(broker(clock), name="main")
        await asyncio.sleep(1.0)
        machine.crash_process()
        await asyncio.sleep(10.0)
        assert ran == ["soon"]
        assert machine.start_process().name == "m.2"

    world.run(main())


def test_before_a_process_ends_a_judge_looks_once_more() -> None:
    world = World(1)
    seen: list[bool] = []

    async def main() -> None:
        process = world.machine("m", "10.0.0.1").start_process()
        world.last_looks.append(lambda: seen.append(process.alive))
        process.machine.crash_process()
        process.kill()

    world.run(main())
    assert seen == [True]


def test_what_a_process_made_ready_before_its_crash_does_not_run_either() -> None:
    world = World(1)
    ran: list[str] = []

    async def main() -> None:
        machine = world.machine("m", "10.0.0.1")
        clock = SimulatedClock(machine.start_process())
        event = asyncio.Event()

        async def waiter() -> None:
            await event.wait()
            ran.append("woken")

        clock.spawn(waiter(), name="waiter")
        await asyncio.sleep(0.1)
        event.set()
        machine.crash_process()
        await asyncio.sleep(1.0)

    world.run(main())
    assert ran == []


def test_what_a_finalizer_starts_after_the_run_is_not_taken_for_forgotten() -> None:
    async def wrapped(work: Coroutine[Any, Any, None]) -> None:
        await work

    async def broker(clock: SimulatedClock) -> None:
        try:
            await clock.sleep(5.0)
        finally:
            clock.spawn(wrapped(clock.sleep(1.0)), name="one thing more")

    def run() -> None:
        world = World(1)

        async def main() -> None:
            clock = SimulatedClock(world.machine("m", "10.0.0.1").start_process())
            clock.spawn(broker(clock), name="main")
            await asyncio.sleep(1.0)

        world.run(main())
        world.discard()

    gc.collect()  # what the tests before have left
    gc.collect()  # and what its finalizers made
    with warnings.catch_warnings(), catch_unraisable() as unraisable:
        warnings.simplefilter("error")
        run()
        gc.collect()
        gc.collect()  # what the finalizers made
    assert unraisable == []


def test_a_process_that_dies_while_it_loads_says_nothing_after_the_run() -> None:
    async def batches(clock: SimulatedClock) -> AsyncGenerator[int, None]:
        while True:
            yield 1
            await clock.create_future()

    async def load(clock: SimulatedClock) -> None:
        while True:
            try:
                async with contextlib.aclosing(batches(clock)) as found:
                    async for _ in found:
                        pass
            except Exception:  # a coordinator tries again, whatever the error
                await clock.sleep(1.0)

    def run(*, crashes: bool) -> None:
        world = World(1)

        async def main() -> None:
            machine = world.machine("m", "10.0.0.1")
            clock = SimulatedClock(machine.start_process())
            clock.spawn(load(clock), name="load")
            world.spawn(load(clock), name="of no process")
            await asyncio.sleep(1.0)
            if crashes:
                machine.crash_process()

        world.run(main())
        world.discard()

    gc.collect()
    with warnings.catch_warnings(), catch_unraisable() as unraisable:
        warnings.simplefilter("error")
        for crashes in (False, True):
            run(crashes=crashes)
            gc.collect()
            gc.collect()
    assert unraisable == []


def test_a_generator_that_is_left_half_way_is_closed_while_the_run_goes_on() -> None:
    world = World(1)
    ran: list[str] = []

    async def numbers() -> AsyncGenerator[int, None]:
        try:
            for number in range(3):
                yield number
        finally:
            ran.append("finally")

    async def broker() -> None:
        async for _ in numbers():
            break
        ran.append("left")

    async def main() -> None:
        machine = world.machine("m", "10.0.0.1")
        await machine.start_process().spawn(broker(), name="main")
        await asyncio.sleep(1.0)
        ran.append("later")

    with warnings.catch_warnings(), catch_unraisable() as unraisable:
        warnings.simplefilter("error")
        world.run(main())
    assert (ran, unraisable, world.problems) == (["left", "finally", "later"], [], [])


@contextlib.contextmanager
def catch_unraisable() -> Iterator[list[object]]:
    """What finalizers raise, a warning that is made an error too."""
    found: list[object] = []
    before, sys.unraisablehook = sys.unraisablehook, lambda args: found.append(args.exc_value)
    try:
        yield found
    finally:
        sys.unraisablehook = before


def test_a_failed_task_nobody_awaits_is_a_problem_of_the_run() -> None:
    world = World(1)

    async def fail() -> None:
        raise ValueError("broken")

    async def main() -> None:
        SimulatedClock(world.machine("m", "10.0.0.1").start_process()).spawn(fail(), name="failing")
        await asyncio.sleep(1.0)

    world.run(main())
    assert len(world.problems) == 1 and "failing" in world.problems[0] and "broken" in world.problems[0]

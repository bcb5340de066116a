"""The tests that every adapter of the Clock port has to pass. Subclass and provide the `clock` fixture."""

from __future__ import annotations

import asyncio

import pytest

from ottla_broker.ports.clock import Clock


class ClockContract:
    async def test_timers_fire_in_the_order_of_their_times(self, clock: Clock) -> None:
        fired: list[str] = []
        done = clock.create_future()
        clock.call_later(0.03, lambda: done.set_result(None))
        clock.call_later(0.02, fired.append, "second")
        clock.call_later(0.01, fired.append, "first")
        clock.call_soon(fired.append, "soon")
        clock.call_after_answers(fired.append, "after answers")
        await done
        assert fired == ["soon", "after answers", "first", "second"]

    async def test_a_cancelled_timer_does_not_fire(self, clock: Clock) -> None:
        fired: list[int] = []
        timer = clock.call_later(0.01, fired.append, 1)
        timer.cancel()
        timer.cancel()
        await clock.sleep(0.03)
        assert fired == []

    async def test_time_passes_while_sleeping(self, clock: Clock) -> None:
        wall, start = clock.now_ms(), clock.monotonic()
        await clock.sleep(0.05)
        assert clock.monotonic() - start >= 0.045
        assert clock.now_ms() - wall >= 40

    async def test_a_call_in_a_thread_gives_its_result_or_its_error(self, clock: Clock) -> None:
        assert await clock.in_thread(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await clock.in_thread(divmod, 7, 0)

    async def test_cancel_all_ends_tasks_and_timers(self, clock: Clock) -> None:
        fired: list[int] = []
        clock.call_later(0.01, fired.append, 1)
        task = clock.spawn(asyncio.Event().wait(), name="forever")
        await asyncio.sleep(0)
        clock.cancel_all()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.03)
        assert fired == []

    async def test_a_task_that_fails_is_reported(self, clock: Clock) -> None:
        reports: list[tuple[str, str]] = []
        clock.on_task_failure = lambda name, error: reports.append((name, str(error)))

        async def fail() -> None:
            raise ValueError("broken")

        task = clock.spawn(fail(), name="failing")
        with pytest.raises(ValueError, match="broken"):
            await task
        await asyncio.sleep(0)
        assert reports == [("failing", "broken")]

    async def test_uuids_differ(self, clock: Clock) -> None:
        assert clock.uuid4() != clock.uuid4()
        assert clock.uuid4().version == 4

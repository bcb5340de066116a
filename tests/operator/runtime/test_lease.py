"""One of several operators writes, whatever their clocks say; the next one goes on within 15 s of a death."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from ottla_operator.api.objects import LEASE, Obj, ResourceKind, dig
from ottla_operator.ports import ApiError
from ottla_operator.runtime import lease
from ottla_operator.runtime.lease import DURATION_S, RETRY_S, STOP_S, LeaseHolder
from simulation.loop import VirtualTimeLoop
from tests.operator.kubernetes import InMemoryKubernetes

HANDOVER_S = 15.0


class World:
    """Operators in virtual time at one API server, which `answers` or does not."""

    def __init__(self) -> None:
        self.loop = VirtualTimeLoop()
        self.kubernetes = _Hanging()
        self.lost: dict[str, float] = {}

    def close(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.wait(tasks))
        self.loop.close()

    def operator(self, name: str, now: Callable[[], str]) -> tuple[LeaseHolder, asyncio.Task[None]]:
        holder = LeaseHolder(self.kubernetes, "default", name, now)

        async def lost() -> None:
            self.lost[name] = self.loop.time()

        return holder, self.loop.create_task(holder.run(lost))

    def until(self, holds: Callable[[], bool], limit_s: float = 120.0) -> float:
        """Lets time pass until a condition holds. Returns how long that was."""
        began = self.loop.time()
        while not holds():
            assert self.loop.time() - began < limit_s, "it does not happen"
            self.pass_time(0.05)
        return self.loop.time() - began

    def pass_time(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))


class _Hanging(InMemoryKubernetes):
    """Calls of a name in `hangs` get no answer."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = False
        self.slow_s = 0.0

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Obj | None:
        if self.hangs:
            await asyncio.sleep(30)
            raise ApiError(0, "NoAnswer", "the API server does not answer")
        return await super().get(kind, namespace, name)

    async def replace(self, obj: Obj) -> Obj:
        if self.hangs:
            await asyncio.sleep(30)
            raise ApiError(0, "NoAnswer", "the API server does not answer")
        await asyncio.sleep(self.slow_s)
        return await super().replace(obj)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def _at(text: str) -> Callable[[], str]:
    return lambda: text


@pytest.mark.parametrize("second_clock", ["2026-01-01T00:00:00Z", "2026-01-01T09:00:00Z", "2025-01-01T00:00:00Z"])
def test_the_next_operator_takes_the_lease_of_a_killed_one_within_its_time_and_not_earlier(
    world: World, second_clock: str
) -> None:
    first, task = world.operator("a", _counting())
    world.until(lambda: first.is_held)
    second, _ = world.operator("b", _at(second_clock))
    world.pass_time(60.0)
    assert not second.is_held, "the holder renews"
    task.cancel()
    waited = world.until(lambda: second.is_held)
    assert STOP_S < waited < HANDOVER_S
    assert dig(world.kubernetes.there(LEASE, "ottla-operator"), "spec", "leaseTransitions") == 1


def test_a_holder_without_an_api_server_stops_before_another_operator_may_begin(world: World) -> None:
    first, _ = world.operator("a", _counting())
    world.until(lambda: first.is_held)
    renewed = world.loop.time()
    world.pass_time(1.0)
    world.kubernetes.hangs = True
    world.until(lambda: not first.is_held)
    assert world.lost["a"] - renewed < DURATION_S, "also while a request of it hangs"


def test_a_holder_keeps_its_lease_while_the_api_server_is_slow(world: World) -> None:
    first, _ = world.operator("a", _counting())
    world.until(lambda: first.is_held)
    second, _ = world.operator("b", _counting())
    world.kubernetes.slow_s = 4.0
    world.pass_time(120.0)
    assert first.is_held and not second.is_held and world.lost == {}


def test_a_holder_whose_lease_somebody_has_changed_reads_it_again(world: World) -> None:
    first, _ = world.operator("a", _counting())
    world.until(lambda: first.is_held)
    world.kubernetes.put(
        {
            **world.kubernetes.there(LEASE, "ottla-operator"),
            "metadata": {**world.kubernetes.there(LEASE, "ottla-operator")["metadata"], "labels": {"team": "a"}},
        }
    )
    world.pass_time(30.0)
    live = world.kubernetes.there(LEASE, "ottla-operator")
    assert first.is_held and world.lost == {} and live["metadata"]["labels"] == {"team": "a"}


def test_a_released_lease_is_taken_at_once(world: World) -> None:
    first, task = world.operator("a", _counting())
    world.until(lambda: first.is_held)
    second, _ = world.operator("b", _counting())
    world.pass_time(5.0)
    task.cancel()
    world.loop.run_until_complete(first.release())
    assert not first.is_held
    assert world.until(lambda: second.is_held) <= 1.0 + 2 * RETRY_S + 0.1


def test_two_operators_that_want_the_lease_at_the_same_time_do_not_both_get_it(world: World) -> None:
    found = [world.operator(name, _counting())[0] for name in ("a", "b", "c")]
    world.pass_time(30.0)
    assert sum(holder.is_held for holder in found) == 1


def test_the_times_of_the_lease_fit_together() -> None:
    assert lease.RENEW_S < STOP_S < DURATION_S and DURATION_S + 2 * RETRY_S < HANDOVER_S


def _counting() -> Callable[[], str]:
    """A clock whose every answer is another second."""
    count = 0

    def now() -> str:
        nonlocal count
        count += 1
        return f"2026-01-01T{count // 3600:02}:{count // 60 % 60:02}:{count % 60:02}Z"

    return now

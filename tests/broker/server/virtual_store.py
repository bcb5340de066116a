"""A broker's session with the coordination store, and a controller's, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ottla_broker.coordination import znodes
from simulation.clock import SimulatedClock
from simulation.coordination import SimulatedCoordination, SimulatedStore
from simulation.world import World


@dataclass
class Sessions:
    """The store has the parents of topics and of their deletions."""

    clock: SimulatedClock
    store: SimulatedStore
    broker: SimulatedCoordination
    controller: SimulatedCoordination

    async def settle(self) -> None:
        """Until the broker has heard of what is in the store, its retries included."""
        await self.clock.sleep(5)


def in_virtual_time(scenario: Callable[[Sessions], Coroutine[Any, Any, None]]) -> None:
    """Runs the scenario to its end; whatever a task of it left unhandled fails the test."""
    world = World(3)
    process = world.machine("m", "10.0.0.1").start_process()
    clock, store = SimulatedClock(process), SimulatedStore(world)

    async def run() -> None:
        sessions = Sessions(clock, store, SimulatedCoordination(process, store), SimulatedCoordination(process, store))
        await sessions.broker.start()
        await sessions.controller.start()
        for path in ("/brokers", znodes.TOPICS, "/admin", znodes.DELETE_TOPICS):
            await sessions.controller.create(path)
        await scenario(sessions)

    try:
        world.run(run())
    finally:
        world.discard()  # tasks that the scenario did not wait for
    assert world.problems == []

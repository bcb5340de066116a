"""Restarts the brokers of a fleet after they end, as a supervisor does.

A broker may end because a fault killed it, because it halted when its last log directory failed, or because its start
failed while a directory did not respond or the coordination store was not available. Any other halt or failed start
fails the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator

from simulation.cluster import SimulatedBroker
from simulation.world import World

_LOOK_S = 0.1


class BrokerRestarts:
    """See the module. One task per broker, until `settle`."""

    def __init__(self, world: World, brokers: list[SimulatedBroker]) -> None:
        self.world = world
        self.brokers = brokers
        self.recovering: dict[int, None] = {}
        """Brokers whose start is under way, or that are down."""
        self.stopping: dict[int, None] = {}
        """Brokers that somebody stops in good order; they are started again when they are down."""
        self._excuses: dict[int, int] = {}
        self._waits_until: dict[int, float] = {}
        self._tasks = [world.spawn(self._keep(broker), name=f"restarts-{broker.broker_id}") for broker in brokers]

    @contextlib.contextmanager
    def may_halt(self, broker: SimulatedBroker) -> Iterator[None]:
        """A fault that may halt the broker is under way."""
        number = broker.broker_id
        self._excuses[number] = self._excuses.get(number, 0) + 1
        broker.may_halt = True
        try:
            yield
        finally:
            self._excuses[number] -= 1

    async def until_gone(self, broker: SimulatedBroker, draw: random.Random, end: Callable[[], None]) -> None:
        """Has `end` happen at a drawn point: soon, or just before a drawn call of a disk; then `has_ended`."""
        gone = self.world.loop.create_future()

        def now() -> None:
            if not gone.done():
                gone.set_result(None)
                if broker.is_up:
                    end()

        if broker.process is not None and draw.random() < 0.6:
            broker.process.crash_after(draw.choice((1, 10, 100)) * draw.randrange(1, 10), now)
        timer = self.world.call_later(draw.choice((0.05, 0.5, 1.0)) * draw.random(), now)
        await gone
        timer.cancel()
        await self.has_ended(broker, draw)

    def stays_down(self, broker: SimulatedBroker, seconds: float) -> None:
        """Whoever has ended it wants it down for so long."""
        self._waits_until[broker.broker_id] = self.world.loop.time() + seconds

    async def has_ended(self, broker: SimulatedBroker, draw: random.Random) -> None:
        """It stays down for a drawn while, and this returns when it is being started again."""
        seconds = draw.choice((0.01, 0.5, 2.0, 6.0)) * (0.2 + draw.random())
        self.stays_down(broker, seconds)
        await asyncio.sleep(seconds)

    async def directory_returns(self, broker: SimulatedBroker) -> None:
        """The fault of a directory is healed; until the broker has seen that it may still halt."""
        await asyncio.sleep(2.0)

    async def _keep(self, broker: SimulatedBroker) -> None:
        number = broker.broker_id
        while True:
            await asyncio.sleep(_LOOK_S)
            if broker.is_up and broker.has_failed:
                if not broker.may_halt and not broker.has_lost_the_coordination:
                    self.world.problem(f"broker {number} did not start: {broker.failure}")
                broker.crash()
                self._waits_until[number] = self.world.loop.time() + 0.5
            if broker.is_up:
                if broker.is_ready:
                    self.recovering.pop(number, None)
                if broker.may_halt and not self._excuses.get(number) and broker.all_directories_serve():
                    broker.may_halt = False
                continue
            self.recovering[number] = None
            self.stopping.pop(number, None)
            if self.world.loop.time() >= self._waits_until.get(number, 0.0):
                may_halt = broker.may_halt or bool(self._excuses.get(number))
                broker.start()
                broker.may_halt = may_halt

    async def settle(self) -> None:
        """All faults are healed: returns when every broker is ready, and keeps them no longer."""
        self._waits_until.clear()
        for broker in self.brokers:
            while not (broker.is_up and broker.is_ready):  # noqa: ASYNC110 - a crash may come at any time
                await asyncio.sleep(_LOOK_S)
        for task in self._tasks:
            task.cancel()

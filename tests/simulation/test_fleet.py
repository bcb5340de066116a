"""The product's broker on simulated ports: what is easier to show than to hope that a seed draws it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from ottla_broker.server.registration import SESSION_FILE
from simulation.cluster import Fleet
from simulation.scenarios.single import broker_settings
from simulation.world import World


def with_fleet(count: int, use: Callable[[World, Fleet], Awaitable[None]], seed: int = 1) -> None:
    world = World(seed)

    async def main() -> None:
        fleet = Fleet(world, count, broker_settings(random.Random(seed), flush_every_message=False))
        await fleet.start()
        await use(world, fleet)

    world.run(main())
    assert world.problems == []


def test_a_broker_that_lost_its_kept_session_waits_for_its_own_registration_to_end() -> None:
    async def use(world: World, fleet: Fleet) -> None:
        broker = fleet.brokers[0]
        broker.crash()
        broker.machine.disks[broker.paths[0]].delete(SESSION_FILE)
        broker.start()
        await broker.wait_started()

    with_fleet(1, use)


def test_a_broker_restarted_after_a_crash_registers_at_once() -> None:
    async def use(world: World, fleet: Fleet) -> None:
        broker = fleet.brokers[0]
        broker.crash()
        crashed_at = world.loop.time()
        broker.start()
        await broker.wait_started()
        assert world.loop.time() - crashed_at < 1.0

    with_fleet(1, use)


def test_an_orderly_stop_leaves_nothing_to_recover_and_ends_the_session() -> None:
    async def use(world: World, fleet: Fleet) -> None:
        assert fleet.store.names("/brokers/ids") == ["0", "1", "2"]
        assert await fleet.brokers[1].stop_gracefully()
        await asyncio.sleep(0.1)
        assert fleet.store.names("/brokers/ids") == ["0", "2"]

    with_fleet(3, use)

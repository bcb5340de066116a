"""A broker that moves its leaderships away before it stops, in virtual time."""

from __future__ import annotations

import asyncio
import logging

import pytest

from ottla_broker.config import BrokerConfig
from ottla_broker.metadata.cache import MetadataCache
from ottla_broker.server.controlled_shutdown import request_controlled_shutdown
from ottla_broker.server.peers.controller_client import ControllerClient
from simulation.clock import SimulatedClock
from simulation.network import Fabric, SimulatedNetwork
from simulation.world import World

LOGGER = logging.LoggerAdapter(logging.getLogger("test"))


@pytest.mark.parametrize("tries", [3, 10])
def test_a_fleet_that_stops_as_a_whole_waits_for_a_controller_only_once(tries: int) -> None:
    """There is no active controller any more: all tries together take as long as one request to a controller may."""
    world = World(1)
    config = BrokerConfig.from_mapping(
        {
            "controlled.shutdown.max.retries": str(tries),
            "controlled.shutdown.retry.backoff.ms": "5000",
            "controller.socket.timeout.ms": "30000",
            "inter.broker.protocol.version": "3.9",
        }
    )

    async def main() -> bool:
        process = world.machine("m", "10.0.0.1").start_process()
        clock = SimulatedClock(process)
        network = SimulatedNetwork(Fabric(world), process.machine, process)
        controller = ControllerClient(7, network, clock, MetadataCache(7), "INTERNAL", 30_000)
        leaving = process.spawn(request_controlled_shutdown(controller, clock, config, 7, 1, LOGGER), name="leaving")
        await asyncio.wait([leaving])
        return leaving.result()

    assert world.run(main()) is False
    assert 30 <= world.loop.time() < 31

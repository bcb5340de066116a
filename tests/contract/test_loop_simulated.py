"""The Clock and Network ports in the simulator."""

from __future__ import annotations

import asyncio

import pytest

from simulation.clock import SimulatedClock
from simulation.loop import VirtualTimeLoop
from simulation.network import Fabric, SimulatedNetwork
from simulation.world import World
from tests.contract.clock_contract import ClockContract
from tests.contract.network_contract import NetworkContract


def world_of_this_loop(seed: int) -> World:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return World(seed, loop=loop)


class TestSimulatedClock(ClockContract):
    @pytest.fixture
    async def clock(self) -> SimulatedClock:
        return SimulatedClock(world_of_this_loop(1).machine("m", "10.0.0.1").start_process())


class TestSimulatedNetwork(NetworkContract):
    @pytest.fixture(params=range(5))
    async def network(self, request: pytest.FixtureRequest) -> SimulatedNetwork:
        world = world_of_this_loop(request.param)
        machine = world.machine("m", "10.0.0.1")
        return SimulatedNetwork(Fabric(world), machine, machine.start_process())

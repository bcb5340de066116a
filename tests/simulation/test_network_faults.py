"""Cuts, partitions and the deaths of processes, as the other side of a connection sees them."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from simulation.network import Fabric, SimulatedNetwork
from simulation.world import World
from tests.contract.network_contract import Recorder, framed


class Two:
    """A server process on one host and a client on another, connected."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.fabric = Fabric(world)
        self.server_machine = world.machine("server", "10.0.0.1")
        self.client_machine = world.machine("client", "10.0.0.2")
        self.server_network = SimulatedNetwork(self.fabric, self.server_machine, self.server_machine.start_process())
        self.client_network = SimulatedNetwork(self.fabric, self.client_machine)
        self.served: list[Recorder] = []
        self.is_listening = False

    async def connect(self, timeout_s: float = 5.0) -> Recorder:
        def serve(connection: Any) -> Recorder:
            self.served.append(Recorder(connection, echo=True))
            return self.served[-1]

        if not self.is_listening:
            self.is_listening = True
            await self.server_network.listen("0.0.0.0", 9092, serve, max_frame_bytes=1 << 20)
        made: list[Recorder] = []

        def call(connection: Any) -> Recorder:
            made.append(Recorder(connection))
            return made[0]

        await self.client_network.connect("10.0.0.1", 9092, call, timeout_s=timeout_s, max_frame_bytes=1 << 20)
        return made[0]


def run(use: Any, seed: int = 1) -> None:
    world = World(seed)

    async def main() -> None:
        await use(Two(world))

    world.run(main())
    assert world.problems == []


@pytest.mark.parametrize("seed", range(5))
def test_a_crashed_process_closes_its_connections_and_refuses_new_ones(seed: int) -> None:
    async def use(two: Two) -> None:
        client = await two.connect()
        two.server_machine.crash_process()
        await client.until(lambda c: c.reason is not None)
        with pytest.raises(ConnectionRefusedError):
            await two.connect()
        assert two.served[0].reason is None  # the dead are told nothing

    run(use, seed)


def test_a_host_without_power_answers_nothing_at_all() -> None:
    async def use(two: Two) -> None:
        client = await two.connect()
        two.server_machine.lose_power()
        started = two.world.loop.time()
        with pytest.raises(TimeoutError):
            await two.connect(timeout_s=3.0)
        assert two.world.loop.time() - started >= 3.0
        await client.until(lambda c: c.reason is not None)

    run(use)


def test_a_partition_holds_bytes_back_until_it_heals() -> None:
    async def use(two: Two) -> None:
        client = await two.connect()
        two.fabric.partition("10.0.0.1", "10.0.0.2")
        client.connection.send([framed(b"one"), framed(b"two")])
        await asyncio.sleep(60.0)
        assert two.served[0].frames == []
        with pytest.raises(TimeoutError):
            await two.connect(timeout_s=1.0)
        two.fabric.heal()
        await client.until(lambda c: len(c.frames) == 2)
        assert client.frames == [b"one", b"two"]

    run(use)


def test_a_broken_connection_is_told_to_both_ends() -> None:
    async def use(two: Two) -> None:
        client = await two.connect()
        client.connection.send([struct.pack(">i", 100)])
        await asyncio.sleep(1.0)
        two.fabric.break_some(1.0)
        await client.until(lambda c: c.reason is not None)
        await two.served[0].until(lambda s: s.reason is not None)
        assert "reset" in str(client.reason) and "reset" in str(two.served[0].reason)

    run(use)


def test_a_slow_host_is_slow() -> None:
    async def use(two: Two) -> None:
        client = await two.connect()
        two.fabric.slow("10.0.0.1", 5.0)
        started = two.world.loop.time()
        client.connection.send([framed(b"x")])
        await client.until(lambda c: c.frames == [b"x"])
        assert two.world.loop.time() - started > 0.1

    run(use)

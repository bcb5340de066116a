"""The Coordination port in the simulator."""

from __future__ import annotations

import asyncio

import pytest

from ottla_broker.ports.coordination import Coordination, SessionEvent
from simulation.coordination import SimulatedCoordination, SimulatedStore
from simulation.world import World
from tests.contract.coordination_contract import CoordinationContract, Received
from tests.contract.test_loop_simulated import world_of_this_loop


class SimulatedHarness:
    def __init__(self, world: World) -> None:
        self.world = world
        self.store = SimulatedStore(world)

    def new(self) -> SimulatedCoordination:
        number = len(self.world.machines)
        machine = self.world.machine(f"m{number}", f"10.0.0.{number}")
        return SimulatedCoordination(machine.start_process(), self.store, session_timeout_s=3.0)

    async def expire(self, coordination: Coordination) -> None:
        self.store.expire(coordination.session_id)


class TestSimulatedCoordination(CoordinationContract):
    @pytest.fixture(params=range(3))
    async def harness(self, request: pytest.FixtureRequest) -> SimulatedHarness:
        return SimulatedHarness(world_of_this_loop(request.param))

    async def test_calls_wait_while_suspended_and_missed_watches_fire_after_reconnecting(
        self, harness: SimulatedHarness
    ) -> None:
        away, writing = harness.new(), harness.new()
        await away.start()
        await writing.start()
        await writing.create("/a", b"0")
        watched: Received[object] = Received()
        sessions: Received[SessionEvent] = Received()
        away.add_session_listener(sessions)
        await away.get("/a", watched)
        harness.store.disconnect(away, 1.0)
        await sessions.until(1)
        read = away.get("/a")
        await writing.set("/a", b"1")
        assert not read.done() and watched.events == []
        assert (await read)[0] == b"1"
        assert len(watched.events) == 1
        assert sessions.events == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED]

    async def test_a_session_expires_when_it_does_not_reconnect_in_time(self, harness: SimulatedHarness) -> None:
        away = harness.new()
        await away.start()
        before = away.session_id
        sessions: Received[SessionEvent] = Received()
        away.add_session_listener(sessions)
        harness.store.disconnect(away, 10.0)
        await sessions.until(3)
        assert sessions.events == [SessionEvent.SUSPENDED, SessionEvent.EXPIRED, SessionEvent.CONNECTED]
        assert away.session_id != before

    async def test_the_session_of_a_crashed_process_exists_until_its_timeout(self, harness: SimulatedHarness) -> None:
        dying, observer = harness.new(), harness.new()
        await dying.start()
        await observer.start()
        await dying.create("/e", ephemeral=True)
        harness.world.machines["m0"].crash_process()
        assert await observer.exists("/e") is not None
        await asyncio.sleep(3.5)
        assert await observer.exists("/e") is None

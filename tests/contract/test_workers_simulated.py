"""The Workers port in the simulator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from ottla_broker.jobs import JOBS
from simulation import workers as simulated_workers
from simulation.disk import SimulatedDisk
from simulation.filesystem import DiskImage
from simulation.workers import SimulatedWorkers
from simulation.world import Machine
from tests.contract.test_loop_simulated import world_of_this_loop
from tests.contract.workers_contract import WorkersContract, write_torn_log


class TestSimulatedWorkers(WorkersContract):
    @pytest.fixture(params=range(3))
    async def machine(self, request: pytest.FixtureRequest) -> Machine:
        world = world_of_this_loop(request.param)
        machine = world.machine("m", "10.0.0.1")
        machine.disks["/d0"] = DiskImage("d0", world.stream("image"))
        machine.start_process()
        return machine

    @pytest.fixture
    def workers(self, machine: Machine) -> SimulatedWorkers:
        assert machine.process is not None
        return SimulatedWorkers(machine.process, JOBS)

    @pytest.fixture
    def disk(self, machine: Machine) -> SimulatedDisk:
        assert machine.process is not None
        return SimulatedDisk(machine.process, machine.disks["/d0"], "/d0")

    @pytest.fixture
    def at_question(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
        def arrange(act: Callable[[], object]) -> None:
            ways = 0

            async def sleep_then(delay: float) -> None:
                nonlocal ways
                await asyncio.sleep(delay)
                ways += 1
                if ways == 2:  # of the job, of its question
                    act()

            monkeypatch.setattr(simulated_workers, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep_then}))

        return arrange

    async def test_a_worker_that_dies_fails_its_job(self, workers: SimulatedWorkers, disk: SimulatedDisk) -> None:
        await write_torn_log(disk, "t-0")
        future = workers.run("recover-log", disk.path, "t-0", 0, 4096, False)
        await asyncio.sleep(0.0001)
        workers.kill_workers()
        with pytest.raises(RuntimeError, match="recover-log died"):
            await future

"""The Disk port in the simulator."""

from __future__ import annotations

import pytest

from simulation.disk import SimulatedDisk
from simulation.filesystem import DiskImage
from tests.contract.disk_contract import DiskContract
from tests.contract.test_loop_simulated import world_of_this_loop


class TestSimulatedDisk(DiskContract):
    @pytest.fixture(params=range(4))
    async def disks(self, request: pytest.FixtureRequest) -> tuple[SimulatedDisk, SimulatedDisk]:
        world = world_of_this_loop(request.param)
        image = DiskImage("d0", world.stream("image"))
        first = world.machine("m", "10.0.0.1").start_process()
        second = world.machine("n", "10.0.0.2").start_process()
        return SimulatedDisk(first, image, "/d0"), SimulatedDisk(second, image, "/d0")

    @pytest.fixture
    def disk(self, disks: tuple[SimulatedDisk, SimulatedDisk]) -> SimulatedDisk:
        return disks[0]

    @pytest.fixture
    def other_disk(self, disks: tuple[SimulatedDisk, SimulatedDisk]) -> SimulatedDisk:
        return disks[1]

"""A broker that comes back with an empty disk has nothing that others may be made to follow."""

from __future__ import annotations

import pytest

from simulation.cluster import SimulatedBroker
from simulation.filesystem import DiskImage
from tests.simulation.test_controller_sessions import Scene, play


async def controller_with_new_disks(scene: Scene) -> SimulatedBroker:
    """The controller, which led a topic of three replicas, starts again with empty disks."""
    lost = scene.controller()
    others = [broker.broker_id for broker in scene.fleet.brokers if broker is not lost]
    await scene.topic([lost.broker_id, *others])
    lost.crash()
    for path in lost.paths:
        lost.machine.disks[path] = DiskImage(path, scene.world.stream(f"new image/{path}"))
    lost.start()
    return lost


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_controller_that_comes_back_with_an_empty_disk_leads_only_when_it_has_everything_again(seed: int) -> None:
    """It could register in the moment its former session ends, and so before anybody else is controller."""

    async def use(scene: Scene) -> None:
        lost = await controller_with_new_disks(scene)
        await lost.wait_started()
        await scene.is_well()

    play(3, use, seed)


def test_a_start_that_is_killed_before_its_registration_does_not_make_the_disk_an_old_one() -> None:
    async def use(scene: Scene) -> None:
        lost = await controller_with_new_disks(scene)
        await scene.until(lambda: lost.broker is not None and lost.broker.state == "joining")
        lost.crash()
        lost.start()
        await lost.wait_started()
        await scene.is_well()

    play(3, use, seed=1)

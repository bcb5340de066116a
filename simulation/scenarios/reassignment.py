"""The `replicated` scenario on five brokers, while an administrator reassigns partitions all the time (KIP-455).

Targets have one to three brokers and are replaced and cancelled, during elections, crashes, controller failovers and
deletions of topics. After the faults every reassignment ends, and only the replicas of a partition have its log.
"""

from __future__ import annotations

import asyncio

from simulation.checker import Checker
from simulation.client import Client, Unavailable
from simulation.cluster import SimulatedFleet
from simulation.reassignments import Reassigner
from simulation.scenarios.replicated import run_fleet
from simulation.workload import Workload
from simulation.world import World

BROKERS = 5


async def run(world: World) -> Checker:
    return await run_fleet(world, brokers=BROKERS, extra=_keep_reassigning)


async def _keep_reassigning(fleet: SimulatedFleet, workload: Workload, client: Client) -> None:
    draw = fleet.world.stream("reassigning")
    reassigner = Reassigner(fleet.world, client, range(len(fleet.brokers)))
    while not workload.is_stopping:
        await asyncio.sleep(draw.choice((0.01, 0.5, 2.0)) * draw.random())
        try:
            await reassigner.act()
        except Unavailable:
            continue
    await reassigner.finish()
    fleet.world.note(f"{reassigner.begun} reassignments begun, {reassigner.cancelled} cancelled")

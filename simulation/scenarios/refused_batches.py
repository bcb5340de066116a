"""Three brokers, and a leader that has too few replicas in sync again and again, while new producers begin.

A new producer has several batches under way. When the ISR is whole again between two of them, the leader has refused
the first and could take the second, which may begin with any sequence: the first would come behind it, or be lost
(`replication.refused_batches`). Chance brings that about too rarely in the scenario `fleet`.

The oracle model is checked as there; nothing is lost here.
"""

from __future__ import annotations

import asyncio

from simulation.checker import Checker, Partition
from simulation.client import Client
from simulation.cluster import SimulatedFleet
from simulation.scenarios.fleet import checked
from simulation.scenarios.replicated import all_in_sync, replicas_are_equal
from simulation.scenarios.single import broker_settings, verify
from simulation.workload import create_topic
from simulation.world import World

TOPIC = "refused"
PARTITION: Partition = (TOPIC, 0)
_PRODUCERS = 4
"""New ones each time that the ISR has shrunk."""


async def run(world: World) -> Checker:
    draw = world.stream("scenario")
    settings = broker_settings(draw, flush_every_message=False) | {
        "min.insync.replicas": "2",
        "default.replication.factor": "3",
        "replica.lag.time.max.ms": "500",
        "replica.fetch.wait.max.ms": str(draw.choice((10, 50))),
        "zookeeper.session.timeout.ms": "18000",
    }
    fleet = SimulatedFleet(world, 3, settings)
    checker, leaderships, _, workload = checked(
        world, fleet, is_flushed=False, batch_gap_s=draw.choice((0.01, 0.1, 0.3))
    )
    client = Client(world, fleet.fabric, "client-1", "10.1.0.1", fleet.bootstrap)
    await fleet.start()
    while (controller := fleet.controller()) is None:  # noqa: ASYNC110 - there is nobody to ask
        await asyncio.sleep(0.01)
    # The leader reaches the controller, or its ISR would not shrink.
    leader, follower = draw.sample([broker for broker in fleet.brokers if broker is not controller], 2)
    ids = [leader.broker_id, follower.broker_id]
    await create_topic(workload, client, TOPIC, 1, 2, {}, assignment=[ids])
    workload.add_producer(client, PARTITION, acks=-1, is_idempotent=True)  # a follower that lacks nothing is in sync
    for _ in range(draw.randrange(3, 8)):
        await all_in_sync(fleet, client, checker)
        fleet.fabric.cut(follower.host, leader.host)
        while leaderships.states[PARTITION].in_sync != (leader.broker_id,):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        for _ in range(_PRODUCERS):
            workload.add_producer(client, PARTITION, acks=-1, is_idempotent=True)
        await asyncio.sleep(draw.uniform(0.1, 1.0))
        fleet.fabric.mend(follower.host, leader.host)
    workload.check()
    await all_in_sync(fleet, client, checker)
    await verify(fleet, workload, client)
    await all_in_sync(fleet, client, checker)
    await replicas_are_equal(fleet, client, checker)
    return checker

"""One broker: process crash and power loss at any point, torn writes, a failing disk, broken connections.

Half of the seeds set flush.messages=1: then no acknowledged or delivered record may be lost. In the others a power loss
may lose what was not flushed, and nothing else; a process crash loses nothing.
"""

from __future__ import annotations

import asyncio
import random

from simulation.checker import Checker, Violation
from simulation.client import Client, Unavailable
from simulation.cluster import SimulatedBroker, SimulatedFleet
from simulation.groups import Committer
from simulation.workload import Guarantees, Workload, create_topic, delete_topic, present_topics, read_whole
from simulation.world import World

SETTLE_S = 60.0
"""Virtual seconds after the last fault within which everything must be answered."""


def broker_settings(draw: random.Random, *, flush_every_message: bool) -> dict[str, str]:
    """Keys that make rolls, index entries and checkpoints happen within seconds; any batch fits into a segment."""
    settings = {
        "log.segment.bytes": str(draw.choice((20_000, 40_000, 200_000))),
        "log.index.interval.bytes": str(draw.choice((100, 1000, 4096))),
        "log.flush.offset.checkpoint.interval.ms": str(draw.choice((500, 2000, 60_000))),
        "replica.high.watermark.checkpoint.interval.ms": str(draw.choice((300, 5000))),
        "log.retention.ms": "-1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "2",
        "auto.create.topics.enable": "false",
        "zookeeper.session.timeout.ms": str(draw.choice((3000, 6000, 18_000))),
    }
    if flush_every_message:
        settings["log.flush.interval.messages"] = "1"
    elif draw.random() < 0.5:
        settings["log.flush.interval.messages"] = str(draw.choice((5, 100)))
    return settings


async def run(world: World) -> Checker:
    draw = world.stream("scenario")
    flushed = draw.random() < 0.5
    world.note("flush.messages=1" if flushed else "flush.messages not 1")
    fleet = SimulatedFleet(world, 1, broker_settings(draw, flush_every_message=flushed), disks=draw.choice((1, 1, 2)))
    checker = Checker()
    workload = Workload(world, checker, Guarantees(durable_acks=(1, -1), life_of=fleet.life_of))
    clients = [
        Client(world, fleet.fabric, f"client-{n}", f"10.1.0.{n}", fleet.bootstrap)
        for n in range(1, draw.choice((2, 3)) + 1)
    ]
    broker = fleet.brokers[0]
    await fleet.start()
    for number in range(draw.choice((1, 2, 3))):
        await add_topic(workload, draw, clients, f"t{number}", replicas=1)
    faults = draw.choice((1, 2, 3, 4))
    changes = keep_changing_topics(workload, world.stream("admin"), clients, replicas=1, times=draw.choice((0, 1, 4)))
    workload.add_work(changes, "admin")
    for _ in range(faults):
        if draw.random() < 0.3:
            fleet.fabric.break_some(0.5)
        if draw.random() < 0.15:
            world.note("a log directory fails")
            if not await broker.fail_disk(draw.choice(broker.paths), SETTLE_S):
                broker.start()
                await broker.wait_started()
        else:
            await _crash_somewhere(world, draw, broker, workload, is_flushed=flushed)
        workload.check()
    await asyncio.sleep(draw.random())
    await verify(fleet, workload, clients[0])
    return checker


async def add_topic(
    workload: Workload, draw: random.Random, clients: list[Client], name: str, *, replicas: int
) -> None:
    """A topic with its producers and consumers."""
    configs = {}
    if draw.random() < 0.3:
        configs["segment.bytes"] = "20000"
    partitions = draw.choice((1, 2, 3))
    if not await create_topic(workload, clients[0], name, partitions, replicas, configs):
        return  # the run ends
    for number in range(partitions):
        partition = (name, number)
        for _ in range(draw.choice((1, 2))):
            kind = draw.random()
            acks = draw.choice((0, 1, -1))
            workload.add_producer(
                draw.choice(clients), partition, acks=-1 if kind < 0.6 else acks, is_idempotent=kind < 0.6
            )
        workload.add_consumer(draw.choice(clients), partition)
    if draw.random() < 0.5:
        committer = Committer(workload, draw.choice(clients), f"group-{name}", (name, 0))
        workload.add_work(committer.run(), f"committer-{name}")


async def keep_changing_topics(
    workload: Workload, draw: random.Random, clients: list[Client], *, replicas: int, times: int
) -> None:
    """Creates and deletes topics while faults happen."""
    for number in range(times):
        await asyncio.sleep(draw.choice((0.2, 2.0)) * draw.random())
        if workload.is_stopping:
            return
        if draw.random() < 0.3 and len(workload.checker.topics) > 1:
            await delete_topic(workload, clients[0], draw.choice(sorted(workload.checker.topics)))
        else:
            await add_topic(workload, draw, clients, f"u{number}", replicas=replicas)


async def _crash_somewhere(
    world: World,
    draw: random.Random,
    broker: SimulatedBroker,
    workload: Workload,
    *,
    is_flushed: bool,
) -> None:
    """One crash, by chance another one within the recovery from it, and a start that succeeds."""
    while True:
        is_power_loss = draw.random() < 0.5
        crashed = world.loop.create_future()

        def crash(is_power_loss: bool = is_power_loss, crashed: asyncio.Future[None] = crashed) -> None:
            if crashed.done():
                return
            crashed.set_result(None)
            if not is_power_loss:
                broker.crash()
                return
            safe = broker.lose_power()
            if not is_flushed:
                workload.excused_losses += 1
                for partition, end in safe.items():
                    workload.checker.power_lost(partition, end)

        process = broker.process
        assert process is not None
        if draw.random() < 0.6:
            process.crash_after(draw.choice((1, 10, 100, 1000)) * draw.randrange(1, 10), crash)
        timer = world.call_later(draw.choice((0.05, 0.5, 4.0)) * draw.random(), crash)
        await crashed
        timer.cancel()
        await asyncio.sleep(draw.choice((0.01, 0.5, 3.0)) * draw.random())
        broker.start()
        if draw.random() > 0.25:
            await broker.wait_started()
            return


async def verify(fleet: SimulatedFleet, workload: Workload, client: Client) -> None:
    """The end of a run: all is healthy, everything is answered, and every partition is read whole."""
    fleet.fabric.heal()
    await workload.finish(SETTLE_S)
    deadline = workload.world.loop.time() + SETTLE_S
    while True:
        try:
            workload.checker.topics_present(await present_topics(client))
            break
        except (Unavailable, Violation) as error:
            if workload.world.loop.time() > deadline:
                raise Violation(f"{SETTLE_S} s after the last fault: {error}") from error
            await asyncio.sleep(0.2)
    for topic, partitions in sorted(workload.checker.topics.items()):
        for number in range(partitions):
            await read_whole(workload, client, (topic, number), SETTLE_S)

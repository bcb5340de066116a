"""Three brokers of two or three disks each: a disk fails for good, and its replicas are recreated on the others.

Replication factor 3, min.insync.replicas 2. One disk fails at a time, at any call. While its replicas are recreated,
the broker, another one, the controller or all connections may fail, and the disk may come back. Full replication must
return while the disk is offline, without an administrator. Then the disk comes back with its old content, its old logs
become strays, and the replicas of every partition have the same bytes. There is no power loss, so no record that was
acknowledged with acks=all, or delivered, may be lost: an empty replica must never have been the leader.
"""

from __future__ import annotations

import asyncio
import errno
import random

from simulation.checker import Checker, Violation
from simulation.client import Client
from simulation.cluster import SimulatedBroker, SimulatedFleet
from simulation.filesystem import DirectoryNode
from simulation.scenarios.replicated import all_in_sync, crash_and_restart, replicas_are_equal
from simulation.scenarios.single import SETTLE_S, add_topic, broker_settings, verify
from simulation.workload import Guarantees, Workload
from simulation.world import World


async def run(world: World) -> Checker:
    draw = world.stream("scenario")
    flushed = draw.random() < 0.1
    world.note("flush.messages=1" if flushed else "flush.messages not 1")
    disks = draw.choice((2, 3))
    settings = broker_settings(draw, flush_every_message=flushed) | {
        "min.insync.replicas": "2",
        "default.replication.factor": "3",
        "offsets.topic.replication.factor": "3",
        "replica.lag.time.max.ms": str(draw.choice((1000, 3000))),
        "replica.fetch.wait.max.ms": str(draw.choice((50, 500))),
        "zookeeper.session.timeout.ms": str(draw.choice((1500, 3000))),
        "ottla.log.dir.reserve.bytes": "0",
        "ottla.replica.recreate.max.bytes.per.second": str(draw.choice((1 << 20, 50 << 20))),
    }
    fleet = SimulatedFleet(world, 3, settings, disks=disks)
    checker = Checker()
    workload = Workload(world, checker, Guarantees(durable_acks=(-1,), life_of=fleet.life_of))
    clients = [Client(world, fleet.fabric, f"client-{n}", f"10.1.0.{n}", fleet.bootstrap) for n in (1, 2)]
    await fleet.start()
    for number in range(draw.choice((1, 2, 3))):
        await add_topic(workload, draw, clients, f"t{number}", replicas=3)
    world.has_failed_disk = True
    for number in range(draw.choice((1, 2))):
        await all_in_sync(fleet, clients[0], checker)
        await asyncio.sleep(draw.choice((0.1, 2.0)) * draw.random())
        broker = draw.choice(fleet.brokers)
        path = draw.choice(broker.paths)
        await _die(world, draw, broker, path)
        healed = await _in_the_middle(world, draw, fleet, broker, path)
        if draw.random() < 0.3:
            await add_topic(workload, draw, clients, f"u{number}", replicas=3)
        workload.check()
        if not healed and await _until_made_again(broker, path, checker):
            # Sessions ended, and the controller left this broker alone in an ISR before it heard of the disk.
            world.note(f"{path} comes back, others have not all that it holds")
            broker.machine.disks[path].failure = None
            healed = True
        await all_in_sync(fleet, clients[0], checker)
        if not healed:
            world.note(f"{path} comes back")
            broker.machine.disks[path].failure = None
        await broker.until_directory(path, ("online",), SETTLE_S)
        workload.check()
    await verify(fleet, workload, clients[0])
    await all_in_sync(fleet, clients[0], checker)
    await replicas_are_equal(fleet, clients[0], checker)
    return checker


async def _die(world: World, draw: random.Random, broker: SimulatedBroker, path: str) -> None:
    """Every call on the disk fails from the n-th on: what is under way ends anywhere."""
    world.note(f"{path} dies")
    world.trace.event("disk-dies", path)
    image = broker.machine.disks[path]
    image.fails_in = draw.choice((1, 10, 100)) * draw.randrange(1, 5)
    try:
        await broker.until_directory(path, ("offline",), 5.0)
    except Violation:
        image.failure, image.fails_in = errno.EIO, None
        await broker.until_directory(path, ("offline",), SETTLE_S)


async def _in_the_middle(
    world: World, draw: random.Random, fleet: SimulatedFleet, broker: SimulatedBroker, path: str
) -> bool:
    """What else fails while replicas are recreated, one after the other; True when the disk has come back by then."""
    image = broker.machine.disks[path]
    healed = False
    for _ in range(draw.choice((0, 1, 2, 3))):
        await asyncio.sleep(draw.choice((0.05, 0.5, 2.0)) * draw.random())
        kind = draw.choice(("itself", "itself", "other", "other", "controller", "expire", "break", "return"))
        world.note(f"meanwhile {kind}")
        if kind == "itself":
            await crash_and_restart(world, draw, broker)
        elif kind == "other":
            await crash_and_restart(world, draw, draw.choice([one for one in fleet.brokers if one is not broker]))
        elif kind == "controller":
            controller = fleet.controller()
            if controller is not None:
                await crash_and_restart(world, draw, controller)
        elif kind == "expire":
            one = draw.choice(fleet.brokers)
            assert one.coordination is not None
            fleet.store.expire(one.coordination.session_id)
        elif kind == "break":
            fleet.fabric.break_some(0.5)
        elif not healed:
            healed = True
            image.failure = None
    return healed


async def _until_made_again(broker: SimulatedBroker, path: str, checker: Checker) -> list[str]:
    """While the disk is still dead, the broker gets every replica of its on another one; gives those that it must not
    recreate, as it says, for it was alone in sync."""
    deadline = broker.world.loop.time() + SETTLE_S
    while True:
        present = {
            name
            for other in broker.paths
            if other != path
            for name, node in broker.machine.disks[other].root.entries.items()
            if isinstance(node, DirectoryNode)
        }
        missing = [
            f"{topic}-{number}"
            for topic, partitions in sorted(checker.topics.items())
            for number in range(partitions)
            if f"{topic}-{number}" not in present
        ]
        lost = set(broker.status()["recreation"].get("lost_partitions", ()))
        if all(name in lost for name in missing):
            return missing
        if broker.world.loop.time() > deadline:
            raise Violation(f"{SETTLE_S} s after {path} died broker {broker.broker_id} has no {', '.join(missing)}")
        await asyncio.sleep(0.2)

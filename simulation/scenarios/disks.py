"""Brokers with one to three disks. One disk at a time fails, hangs or is full; the others continue, and it comes back.

    eio     from a drawn call on each call fails with EIO; healed after a while. The disk may have lost its unsynced
            data by then, as after an unplug. The broker may have had no coordination store meanwhile, so that no other
            component learned of the failure.
    hang    no call completes: for less than ottla.log.dir.io.timeout.ms, which must have no effect, or for longer
    full    nothing more fits, or little

The broker never halts or restarts, and the directory is online again within SETTLE_S after it is healed. One whose only
disk fails halts, and is started again on the same boot once that is healed. With
flush.messages=1 no acknowledged or delivered record is lost. Without it only a disk that lost its unsynced data loses
records: with several brokers no more than the oracle model allows, and at the end all of them are in sync.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from simulation.checker import Checker, Violation
from simulation.client import Client
from simulation.cluster import SimulatedBroker, SimulatedFleet
from simulation.scenarios.fleet import checked, watch
from simulation.scenarios.replicated import all_in_sync, replicas_are_equal
from simulation.scenarios.single import SETTLE_S, add_topic, broker_settings, verify
from simulation.workload import Guarantees, Workload
from simulation.world import World

IO_TIMEOUT_S = 4.0
_PROMPTLY_S = 20.0
"""Within so long of virtual time a fault must show: the timeout, and the traffic or the look that meets it."""

Forget = Callable[[SimulatedBroker, str], None]
"""What was not synced to the disk at this path is gone."""


async def run(world: World) -> Checker:
    draw = world.stream("scenario")
    count = draw.choice((1, 1, 2, 3))
    flushed = draw.random() < 0.6
    world.note(f"{count} brokers, " + ("flush.messages=1" if flushed else "flush.messages not 1"))
    settings = broker_settings(draw, flush_every_message=flushed) | {
        "ottla.log.dir.io.timeout.ms": str(int(IO_TIMEOUT_S * 1000)),
        "ottla.log.dir.reserve.bytes": str(draw.choice((0, 2000, 20_000))),
        "default.replication.factor": str(count),
        "offsets.topic.replication.factor": str(count),
        "replica.lag.time.max.ms": str(draw.choice((1000, 3000))),
        "replica.fetch.wait.max.ms": str(draw.choice((50, 500))),
    }
    if count > 1:
        # A broker that is without the coordination store for a while stays a member.
        settings["zookeeper.session.timeout.ms"] = "18000"
    disks = draw.choice((2, 2, 3))
    if count > 1 and world.stream("one disk").random() < 0.3:
        disks = 1
    fleet = SimulatedFleet(world, count, settings, disks=disks)
    checker, workload, forget, end = (_alone if count == 1 else _together)(world, fleet, is_flushed=flushed)
    clients = [Client(world, fleet.fabric, f"client-{n}", f"10.1.0.{n}", fleet.bootstrap) for n in (1, 2)]
    await fleet.start()
    for number in range(draw.choice((1, 2, 3))):
        await add_topic(workload, draw, clients, f"t{number}", replicas=count)
    world.has_failed_disk = True
    for number in range(draw.choice((1, 2, 3))):
        await asyncio.sleep(draw.choice((0.1, 2.0)) * draw.random())
        await _fault(world, draw, fleet, forget)
        if draw.random() < 0.3:
            await add_topic(workload, draw, clients, f"u{number}", replicas=count)
        workload.check()
    await verify(fleet, workload, clients[0])
    if count > 1:
        await all_in_sync(fleet, clients[0], checker)
        await replicas_are_equal(fleet, clients[0], checker)
    end()
    return checker


def _alone(
    world: World, fleet: SimulatedFleet, *, is_flushed: bool
) -> tuple[Checker, Workload, Forget, Callable[[], object]]:
    """What checks a single broker; the last is called at the end."""
    checker = Checker()
    workload = Workload(world, checker, Guarantees(durable_acks=(1, -1), life_of=fleet.life_of))

    def forget(broker: SimulatedBroker, path: str) -> None:
        safe = broker.flushed_ends(path)
        broker.machine.disks[path].lose_power()
        if not is_flushed:
            workload.excused_losses += 1
            for partition, end in safe.items():
                checker.power_lost(partition, end)

    return checker, workload, forget, lambda: None


def _together(
    world: World, fleet: SimulatedFleet, *, is_flushed: bool
) -> tuple[Checker, Workload, Forget, Callable[[], object]]:
    """The same for several: a disk that forgets is to its replicas what a loss of power is."""
    checker, _, oracle, workload = checked(world, fleet, is_flushed=is_flushed)
    watching = world.spawn(watch(oracle), name="oracle")

    def forget(broker: SimulatedBroker, path: str) -> None:
        oracle.power_is_lost(broker, broker.machine.disks[path].lose_power, only=path)

    def end() -> None:
        oracle.look()
        watching.cancel()

    return checker, workload, forget, end


async def _fault(world: World, draw: random.Random, fleet: SimulatedFleet, forget: Forget) -> None:
    """One fault of one disk, its healing, and the return of the directory."""
    broker = draw.choice(fleet.brokers)
    path = draw.choice(broker.paths)
    if len(broker.paths) == 1:
        await _halt(world, draw, broker, forget)
        return
    kind = draw.choice(("eio", "eio", "hang", "full"))
    world.note(f"{kind} of {path}")
    world.trace.event("disk-fault", kind, path)
    if kind == "eio":
        is_unheard = len(fleet.brokers) > 1 and draw.random() < 0.5
        if is_unheard:
            assert broker.coordination is not None
            broker.machine.disks[path].fails_in = 0
            fleet.store.disconnect(broker.coordination, draw.uniform(3.0, 12.0))
        await _eio(draw, broker, path)
        if is_unheard or draw.random() < 0.5:
            world.trace.event("disk-forgets", path)
            forget(broker, path)
        broker.machine.disks[path].failure = None
    elif kind == "hang":
        await _hang(draw, broker, path)
    else:
        await _full(draw, broker, path)
    _others_are_well(broker, path)
    await broker.until_directory(path, ("online",), SETTLE_S)


async def _halt(world: World, draw: random.Random, broker: SimulatedBroker, forget: Forget) -> None:
    """The only disk fails from the n-th call on, and somebody repairs it, soon or late."""
    (path,) = broker.paths
    image = broker.machine.disks[path]
    world.note(f"eio of {path}, the only one")
    world.trace.event("disk-fault", "halt", path)
    broker.may_halt = True
    image.fails_in = draw.choice((1, 10)) * draw.randrange(10)
    async with asyncio.timeout(SETTLE_S):
        await broker.has_halted.wait()
    broker.crash()
    if draw.random() < 0.7:
        world.trace.event("disk-forgets", path)
        forget(broker, path)
    image.failure = None
    await asyncio.sleep(draw.choice((0.0, 1.0, 30.0)) * draw.random())
    broker.start()
    await broker.wait_started()


async def _eio(draw: random.Random, broker: SimulatedBroker, path: str) -> None:
    """Fails for good from the n-th call on: whatever call that is, the broker must bear it."""
    image = broker.machine.disks[path]
    if image.fails_in is None:
        image.fails_in = draw.choice((1, 10, 100)) * draw.randrange(10)
    try:
        # Traffic decides when it comes to the call; a look comes every second.
        await broker.until_directory(path, ("offline",), SETTLE_S)
    except Violation:
        if image.failure is not None:
            raise
        image.fails_in = 0
        await broker.until_directory(path, ("offline",), _PROMPTLY_S)
    _others_are_well(broker, path)
    await asyncio.sleep(draw.choice((0.0, 1.0, 15.0)) * draw.random())


async def _hang(draw: random.Random, broker: SimulatedBroker, path: str) -> None:
    image = broker.machine.disks[path]
    is_long = draw.random() < 0.6
    image.is_hung = True
    if is_long:
        await broker.until_directory(path, ("offline",), _PROMPTLY_S)
        _others_are_well(broker, path)
        await asyncio.sleep(draw.choice((0.0, 1.0, 15.0)) * draw.random())
        if broker.directory_state(path) != "offline":
            raise Violation(f"{path} came back while a call on it still hung")
    else:
        await asyncio.sleep(IO_TIMEOUT_S / 3 * draw.random())
        if broker.directory_state(path) == "offline":
            raise Violation(f"{path} was given up before ottla.log.dir.io.timeout.ms")
    image.is_hung = False


async def _full(draw: random.Random, broker: SimulatedBroker, path: str) -> None:
    image = broker.machine.disks[path]
    image.capacity_bytes = image.used_bytes() + draw.choice((0, 0, 1, 500, 5000))
    await asyncio.sleep(draw.choice((0.1, 2.0, 10.0)) * draw.random())
    if broker.directory_state(path) == "offline":
        raise Violation(f"{path} is full, which is no failure, and went offline")
    image.capacity_bytes = 1 << 40


def _others_are_well(broker: SimulatedBroker, path: str) -> None:
    for other in broker.paths:
        if other != path and broker.directory_state(other) != "online":
            raise Violation(f"{path} has a fault, and {other} is {broker.directory_state(other)}")

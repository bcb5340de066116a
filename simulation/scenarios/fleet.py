"""The whole fleet: three to seven brokers, every kind of fault at any time, several at once, and an exact oracle.

Faults overlap and occur in every state of the fleet (`simulation.faults`); meanwhile topics are created, grow and are
deleted. After at least MIN_VIRTUAL_S, MIN_ACKNOWLEDGED, MIN_MESSAGES and MIN_FAULTS everything is healed. Then every
record that the oracle model guarantees must exist at the same offset on all replicas (`simulation.oracle`), and every
waiting request must get a response.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from simulation.administration import Administrator
from simulation.broker_restarts import BrokerRestarts
from simulation.checker import Checker, Violation
from simulation.client import Client
from simulation.cluster import SimulatedFleet
from simulation.coverage import Coverage
from simulation.faults import FAULTS, Scene, draw_fault
from simulation.groups import Committer
from simulation.leaderships import Leaderships
from simulation.oracle import Oracle
from simulation.probes import EndProbe
from simulation.scenarios.replicated import all_in_sync, all_is_committed, replicas_are_equal
from simulation.scenarios.single import SETTLE_S, broker_settings, verify
from simulation.workload import Guarantees, Workload
from simulation.world import World

MIN_VIRTUAL_S = 20.0
MIN_MESSAGES = 5000
MIN_ACKNOWLEDGED = 300
MIN_FAULTS = 5
_LONGEST_S = 120.0
"""Faults do not go on for longer, whatever is missing; what is missing comes when they are healed."""
_STRIKING = 0.7
"""The part of MIN_MESSAGES during which faults begin; the last ones end, and the end is checked, in what is left."""
_SLOWEST = 10.0
_MOST_AT_ONCE = 4
_LOOK_S = 0.05


def checked(
    world: World, fleet: SimulatedFleet, *, is_flushed: bool, **guarantees: Any
) -> tuple[Checker, Leaderships, Oracle, Workload]:
    """A workload on the fleet and what checks it; `guarantees` are those of `Guarantees` that a scenario chooses."""
    checker = Checker()
    leaderships = Leaderships(world, fleet.store)
    oracle = Oracle(world, fleet.brokers, leaderships, checker, is_flushed=is_flushed)
    world.at_end.enter_context(oracle.watching_commits())
    chosen = Guarantees(
        durable_acks=(-1,),
        life_of=fleet.life_of,
        losses_of=oracle.losses,
        is_promise=oracle.is_promise,
        is_current=lambda address, partition: is_current(fleet, leaderships, address, partition),
        **guarantees,
    )
    return checker, leaderships, oracle, Workload(world, checker, chosen)


async def run(world: World) -> Checker:
    draw = world.stream("scenario")
    count = draw.choice((3, 3, 3, 3, 4, 5, 5, 7))
    replicas = min(count, draw.choice((3, 3, 3, 3, 3, 2, 5, 1)))
    flushed = draw.random() < 0.2
    settings = _settings(draw, replicas, flushed=flushed)
    # With the smaller one many a batch of these producers is larger than what a follower asks for of its partition.
    settings["replica.fetch.max.bytes"] = world.stream("fetches").choice(("1048576", "1048576", "1000"))
    fleet = SimulatedFleet(world, count, settings, disks=draw.choice((1, 1, 2, 3)))
    world.note(
        f"{count} brokers, {len(fleet.brokers[0].paths)} disks, {replicas} replicas,"
        f" {'flush.messages=1' if flushed else 'flush.messages not 1'}"
    )
    checker, leaderships, oracle, workload = checked(
        world,
        fleet,
        is_flushed=flushed,
        producer_pauses_s=draw.choice(((0.05, 0.1, 0.4), (0.0, 0.02, 0.3, 0.6), (0.2, 0.4))),
        stretch=lambda: _stretch(world),
    )
    clients = [Client(world, fleet.fabric, f"client-{n}", f"10.1.0.{n}", fleet.bootstrap) for n in (1, 2, 3)]
    await fleet.start()
    watching = world.spawn(watch(oracle), name="oracle")
    started_s = world.loop.time()
    restarts = BrokerRestarts(world, fleet.brokers)
    administrator = Administrator(workload, fleet, leaderships, clients, replicas)
    for number in range(draw.choice((1, 2))):
        await administrator.create(f"t{number}")
    committer = Committer(workload, clients[0], "group", ("t0", 0))
    workload.add_work(committer.run(), "committer")
    probe = EndProbe(workload, clients[2], fleet.brokers, leaderships)
    workload.add_work(probe.run(), "end-probe")
    workload.add_work(administrator.run(), "administrator")

    coverage = Coverage(world, leaderships, oracle, restarts)
    scene = Scene(world, fleet, restarts, oracle, clients, draw)
    await _strike(world, scene, coverage, workload, started_s)
    heal(fleet)
    async with _within(SETTLE_S, "the brokers are not all ready"):
        await restarts.settle()
    await administrator.finish()
    await all_in_sync(fleet, clients[0], checker)
    while (
        world.counters.messages < MIN_MESSAGES
        or checker.acknowledged_count < MIN_ACKNOWLEDGED
        or world.loop.time() - started_s < MIN_VIRTUAL_S
    ):
        await asyncio.sleep(0.2)
        workload.check()
    await verify(fleet, workload, clients[0])
    await administrator.finish()
    await all_in_sync(fleet, clients[0], checker)
    await replicas_are_equal(fleet, clients[0], checker)
    await all_is_committed(fleet, checker)
    await brokers_agree(fleet, leaderships)
    oracle.look()
    watching.cancel()
    return checker


def _settings(draw: random.Random, replicas: int, *, flushed: bool) -> dict[str, str]:
    return broker_settings(draw, flush_every_message=flushed) | {
        "min.insync.replicas": str(draw.choice((1, 2, 2))),
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "offsets.topic.num.partitions": "1",
        "replica.lag.time.max.ms": str(draw.choice((1000, 3000))),
        "replica.fetch.wait.max.ms": "500",
        "zookeeper.session.timeout.ms": str(draw.choice((1500, 3000, 6000))),
        "replica.socket.timeout.ms": "3000",
        "controller.socket.timeout.ms": "3000",
        "ottla.log.dir.io.timeout.ms": "3000",
        "log.flush.offset.checkpoint.interval.ms": str(draw.choice((2000, 60_000))),
        "replica.high.watermark.checkpoint.interval.ms": str(draw.choice((1000, 5000))),
    }


async def watch(oracle: Oracle) -> None:
    """Has the oracle look every _LOOK_S."""
    while True:
        await asyncio.sleep(_LOOK_S)
        oracle.look()


def _stretch(world: World) -> float:
    """By how much producers slow down: a run of many partitions would have its messages long before its time is over,
    and shows nothing by going on at that rate.

    With twice the messages that it needs by now, in MIN_VIRTUAL_S, eight times.
    """
    needed = MIN_MESSAGES * min(1.0, world.loop.time() / MIN_VIRTUAL_S)
    return min(_SLOWEST, max(1.0, world.counters.messages / max(needed, 1.0)) ** 3)


async def _strike(world: World, scene: Scene, coverage: Coverage, workload: Workload, started_s: float) -> None:
    """Faults, several at once, until the run has had enough of everything."""
    draw = scene.draw
    striking: dict[asyncio.Task[None], None] = {}
    number = 0
    checker = workload.checker
    while True:
        await asyncio.sleep(draw.choice((0.1, 1.0, 3.0)) * draw.random())
        workload.check()
        if world.problems:
            raise Violation("the oracle has found something")
        for task in [task for task in striking if task.done()]:
            del striking[task]
            task.result()
        lasted_s = world.loop.time() - started_s
        is_enough = (
            lasted_s > MIN_VIRTUAL_S - 5.0
            and number >= MIN_FAULTS
            and world.counters.messages > MIN_MESSAGES * _STRIKING
            and checker.acknowledged_count > MIN_ACKNOWLEDGED / 2
        )
        if is_enough or lasted_s > _LONGEST_S:
            break
        if len(striking) < _MOST_AT_ONCE:
            number += 1
            name, fault = draw_fault(draw, FAULTS)
            coverage.struck(name)
            own = Scene(
                world, scene.fleet, scene.restarts, scene.oracle, scene.clients, world.stream(f"fault/{number}")
            )
            striking[world.spawn(_one(fault, own), name=f"fault-{name}")] = None
    world.faults = number
    for task in striking:
        await task


async def _one(fault: object, scene: Scene) -> None:
    await fault(scene)  # type: ignore[operator]


def heal(fleet: SimulatedFleet) -> None:
    """Whatever a fault may have left."""
    fleet.fabric.heal()
    fleet.store.slow_s = 0.0
    for broker in fleet.brokers:
        for image in broker.machine.disks.values():
            image.fails_in = image.failure = None
            image.capacity_bytes = 1 << 40
            image.slow_s = 0.0
            if image.is_hung:
                image.is_hung = False


async def brokers_agree(fleet: SimulatedFleet, leaderships: Leaderships) -> None:
    """After a quiet while each broker tells clients what the coordination store says, of exactly those partitions."""
    deadline = fleet.world.loop.time() + SETTLE_S
    while True:
        wanted = {key: (state.leader, state.epoch, state.in_sync) for key, state in leaderships.states.items()}
        different = [
            f"broker {broker.broker_id} of {topic}-{number}"
            for broker in fleet.brokers
            for known in [broker.known_leaderships()]
            for topic, number in sorted({**known, **wanted})
            if known.get((topic, number)) != wanted.get((topic, number))
        ]
        if not different:
            return
        if fleet.world.loop.time() > deadline:
            raise Violation(f"{SETTLE_S} s after the last fault clients are told wrong by {', '.join(different)}")
        await asyncio.sleep(0.5)


def is_current(
    fleet: SimulatedFleet, leaderships: Leaderships, address: tuple[str, int], partition: tuple[str, int] | None
) -> bool:
    """`Guarantees.is_current` of a fleet whose state znodes are watched."""
    for broker in fleet.brokers:
        if broker.host == address[0]:
            for replica in broker.partitions():
                if partition not in (None, (replica.topic, replica.index)):
                    continue
                state = leaderships.states.get((replica.topic, replica.index))
                if replica.is_leader and (state is None or state.epoch != replica.leader_epoch):
                    return False
    return True


class _within:
    """`asyncio.timeout` that ends in a Violation."""

    def __init__(self, seconds: float, otherwise: str) -> None:
        self._text = f"{otherwise} {seconds} s after the last fault"
        self._timeout = asyncio.timeout(seconds)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, *error: object) -> None:
        try:
            await self._timeout.__aexit__(*error)  # type: ignore[arg-type]
        except TimeoutError as late:
            raise Violation(self._text) from late

"""Three brokers, replication factor 3, min.insync.replicas 2; one fault at a time, healed before the next.

Faults: kill -9 of any broker (it restarts later), slow messages, an expired session, a controller failover. There is no
power loss, so every record that was acknowledged with acks=all, or delivered, must survive; acks=1 guarantees nothing
beyond the leader. At the end all replicas of a partition have the same bytes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from simulation.checker import Checker, Violation
from simulation.client import Client, Unavailable
from simulation.cluster import SimulatedBroker, SimulatedFleet
from simulation.scenarios.single import SETTLE_S, add_topic, broker_settings, keep_changing_topics, verify
from simulation.workload import Guarantees, Workload
from simulation.world import World


async def run(world: World) -> Checker:
    return await run_fleet(world)


Extra = Callable[[SimulatedFleet, Workload, Client], Coroutine[Any, Any, None]]
"""More work of clients, until the workload stops."""


async def run_fleet(world: World, *, brokers: int = 3, disks: int = 1, extra: Extra | None = None) -> Checker:
    """The scenario on brokers with `disks` log directories; `extra` goes on while faults happen."""
    draw = world.stream("scenario")
    flushed = draw.random() < 0.1
    world.note("flush.messages=1" if flushed else "flush.messages not 1")
    settings = broker_settings(draw, flush_every_message=flushed) | {
        "min.insync.replicas": "2",
        "default.replication.factor": "3",
        "offsets.topic.replication.factor": "3",
        "replica.lag.time.max.ms": str(draw.choice((1000, 3000))),
        "replica.fetch.wait.max.ms": str(draw.choice((50, 500))),
        "zookeeper.session.timeout.ms": str(draw.choice((1500, 3000))),
    }
    fleet = SimulatedFleet(world, brokers, settings, disks=disks)
    checker = Checker()
    workload = Workload(world, checker, Guarantees(durable_acks=(-1,), life_of=fleet.life_of))
    clients = [Client(world, fleet.fabric, f"client-{n}", f"10.1.0.{n}", fleet.bootstrap) for n in (1, 2)]
    await fleet.start()
    for number in range(draw.choice((1, 2))):
        await add_topic(workload, draw, clients, f"t{number}", replicas=3)
    changes = keep_changing_topics(workload, world.stream("admin"), clients, replicas=3, times=draw.choice((0, 1, 3)))
    workload.add_work(changes, "admin")
    if extra is not None:
        workload.add_work(extra(fleet, workload, clients[-1]), "extra")
    for _ in range(draw.choice((1, 2, 4))):
        await asyncio.sleep(draw.choice((0.1, 2.0)) * draw.random())
        await _fault(world, draw, fleet)
        workload.check()
        await all_in_sync(fleet, clients[0], checker)
    await verify(fleet, workload, clients[0])
    await all_in_sync(fleet, clients[0], checker)
    await replicas_are_equal(fleet, clients[0], checker)
    return checker


async def _fault(world: World, draw: random.Random, fleet: SimulatedFleet) -> None:
    """One fault and its healing."""
    broker = draw.choice(fleet.brokers)
    kind = draw.choice(("crash", "crash", "delay", "expire", "disconnect", "controller"))
    world.note(f"{kind} of broker {broker.broker_id}")
    if kind == "crash":
        await crash_and_restart(world, draw, broker)
    elif kind == "delay":
        fleet.fabric.slow(broker.host, draw.choice((0.05, 0.5, 2.0)))
        await asyncio.sleep(draw.choice((0.5, 5.0)) * draw.random())
        fleet.fabric.heal()
    elif kind == "expire":
        assert broker.coordination is not None
        fleet.store.expire(broker.coordination.session_id)
    elif kind == "disconnect":
        assert broker.coordination is not None
        fleet.store.disconnect(broker.coordination, draw.choice((0.1, 1.0, 5.0)) * draw.random())
    else:
        controller = fleet.controller()
        if controller is None:
            return
        if draw.random() < 0.5:
            await crash_and_restart(world, draw, controller)
        else:
            assert controller.coordination is not None
            fleet.store.expire(controller.coordination.session_id)
    await asyncio.sleep(draw.choice((0.1, 1.0, 3.0)) * draw.random())


async def crash_and_restart(world: World, draw: random.Random, broker: SimulatedBroker) -> None:
    crashed = world.loop.create_future()

    def crash() -> None:
        if not crashed.done():
            crashed.set_result(None)
            broker.crash()

    assert broker.process is not None
    if draw.random() < 0.6:
        broker.process.crash_after(draw.choice((1, 10, 100)) * draw.randrange(1, 10), crash)
    timer = world.call_later(draw.choice((0.05, 0.5, 2.0)) * draw.random(), crash)
    await crashed
    timer.cancel()
    await asyncio.sleep(draw.choice((0.01, 1.0, 6.0)) * draw.random())
    broker.start()
    await broker.wait_started()


async def all_in_sync(fleet: SimulatedFleet, client: Client, checker: Checker) -> None:
    """Waits until every partition has a leader and all its replicas are in sync: the fault is healed."""
    deadline = fleet.world.loop.time() + SETTLE_S
    behind: list[str] = []
    while fleet.world.loop.time() < deadline:
        try:
            state = await client.refresh()
            behind = [
                f"{topic}-{number} (leader {part.leader}, ISR {part.in_sync})"
                for (topic, number), part in sorted(state.partitions.items())
                if topic in checker.topics and (part.leader < 0 or sorted(part.in_sync) != sorted(part.replicas))
            ]
            # Asked may be one that has not heard of the newest partitions.
            expected = [(topic, number) for topic, count in checker.topics.items() for number in range(count)]
            behind += [
                f"{topic}-{number} (not known)" for topic, number in expected if (topic, number) not in state.partitions
            ]
            if not behind:
                return
        except Unavailable as error:
            behind = [str(error)]
        await asyncio.sleep(0.2)
    raise Violation(f"{SETTLE_S} s after the fault these are not in sync: {'; '.join(behind)}")


async def replicas_are_equal(fleet: SimulatedFleet, client: Client, checker: Checker) -> None:
    """After a quiet while the replicas of every partition hold the same bytes, and nobody else holds any."""
    deadline = fleet.world.loop.time() + SETTLE_S
    while True:
        logs = [broker.log_bytes() for broker in fleet.brokers]
        different = []
        for topic, partitions in sorted(checker.topics.items()):
            for number in range(partitions):
                replicas = client.state.partitions[(topic, number)].replicas
                copies = [log.get((topic, number), b"absent") for log in logs]
                if len({copies[broker] for broker in replicas}) > 1:
                    different.append(f"{topic}-{number}")
                different += [
                    f"{topic}-{number} is left on broker {broker}"
                    for broker, copy in enumerate(copies)
                    if broker not in replicas and copy != b"absent"
                ]
        if not different:
            return
        if fleet.world.loop.time() > deadline:
            raise Violation(f"the replicas differ {SETTLE_S} s after the last record: {', '.join(different)}")
        await asyncio.sleep(0.5)


async def all_is_committed(fleet: SimulatedFleet, checker: Checker) -> None:
    """After a quiet while every replica knows that all that it holds is committed: consumers may read it."""
    deadline = fleet.world.loop.time() + SETTLE_S
    while True:
        left = [
            f"{replica.topic_partition} on broker {broker.broker_id} from {replica.log.state.high_watermark} on"
            for broker in fleet.brokers
            for replica in broker.partitions()
            if replica.topic in checker.topics and replica.log.state.high_watermark < replica.log.state.log_end_offset
        ]
        if not left:
            return
        if fleet.world.loop.time() > deadline:
            raise Violation(f"{SETTLE_S} s after the last record there is not committed: {', '.join(left)}")
        await asyncio.sleep(0.5)

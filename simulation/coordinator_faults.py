"""Faults of a fleet that are aimed at the coordinators of one internal topic, and how they strike.

Half of what strikes hits a broker that leads a partition of the topic. Faults that lose what was acknowledged are left
out, and losses of power where not every record is flushed: what coordinators promise is checked exactly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from ottla_broker.coordination import znodes
from ottla_broker.protocol.api import ApiKey
from simulation.checker import Partition, Violation
from simulation.cluster import SimulatedBroker
from simulation.coverage import Coverage
from simulation.faults import FAULTS, Fault, Scene, draw_fault
from simulation.leaderships import Leaderships
from simulation.workload import Workload

POWER_LOSS = "power loss of a coordinator"
_SHORTEST_S = 12.0
_MOST_AT_ONCE = 3
_HOLD_AGAIN_S = 0.005
_APPENDS_WITHIN_S = 1.5
"""So long it is waited for a record that the replica lacks: it stays in sync meanwhile."""
_ELECTION_S = 6.0
"""The session of a broker that crashed has timed out by then."""
_LEFT_OUT = ("disk EIO", "disk full", "disk hangs", "clock jump")
"""A lost directory takes what was acknowledged with it, and a clock that jumps by hours times transactions out."""
_POWER_LOSSES = ("power loss", "power loss of several")


def leader_of(scene: Scene, leaderships: Leaderships, topic: str) -> SimulatedBroker:
    """The leader of some partition of the topic, or any broker while there is none."""
    leaders = [state.leader for (name, _), state in sorted(leaderships.states.items()) if name == topic]
    live = [leader for leader in leaders if 0 <= leader < len(scene.fleet.brokers)]
    return scene.fleet.brokers[scene.draw.choice(live)] if live else scene.broker()


def coordinator_faults(leaderships: Leaderships, topic: str, *, flushed: bool) -> dict[str, tuple[int, Fault]]:
    """The faults of `FAULTS` that lose nothing, and those of the coordinators; losses of power where all is flushed."""

    async def crash_of_a_coordinator(scene: Scene) -> None:
        broker = leader_of(scene, leaderships, topic)
        await scene.restarts.until_gone(broker, scene.draw, broker.crash)

    async def power_loss_of_a_coordinator(scene: Scene) -> None:
        broker = leader_of(scene, leaderships, topic)
        await scene.restarts.until_gone(
            broker, scene.draw, lambda: scene.oracle.power_is_lost(broker, broker.cut_power)
        )

    async def session_expiry_of_a_coordinator(scene: Scene) -> None:
        """It goes on believing that it leads until it hears otherwise."""
        broker = leader_of(scene, leaderships, topic)
        if broker.coordination is not None and broker.is_up:
            scene.fleet.store.expire(broker.coordination.session_id)

    async def isolation_of_a_coordinator(scene: Scene) -> None:
        """From the other brokers, with or without the coordination store; clients still reach it."""
        broker = leader_of(scene, leaderships, topic)
        others = [other for other in scene.fleet.brokers if other is not broker]
        for other in others:
            scene.fleet.fabric.partition(broker.host, other.host)
        if broker.coordination is not None and broker.is_up and scene.draw.random() < 0.5:
            scene.fleet.store.disconnect(broker.coordination, scene.draw.choice((1.0, 4.0)))
        await scene.last(0.5, 2.0, 6.0)
        for other in others:
            scene.fleet.fabric.mend(broker.host, other.host)
            scene.fleet.fabric.mend(other.host, broker.host)

    async def two_coordinators_in_a_row(scene: Scene) -> None:
        """One replica does not fetch while its coordinator ends, and the next one: it leads without what they had."""
        partitions = [key for key, state in sorted(leaderships.states.items()) if key[0] == topic and state.leader >= 0]
        if not partitions:
            return  # nobody has asked for a coordinator yet
        partition = scene.draw.choice(partitions)
        state = leaderships.states[partition]
        if len(state.in_sync) < 3:
            return
        first = scene.fleet.brokers[state.leader]
        behind = scene.fleet.brokers[_last_in_order(leaderships, partition, first.broker_id)]
        let_go: list[Callable[[], None]] = []
        scene.fleet.fabric.partition(first.host, behind.host)
        at_latest_s = scene.world.loop.time() + _APPENDS_WITHIN_S
        while _log_end(first, partition) <= _log_end(behind, partition):
            if scene.world.loop.time() > at_latest_s:
                break
            await asyncio.sleep(_HOLD_AGAIN_S)
        await scene.last(0.02, 0.1)
        first.crash()
        for source, target in ((first.host, behind.host), (behind.host, first.host)):
            scene.fleet.fabric.mend(source, target, is_lost=True)
        holding = scene.world.spawn(_keep_behind(scene, leaderships, partition, behind, let_go), name="kept behind")
        scene.restarts.stays_down(first, _ELECTION_S + 2.0)
        elected_by_s = scene.world.loop.time() + _ELECTION_S
        while (second := leaderships.states[partition].leader) in (first.broker_id, -1):
            if scene.world.loop.time() > elected_by_s:
                break
            await asyncio.sleep(_HOLD_AGAIN_S)
        await scene.last(0.2, 0.5, 1.0)
        if second not in (behind.broker_id, first.broker_id, -1):
            scene.fleet.brokers[second].crash()
            await scene.restarts.has_ended(scene.fleet.brokers[second], scene.draw)
        holding.cancel()
        for one in let_go:
            one()

    left_out = _LEFT_OUT if flushed else (*_LEFT_OUT, *_POWER_LOSSES)
    faults = {name: fault for name, fault in FAULTS.items() if name not in left_out}
    faults["crash of a coordinator"] = (8, crash_of_a_coordinator)
    faults["session expiry of a coordinator"] = (4, session_expiry_of_a_coordinator)
    faults["isolation of a coordinator"] = (4, isolation_of_a_coordinator)
    faults["two coordinators in a row"] = (8, two_coordinators_in_a_row)
    if flushed:
        faults[POWER_LOSS] = (8, power_loss_of_a_coordinator)
    return faults


def _last_in_order(leaderships: Leaderships, partition: Partition, leader: int) -> int:
    """The in-sync replica that an election takes last."""
    topic, number = partition
    data = leaderships.store.data(znodes.topic_path(topic))
    replicas = () if data is None else znodes.TopicAssignment.decode(topic, data).partitions.get(number, ())
    in_sync = leaderships.states[partition].in_sync
    return [broker for broker in (*in_sync, *replicas) if broker != leader and broker in in_sync][-1]


def _log_end(broker: SimulatedBroker, partition: Partition) -> int:
    """The log end of its replica; -1 while it has none."""
    ends = (
        replica.log.state.log_end_offset
        for replica in broker.partitions()
        if (replica.topic, replica.index) == partition
    )
    return next(ends, -1)


async def _keep_behind(
    scene: Scene,
    leaderships: Leaderships,
    partition: Partition,
    follower: SimulatedBroker,
    let_go: list[Callable[[], None]],
) -> None:
    """Holds the fetches of a follower back from whoever leads the partition, over connections that open later too."""
    while True:
        leader = leaderships.states[partition].leader
        if leader not in (-1, follower.broker_id):
            target = scene.fleet.brokers[leader]
            let_go.append(scene.fleet.fabric.hold(follower.host, target.host, ApiKey.FETCH))
        await asyncio.sleep(_HOLD_AGAIN_S)


async def strike(scene: Scene, coverage: Coverage, workload: Workload, faults: Mapping[str, tuple[int, Fault]]) -> None:
    """Faults, several at once, for a while."""
    world, draw = scene.world, scene.draw
    striking: dict[asyncio.Task[None], None] = {}
    number = 0
    ends_s = world.loop.time() + _SHORTEST_S * draw.choice((1, 2, 3))
    while world.loop.time() < ends_s:
        await asyncio.sleep(draw.choice((0.1, 1.0, 3.0)) * draw.random())
        workload.check()
        if world.problems:
            raise Violation("the oracle has found something")
        for task in [task for task in striking if task.done()]:
            del striking[task]
            task.result()
        if len(striking) < _MOST_AT_ONCE:
            number += 1
            name, fault = draw_fault(draw, dict(faults))
            coverage.struck(name)
            own = Scene(
                world, scene.fleet, scene.restarts, scene.oracle, scene.clients, world.stream(f"fault/{number}")
            )
            striking[world.spawn(_one(fault, own), name=f"fault-{name}")] = None
    world.faults = number
    for task in striking:
        await task


async def _one(fault: Fault, scene: Scene) -> None:
    await fault(scene)

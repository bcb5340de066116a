"""The controller's session ends in the middle of what it was asked to do: its successor finishes that."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from ottla_broker.coordination import znodes
from simulation.checker import Checker
from simulation.client import Client, Unavailable
from simulation.cluster import SimulatedBroker, SimulatedFleet
from simulation.reassignments import Reassigner
from simulation.scenarios.replicated import all_in_sync, replicas_are_equal
from simulation.scenarios.single import broker_settings, verify
from simulation.workload import Guarantees, Workload, create_topic, delete_topic
from simulation.world import World

TOPIC = "t"
WITHIN_S = 30.0


@dataclass
class Scene:
    world: World
    fleet: SimulatedFleet
    workload: Workload
    client: Client

    async def topic(self, *assignment: list[int]) -> None:
        """With a producer and a consumer of each partition."""
        count = len(assignment)
        assert await create_topic(
            self.workload, self.client, TOPIC, count, len(assignment[0]), {}, assignment=assignment
        )
        for number in range(count):
            self.workload.add_producer(self.client, (TOPIC, number), acks=-1, is_idempotent=True)
            self.workload.add_consumer(self.client, (TOPIC, number))
        await all_in_sync(self.fleet, self.client, self.workload.checker)

    def controller(self) -> SimulatedBroker:
        found = self.fleet.controller()
        assert found is not None
        return found

    def expire(self, broker: SimulatedBroker) -> None:
        assert broker.coordination is not None
        self.fleet.store.expire(broker.coordination.session_id)

    async def until(self, is_true: Callable[[], bool]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not is_true():  # noqa: ASYNC110 - the simulated store and disks tell nobody
                await asyncio.sleep(0.005)

    def holders(self) -> set[int]:
        """The brokers whose disks have a partition of the topic."""
        return {broker.broker_id for broker in self.fleet.brokers for topic, _ in broker.log_bytes() if topic == TOPIC}

    async def is_well(self) -> None:
        await all_in_sync(self.fleet, self.client, self.workload.checker)
        await verify(self.fleet, self.workload, self.client)
        await replicas_are_equal(self.fleet, self.client, self.workload.checker)


def play(count: int, use: Callable[[Scene], Awaitable[None]], seed: int) -> None:
    world = World(seed)

    async def main() -> None:
        settings = broker_settings(random.Random(seed), flush_every_message=False) | {
            "zookeeper.session.timeout.ms": "6000",
            "replica.lag.time.max.ms": "3000",
        }
        fleet = SimulatedFleet(world, count, settings)
        workload = Workload(world, Checker(), Guarantees(durable_acks=(-1,), life_of=fleet.life_of))
        await fleet.start()
        await use(Scene(world, fleet, workload, Client(world, fleet.fabric, "client", "10.1.0.1", fleet.bootstrap)))

    world.run(main())
    assert world.problems == []


# -- the deletion of a topic ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_answer_lost", [False, True], ids=["order", "answer"])
@pytest.mark.parametrize("after_s", [0.0, 0.02, 1.0])
def test_the_next_controller_finishes_the_deletion_of_a_topic(is_answer_lost: bool, after_s: float) -> None:
    """One broker does not hear that it is to delete its replicas, or is not heard."""

    async def use(scene: Scene) -> None:
        fleet, former = scene.fleet, scene.controller()
        deaf = next(broker for broker in fleet.brokers if broker is not former)
        await scene.topic([0, 1, 2], [1, 2, 0], [2, 0, 1])
        await asyncio.sleep(0.5)
        way = (deaf.host, former.host) if is_answer_lost else (former.host, deaf.host)
        fleet.fabric.cut(*way)
        asking = scene.world.spawn(delete_topic(scene.workload, scene.client, TOPIC), name="deletion")
        await scene.until(lambda: fleet.store.data(znodes.delete_topic_path(TOPIC)) is not None)
        await asyncio.sleep(after_s)
        assert fleet.store.data(znodes.topic_path(TOPIC)) is not None
        scene.expire(former)
        fleet.fabric.mend(*way)
        await _is_gone(scene)
        await asking

    play(3, use, seed=1)


@pytest.mark.parametrize("seed", range(1, 5))
def test_the_next_controller_removes_the_rest_of_a_topic(seed: int) -> None:
    """All replicas are deleted, and the session ends between two transactions of the removal or in front of them."""

    async def use(scene: Scene) -> None:
        fleet = scene.fleet
        await scene.topic([0, 1, 2], [1, 2, 0])
        await scene.workload.finish(WITHIN_S)
        fleet.store.slow_s = 0.2
        asking = scene.world.spawn(delete_topic(scene.workload, scene.client, TOPIC), name="deletion")
        if seed % 2:
            await scene.until(lambda: not scene.holders())
        else:
            await scene.until(lambda: not fleet.store.names(znodes.topic_partitions_path(TOPIC)))
        assert fleet.store.data(znodes.delete_topic_path(TOPIC)) is not None
        scene.expire(scene.controller())
        fleet.store.slow_s = 0.0
        await _is_gone(scene)
        await asking

    play(3, use, seed)


async def _is_gone(scene: Scene) -> None:
    """From the coordination store, from every disk and from what clients are told; the name can be given again."""
    store = scene.fleet.store
    paths = (znodes.topic_path(TOPIC), znodes.delete_topic_path(TOPIC), znodes.config_path("topics", TOPIC))
    await scene.until(lambda: all(store.data(path) is None for path in paths))
    await scene.until(lambda: not scene.holders())

    told = {TOPIC}
    async with asyncio.timeout(WITHIN_S):
        while TOPIC in told:
            await asyncio.sleep(0.05)
            with contextlib.suppress(Unavailable):
                told = {topic for topic, _ in (await scene.client.refresh()).partitions}
    again = Workload(scene.world, Checker(), scene.workload.guarantees)
    assert await create_topic(again, scene.client, TOPIC, 1, 3, {})
    await all_in_sync(scene.fleet, scene.client, again.checker)
    assert all(log == b"" for broker in scene.fleet.brokers for log in broker.log_bytes().values())


# -- the end of a reassignment ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("is_down", [False, True], ids=["deaf", "down"])
def test_the_next_controller_leaves_no_stray_replica_of_a_reassignment(is_down: bool, seed: int) -> None:
    """The partition has moved, and a broker that it has left has not heard of it when the session ends."""

    async def use(scene: Scene) -> None:
        fleet, former = scene.fleet, scene.controller()
        leaving, *others = [broker for broker in fleet.brokers if broker is not former]
        staying, coming = others[0].broker_id, others[1].broker_id
        await scene.topic([staying, leaving.broker_id])
        await asyncio.sleep(0.5)
        await scene.client.refresh()
        reassigner = Reassigner(scene.world, scene.client, range(4))
        if is_down:
            leaving.crash()
        else:
            fleet.fabric.cut(former.host, leaving.host)
        await reassigner.begin((TOPIC, 0), [staying, coming])
        await scene.until(lambda: _replicas(fleet) == [staying, coming])
        assert leaving.broker_id in scene.holders()
        await asyncio.sleep(0.2)
        scene.expire(former)
        if is_down:
            await scene.until(lambda: fleet.controller() not in (None, former))
            leaving.start()
            await leaving.wait_started()
        else:
            fleet.fabric.mend(former.host, leaving.host)
        await scene.until(lambda: scene.holders() == {coming, staying})
        await reassigner.finish()
        assert not any(replica.topic == TOPIC for replica in leaving.partitions())
        await scene.is_well()

    play(4, use, seed)


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.3])
def test_the_next_controller_ends_a_reassignment(after_s: float) -> None:
    """Its session ends while the new replicas copy, or while the last steps are written."""

    async def use(scene: Scene) -> None:
        fleet = scene.fleet
        await scene.topic([0, 1])
        await asyncio.sleep(1.0)
        await scene.client.refresh()
        reassigner = Reassigner(scene.world, scene.client, range(4))
        fleet.store.slow_s = 0.05
        await reassigner.begin((TOPIC, 0), [2, 3])
        await asyncio.sleep(after_s)
        scene.expire(scene.controller())
        fleet.store.slow_s = 0.0
        await scene.until(lambda: _replicas(fleet) == [2, 3])
        await scene.until(lambda: scene.holders() == {2, 3})
        await reassigner.finish()
        await scene.is_well()

    play(4, use, seed=1)


def _replicas(fleet: SimulatedFleet) -> list[int] | None:
    """Of the partition, once nothing is being reassigned."""
    data = fleet.store.data(znodes.topic_path(TOPIC))
    assert data is not None
    found = znodes.TopicAssignment.decode(TOPIC, data)
    if found.adding_replicas.get(0) or found.removing_replicas.get(0):
        return None
    return list(found.partitions[0])

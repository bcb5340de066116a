"""Log directories that fail or fill up under a fleet: leaders move at once, and come back without a person."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla_broker.coordination.znodes import PartitionStateZnode
from ottla_broker.records.ids import TopicPartition
from ottla_broker.server.log_dir_recovery import recreation as recreating
from ottla_broker.server.store.partition_state import read_command
from simulation.checker import Checker
from simulation.client import Client, KnownPartition, Unavailable
from simulation.cluster import SimulatedBroker, SimulatedFleet
from simulation.filesystem import DiskImage
from simulation.reassignments import Reassigner
from simulation.scenarios.single import SETTLE_S, broker_settings, verify
from simulation.workload import Guarantees, Workload, create_topic
from simulation.world import World

TOPIC = "t"
PARTITIONS = 4


class Scene:
    """Brokers of two disks each, one topic on all of them, and producers with acks=all."""

    def __init__(self, world: World, fleet: SimulatedFleet) -> None:
        self.world = world
        self.fleet = fleet
        self.client = Client(world, fleet.fabric, "client", "10.1.0.1", fleet.bootstrap)
        self.workload = Workload(world, Checker(), Guarantees(durable_acks=(-1,), life_of=fleet.life_of))

    async def start(self) -> None:
        await self.fleet.start()
        assert await create_topic(self.workload, self.client, TOPIC, PARTITIONS, len(self.fleet.brokers), {})
        for number in range(PARTITIONS):
            self.workload.add_producer(self.client, (TOPIC, number), acks=-1, is_idempotent=True)
            self.workload.add_consumer(self.client, (TOPIC, number))
        await asyncio.sleep(1.0)

    def disk_of(self, broker: SimulatedBroker, number: int) -> tuple[str, DiskImage, list[int]]:
        """The directory where the broker keeps this partition, and all that are there."""
        for path in broker.paths:
            names = broker.machine.disks[path].root.entries
            if f"{TOPIC}-{number}" in names:
                return path, broker.machine.disks[path], [n for n in range(PARTITIONS) if f"{TOPIC}-{n}" in names]
        raise AssertionError(f"broker {broker.broker_id} has no {TOPIC}-{number}")

    async def until(self, is_true: Callable[[list[KnownPartition]], bool]) -> None:
        """Waits until metadata of the partitions makes it true."""
        async with asyncio.timeout(SETTLE_S):
            while True:
                try:
                    await self.client.refresh()
                except Unavailable:
                    pass
                if is_true([self.client.state.partitions[(TOPIC, number)] for number in range(PARTITIONS)]):
                    return
                await asyncio.sleep(0.05)


def play(count: int, use: Callable[[Scene], Awaitable[None]], seed: int = 1, **settings_of_its_own: str) -> None:
    world = World(seed)

    async def main() -> None:
        settings = broker_settings(random.Random(seed), flush_every_message=False) | {
            "ottla.log.dir.reserve.bytes": "2000",
            "replica.lag.time.max.ms": "3600000",
            "auto.leader.rebalance.enable": "false",
            **{name.replace("_", "."): value for name, value in settings_of_its_own.items()},
        }
        scene = Scene(world, SimulatedFleet(world, count, settings, disks=2))
        world.has_failed_disk = True
        await scene.start()
        await use(scene)
        await verify(scene.fleet, scene.workload, scene.client)

    world.run(main())
    assert world.problems == []


def _manager_of(broker: SimulatedBroker) -> Any:
    assert broker.broker is not None
    return broker.broker.replica_manager


def _log_of(manager: Any, number: int) -> Any:
    return manager.log_manager.get(TopicPartition(TOPIC, number))


async def eventually(is_true: Callable[[], bool], every_s: float = 0.1) -> None:
    async with asyncio.timeout(SETTLE_S):
        while True:
            if is_true():
                return
            await asyncio.sleep(every_s)


@pytest.mark.parametrize("fault", ["failed", "full"])
def test_leaders_move_off_a_directory_at_once_and_its_replicas_are_in_sync_again_afterwards(fault: str) -> None:
    async def use(scene: Scene) -> None:
        broker = next(b for b in scene.fleet.brokers if b is not scene.fleet.controller())
        led = next(n for n in range(PARTITIONS) if scene.client.state.partitions[(TOPIC, n)].leader == broker.broker_id)
        _, image, there = scene.disk_of(broker, led)
        if fault == "failed":
            image.failure = errno.EIO
        else:
            image.capacity_bytes = image.used_bytes()
        # With replica.lag.time.max.ms of an hour only the event takes the replica out of the ISR.
        await scene.until(
            lambda states: all(
                states[n].leader not in (-1, broker.broker_id) and broker.broker_id not in states[n].in_sync
                for n in there
            )
        )
        assert broker.is_up
        acknowledged = scene.workload.checker.acknowledged_count
        await asyncio.sleep(5.0)
        assert scene.workload.checker.acknowledged_count > acknowledged
        image.failure, image.capacity_bytes = None, 1 << 40
        await scene.until(lambda states: all(len(states[n].in_sync) == 3 for n in there))

    play(3, use)


def test_a_directory_that_is_back_before_a_long_command_is_done_has_its_replicas_back() -> None:
    """A broker that is cut from the coordination store reads the configuration of a new topic for as long."""

    async def use(scene: Scene) -> None:
        broker = next(b for b in scene.fleet.brokers if b is not scene.fleet.controller())
        path, image, there = scene.disk_of(broker, 0)
        assert broker.coordination is not None
        scene.fleet.store.disconnect(broker.coordination, 9.0)
        creating = scene.world.spawn(
            create_topic(scene.workload, scene.client, "new", 3, 3, {}), name="creation of a topic"
        )
        await asyncio.sleep(0.5)
        image.failure = errno.EIO
        await broker.until_directory(path, ("offline",), SETTLE_S)
        await asyncio.sleep(0.5)
        image.failure = None
        await broker.until_directory(path, ("online",), SETTLE_S)
        assert _manager_of(broker)._commands.locked(), "the command is still under way"
        assert await creating
        await eventually(lambda: not any(replica.log.state.is_failed for replica in broker.partitions()))
        await scene.until(lambda states: all(states[n].leader >= 0 and len(states[n].in_sync) == 3 for n in there))

    play(3, use, zookeeper_session_timeout_ms="18000")


def test_a_replica_that_is_made_again_before_a_long_command_is_done_is_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The controller took it for offline before, as where its directory had been full: nothing else can be so early."""
    monkeypatch.setattr(recreating.RecreationTask, "_is_known_offline", lambda recreating, partition: True)

    async def use(scene: Scene) -> None:
        broker = next(b for b in scene.fleet.brokers if b is not scene.fleet.controller())
        _, image, there = scene.disk_of(broker, 0)
        manager = _manager_of(broker)
        await manager._commands.acquire()
        image.failure = errno.EIO
        # What is replaced is still the manager's.
        await eventually(lambda: any(_log_of(manager, n) not in (None, manager.partition(TOPIC, n).log) for n in there))
        manager._commands.release()
        await eventually(lambda: not any(replica.log.state.is_failed for replica in broker.partitions()))
        await scene.until(lambda states: all(states[n].leader >= 0 and len(states[n].in_sync) == 3 for n in there))

    play(3, use, replica_lag_time_max_ms="1000")


@pytest.mark.parametrize("is_read_before", [False, True], ids=["while it is made", "behind the reading of its state"])
def test_a_replica_that_is_taken_away_while_it_is_made_again_goes(
    is_read_before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a directory that is offline from the start nobody knows what it holds, so that there is nothing to delete."""

    async def use(scene: Scene) -> None:
        broker = next(one for one in scene.fleet.brokers if one is not scene.fleet.controller())
        path, image, _ = scene.disk_of(broker, 0)
        other = broker.machine.disks[next(one for one in broker.paths if one != path)]
        others = [one.broker_id for one in scene.fleet.brokers if one is not broker]
        key = TopicPartition(TOPIC, 0)
        taken: list[asyncio.Task[None]] = []

        async def take_away() -> None:
            reassigner = Reassigner(scene.world, scene.client, range(3))
            assert (await reassigner.begin((TOPIC, 0), others)).endswith("NONE")
            await reassigner.finish()

        async def read_late(*arguments: Any) -> Any:
            found = await read_command(*arguments)
            if arguments[1] == key and found is not None and broker.broker_id not in found.isr and not taken:
                taken.append(scene.world.spawn(take_away(), name="reassignment"))
                await taken[0]
            return found

        if is_read_before:
            monkeypatch.setattr(recreating, "read_command", read_late)
        broker.crash()
        image.failure = errno.EIO
        broker.start()
        await broker.wait_started()
        manager = _manager_of(broker)
        making = manager.log_manager.creation.in_progress
        if is_read_before:
            await eventually(lambda: bool(taken) and taken[0].done())
        else:
            await eventually(lambda: key in making, every_s=0.00001)
            other.is_hung = True
            await take_away()
            other.is_hung = False
        await eventually(lambda: f"{key}" not in other.root.entries and key not in making)
        await asyncio.sleep(5.0)
        assert f"{key}" not in other.root.entries
        assert manager.partition(*key) is None and _log_of(manager, 0) is None
        image.failure = None
        await broker.until_directory(path, ("online",), SETTLE_S)

    play(3, use, replica_lag_time_max_ms="1000")


def test_a_replica_that_was_made_again_leads_as_soon_as_it_is_in_sync() -> None:
    """Of an idle partition nothing answers its first fetch for half a second, by which the leader takes it in."""

    async def use(scene: Scene) -> None:
        assert await create_topic(scene.workload, scene.client, "idle", 6, 2, {})
        while ("idle", 5) not in (await scene.client.refresh()).partitions:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.05)
        controller = scene.fleet.controller()
        assert controller is not None
        key, state = next(
            (key, state)
            for key, state in sorted(scene.client.state.partitions.items())
            if key[0] == "idle" and controller.broker_id not in state.replicas
        )
        leader, follower = (scene.fleet.brokers[number] for number in state.replicas)

        def in_sync() -> tuple[int, ...]:
            data = scene.fleet.store.data(PartitionStateZnode.path(*key))
            assert data is not None
            return PartitionStateZnode.decode(*key, data).isr

        await eventually(lambda: follower.find_partition(key)[0] != "")
        follower.machine.disks[follower.find_partition(key)[0]].failure = errno.EIO
        await eventually(lambda: in_sync() == (leader.broker_id,), every_s=0.001)
        await eventually(lambda: len(in_sync()) == 2, every_s=0.001)
        leader.crash()
        await eventually(lambda: any(one.topic_partition == key and one.is_leader for one in follower.partitions()))
        leader.start()
        await leader.wait_started()

    play(3, use)


def test_a_replica_without_others_has_its_leader_back_with_its_directory() -> None:
    async def use(scene: Scene) -> None:
        broker = scene.fleet.brokers[0]
        path, image, there = scene.disk_of(broker, 0)
        image.failure = errno.EIO
        await scene.until(lambda states: all(states[n].leader == -1 for n in there))
        image.failure = None
        await scene.until(lambda states: all(states[n].leader == 0 for n in there))
        await broker.until_directory(path, ("online",), SETTLE_S)

    play(1, use)


def test_a_state_that_cannot_be_read_keeps_no_other_replica_from_being_made_again_or_coming_back() -> None:
    async def use(scene: Scene) -> None:
        controller = scene.fleet.controller()
        broker = next(one for one in scene.fleet.brokers if one is not controller)
        assert await create_topic(scene.workload, scene.client, "odd", 2, 3, {})
        await asyncio.sleep(1.0)
        path, image = next(
            (path, broker.machine.disks[path])
            for path in broker.paths
            if {"odd-0", "odd-1"} & broker.machine.disks[path].root.entries.keys()
        )
        there = [name for name in image.root.entries if name.startswith(f"{TOPIC}-")]
        assert there
        odd = next(name for name in image.root.entries if name.startswith("odd-"))
        state = PartitionStateZnode.path("odd", int(odd[-1]))
        store = broker.coordination
        assert store is not None

        def holds_odd() -> bool:
            return any(f"{one.topic}-{one.index}" == odd for one in broker.partitions())

        before, _ = await store.get(state)
        await store.set(state, b"nonsense")
        image.failure = errno.EIO
        other = broker.machine.disks[next(one for one in broker.paths if one != path)]
        await eventually(lambda: all(name in other.root.entries for name in there))
        image.failure = None
        await broker.until_directory(path, ("online",), SETTLE_S)
        await asyncio.sleep(2.0)
        assert not holds_odd()
        await store.set(state, before)
        await eventually(holds_odd)

    play(3, use)


def test_a_full_directory_without_a_better_replica_keeps_its_leaders() -> None:
    async def use(scene: Scene) -> None:
        """Both replicas of everything are on full directories: each points at the other, and one of them must lead."""
        images = [image for broker in scene.fleet.brokers for image in broker.machine.disks.values()]
        for image in images:
            image.capacity_bytes = image.used_bytes()
        await asyncio.sleep(10.0)
        await scene.until(lambda states: all(state.leader != -1 for state in states))
        for image in images:
            image.capacity_bytes = 1 << 40
        await scene.until(lambda states: all(len(state.in_sync) == 2 for state in states))

    play(2, use)


@pytest.mark.parametrize("changes_controller", [False, True])
def test_a_copy_that_moved_away_while_its_directory_was_offline_goes_when_that_is_back(
    changes_controller: bool,
) -> None:
    async def use(scene: Scene) -> None:
        fleet = scene.fleet
        controller = fleet.controller()
        assert controller is not None
        broker = next(one for one in fleet.brokers if one is not controller)
        others = [one.broker_id for one in fleet.brokers if one is not broker]
        path, image, _ = scene.disk_of(broker, 0)
        image.failure = errno.EIO
        await broker.until_directory(path, ("offline",), SETTLE_S)
        reassigner = Reassigner(scene.world, scene.client, range(3))
        assert (await reassigner.begin((TOPIC, 0), others)).endswith("NONE")
        await reassigner.finish()
        if changes_controller:
            # Who is controller then was not told of the deletion that failed.
            controller.crash()
            controller.start()
            await controller.wait_started()
        assert f"{TOPIC}-0" in image.root.entries
        image.failure = None
        await scene.until(lambda _: f"{TOPIC}-0" not in image.root.entries)
        await scene.until(lambda states: all(sorted(state.in_sync) == sorted(state.replicas) for state in states))

    play(3, use)

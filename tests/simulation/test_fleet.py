"""The product's broker on simulated ports: what is easier to show than to hope that a seed draws it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from ottla_broker.protocol.errors import KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.server.store.registration import SESSION_FILE
from simulation.cluster import SimulatedFleet
from simulation.filesystem import DirectoryNode
from simulation.scenarios.single import broker_settings
from simulation.world import World


def with_fleet(
    count: int, use: Callable[[World, SimulatedFleet], Awaitable[None]], seed: int = 1, disks: int = 1
) -> None:
    world = World(seed)

    async def main() -> None:
        fleet = SimulatedFleet(
            world, count, broker_settings(random.Random(seed), flush_every_message=False), disks=disks
        )
        await fleet.start()
        await use(world, fleet)

    world.run(main())
    assert world.problems == []


def test_a_broker_that_lost_its_kept_session_waits_for_its_own_registration_to_end() -> None:
    async def use(world: World, fleet: SimulatedFleet) -> None:
        broker = fleet.brokers[0]
        broker.crash()
        broker.machine.disks[broker.paths[0]].delete(SESSION_FILE)
        broker.start()
        await broker.wait_started()

    with_fleet(1, use)


def test_a_log_directory_that_does_not_take_the_session_is_offline_at_once() -> None:
    """What a failed fsync says is final: the next record would have found out."""

    async def use(world: World, fleet: SimulatedFleet) -> None:
        (broker,) = fleet.brokers
        path = broker.paths[0]
        image = broker.machine.disks[path]
        assert broker.coordination is not None
        image.fails_in = 0
        fleet.store.expire(broker.coordination.session_id)
        while image.failure is None:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.001)
        image.failure = None
        await asyncio.sleep(0.05)  # the lane reports it; nothing else is written before
        assert broker.directory_state(path) == "offline"
        await broker.until_directory(path, ("online",), within_s=30.0)
        assert fleet.store.names("/brokers/ids") == ["0"]

    with_fleet(1, use, seed=3, disks=2)  # checkpoints are not due for seconds


def test_a_broker_restarted_after_a_crash_registers_at_once() -> None:
    async def use(world: World, fleet: SimulatedFleet) -> None:
        broker = fleet.brokers[0]
        broker.crash()
        crashed_at = world.loop.time()
        broker.start()
        await broker.wait_started()
        assert world.loop.time() - crashed_at < 1.0

    with_fleet(1, use)


@pytest.mark.parametrize("is_aimed", [False, True])
@pytest.mark.parametrize("seed", range(1, 9))
def test_a_log_that_was_begun_without_room_is_not_found_again_after_a_loss_of_power(seed: int, is_aimed: bool) -> None:
    """It lies on another directory now, and a start that finds it on two is refused (once seeds 5155 and 6177)."""

    async def use(world: World, fleet: SimulatedFleet) -> None:
        (broker,) = fleet.brokers
        assert broker.broker is not None
        image = broker.machine.disks[broker.paths[0]]
        image.capacity_bytes = image.used_bytes()
        manager, partition, topic_id = broker.broker.log_manager, TopicPartition("t", 0), bytes(range(16))
        if is_aimed:
            with pytest.raises(KafkaError, match="No space left"):
                await manager.creation.create(partition, topic_id, broker.paths[0], is_catching_up=True)
        log = await manager.get_or_create(partition, topic_id, True)
        assert log.state.disk.path == broker.paths[1]
        broker.cut_power()
        image.capacity_bytes = 1 << 40
        broker.start()
        await broker.wait_started()

    with_fleet(1, use, seed=seed, disks=2)


def test_of_two_copies_of_a_replica_the_judge_takes_the_one_that_served_last() -> None:
    """One that was recreated on another directory has left an older copy behind (once seed 2155)."""

    async def use(world: World, fleet: SimulatedFleet) -> None:
        (broker,) = fleet.brokers
        for path in broker.paths:
            broker.machine.disks[path].root.entries["t-0"] = DirectoryNode()
        broker.crash()
        assert [broker.find_partition(("t", 0), home)[0] for home in broker.paths] == broker.paths

    with_fleet(1, use, disks=2)


def test_a_process_that_begins_knows_no_replicas_of_the_one_before() -> None:
    """The oracle took theirs for its own, and what the power had left of them for committed (once seed 9501)."""

    async def use(world: World, fleet: SimulatedFleet) -> None:
        (broker,) = fleet.brokers
        assert broker.broker is not None and broker.broker.replica_manager is not None
        await broker.broker.log_manager.get_or_create(TopicPartition("t", 0), bytes(range(16)), True)
        before = broker.broker
        broker.crash()
        broker.start()
        assert broker.broker is not before and list(broker.partitions()) == []
        await broker.wait_started()

    with_fleet(1, use)


def test_an_orderly_stop_leaves_nothing_to_recover_and_ends_the_session() -> None:
    async def use(world: World, fleet: SimulatedFleet) -> None:
        assert fleet.store.names("/brokers/ids") == ["0", "1", "2"]
        assert await fleet.brokers[1].stop_gracefully()
        await asyncio.sleep(0.1)
        assert fleet.store.names("/brokers/ids") == ["0", "2"]

    with_fleet(3, use)

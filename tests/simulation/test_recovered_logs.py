"""A crash of the process, then a loss of power: the order in which a page cache loses what it never wrote."""

from __future__ import annotations

import asyncio

import pytest

from ottla_broker.config import TopicValues
from ottla_broker.jobs import JOBS
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs.directory_callbacks import DirectoryCallbacks
from ottla_broker.storage.log_dirs.log_manager import LogManager
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from simulation.batches import build_batch
from simulation.clock import SimulatedClock
from simulation.disk import SimulatedDisk
from simulation.filesystem import DiskImage
from simulation.workers import SimulatedWorkers
from simulation.world import Machine, World

PARTITION = TopicPartition("t", 0)


async def open_log(machine: Machine) -> Log:
    """A new process on the machine, with its one log under flush.messages=1."""
    process = machine.start_process()

    async def main() -> Log:
        manager = LogManager(
            {path: SimulatedDisk(process, image, path) for path, image in machine.disks.items()},
            SimulatedClock(process),
            SimulatedWorkers(process, JOBS),
            LogManagerSettings(),
            lambda topic: LogConfig(TopicValues({"flush.messages": 1})),
            DirectoryCallbacks(lambda path, error: machine.world.problem(f"{path} failed: {error}")),
        )
        await manager.inspect()
        await manager.claim(0, "cluster")
        await manager.load()
        return await manager.get_or_create(PARTITION, bytes(16), True)

    log: Log = await process.spawn(main(), name="main")
    return log


@pytest.mark.parametrize("seed", range(25))
def test_what_is_visible_after_a_recovery_survives_a_loss_of_power_under_flush_messages_1(seed: int) -> None:
    world = World(seed)
    machine = world.machine("broker-0", "10.0.0.1")
    machine.disks["/d0"] = DiskImage("d0", world.stream("image"))

    async def main() -> None:
        log = await open_log(machine)
        for number in range(3):
            log.append_as_leader(memoryview(bytearray(build_batch([f"r/{number}"], timestamp_ms=1))), 0)
        await asyncio.sleep(0.0004 * world.stream("when").random())  # written perhaps, not synced
        machine.crash_process()
        seen = (await open_log(machine)).state.log_end_offset
        machine.lose_power()
        assert (await open_log(machine)).state.log_end_offset == seen

    world.run(main())
    assert world.problems == []

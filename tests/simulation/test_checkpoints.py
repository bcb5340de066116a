"""What the checkpoint files say after a crash: never more than the logs hold, nor less than was confirmed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

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
from simulation.filesystem import DirectoryNode, DiskImage, FileNode
from simulation.flushed import durable_end
from simulation.workers import SimulatedWorkers
from simulation.world import Machine, SimulatedProcess, World
from tests.broker.storage.logs import written

PARTITION = TopicPartition("t", 0)


def manager_of(process: SimulatedProcess) -> LogManager:
    machine = process.machine
    return LogManager(
        {path: SimulatedDisk(process, image, path) for path, image in machine.disks.items()},
        SimulatedClock(process),
        SimulatedWorkers(process, JOBS),
        LogManagerSettings(),
        lambda topic: LogConfig(TopicValues({"segment.bytes": 500, "index.interval.bytes": 1})),
        DirectoryCallbacks(lambda path, error: machine.world.problem(f"{path} failed: {error}")),
    )


async def started(manager: LogManager) -> LogManager:
    await manager.inspect()
    await manager.claim(0, "cluster")
    await manager.load()
    return manager


async def opened(machine: Machine) -> tuple[LogManager, Log]:
    """A new process on the machine, with the partition's log."""
    process = machine.start_process()

    async def main() -> tuple[LogManager, Log]:
        manager = await started(manager_of(process))
        return manager, await manager.get_or_create(PARTITION, bytes(16), True)

    found: tuple[LogManager, Log] = await process.spawn(main(), name="main")
    return found


async def append(log: Log, count: int, *, padding: int = 0) -> None:
    """Written, not flushed, but for the segments that are full."""
    for number in range(count):
        data = build_batch([f"r/{number}"], timestamp_ms=1, padding=padding)
        log.append_as_leader(memoryview(bytearray(data)), 0)
    await written(log)


def on_platter(machine: Machine) -> int:
    directory = machine.disks["/d0"].root.durable.get(str(PARTITION))
    return durable_end(directory) if isinstance(directory, DirectoryNode) else 0


def simulated(main: Callable[[Machine], object]) -> None:
    world = World(1)
    machine = world.machine("broker-0", "10.0.0.1")
    machine.disks["/d0"] = DiskImage("d0", world.stream("image"))
    world.run(main(machine))  # type: ignore[arg-type]
    assert world.problems == []


async def with_flushed_records(machine: Machine) -> tuple[LogManager, Log]:
    """Twelve records in several segments, flushed, committed, and vouched for by every checkpoint."""
    manager, log = await opened(machine)
    await append(log, 12)
    await log.flusher.flush()
    log.state.maybe_advance_high_watermark(12)
    disk = manager.disk("/d0")
    await manager.checkpoints.write_recovery_points(disk)
    await manager.checkpoint_high_watermarks()
    assert len(log.state.segments) > 1 and log.state.flushed_offset == 12 == on_platter(machine)
    return manager, log


@pytest.mark.parametrize("steps", [1, 2, 4, 8, 12, 16, 20, 24, 28, 32])
def test_an_interrupted_truncation_leaves_nothing_that_passes_for_durable(steps: int) -> None:
    """A follower drops its log, dies in the middle, starts, fetches again up to below its old end, dies again.

    The recovery point of before the truncation was never lowered: the truncation went forward. What the second process
    wrote below it, and never flushed, was durable to the third one: not scanned, and counted as flushed.
    """

    async def main(machine: Machine) -> None:
        _, log = await with_flushed_records(machine)
        assert machine.process is not None
        dead = asyncio.Event()

        def crash() -> None:
            machine.crash_process()
            dead.set()

        machine.process.crash_after(steps, crash)
        truncation = machine.process.spawn(
            asyncio.wait([log.truncation.truncate_fully_and_start_at(20)]), name="truncate"
        )
        truncation.add_done_callback(lambda done: dead.set(), context=machine.world.context)
        await dead.wait()
        machine.crash_process()

        _, log = await opened(machine)
        begin = log.state.log_end_offset
        await append(log, 3, padding=100)
        machine.crash_process()
        _, log = await opened(machine)
        assert log.state.log_end_offset > begin
        assert log.state.flushed_offset <= max(on_platter(machine), log.state.log_start_offset)
        assert log.state.recovery_point <= log.state.flushed_offset

    simulated(main)


@pytest.mark.parametrize("is_full", [False, True])
def test_what_follows_a_truncation_below_the_high_watermark_is_not_committed_by_the_next_start(is_full: bool) -> None:
    """A leader came back from a power loss without the end of its log. Its follower cut that off too, became leader,
    appended, and died: it started with a high watermark over records that nobody else had (fleet seed 38979)."""

    async def main(machine: Machine) -> None:
        _, log = await with_flushed_records(machine)
        await (log.truncation.truncate_fully_and_start_at(7) if is_full else log.truncation.truncate_to(7))
        await append(log, 9)
        machine.crash_process()
        _, log = await opened(machine)
        assert (log.state.high_watermark, log.state.log_end_offset) == (7, 16)

    simulated(main)


def test_the_checkpoints_of_a_log_whose_directory_is_gone_are_not_its_successors() -> None:
    """Somebody removed the directory while the broker was down; the partition is recreated on this broker."""

    async def main(machine: Machine) -> None:
        _, log = await with_flushed_records(machine)
        await log.retention.advance_log_start_offset(12)
        machine.crash_process()
        machine.disks["/d0"].delete(str(PARTITION))
        _, log = await opened(machine)
        await append(log, 5)
        machine.crash_process()
        _, log = await opened(machine)
        assert (log.state.log_start_offset, log.state.high_watermark, log.state.log_end_offset) == (0, 0, 5)
        assert log.state.flushed_offset <= on_platter(machine)

    simulated(main)


def test_a_checkpoint_that_was_overtaken_is_not_taken_for_the_file() -> None:
    """Two are under way when the first one's content is asked for again: the file will hold the second one's."""

    async def main(machine: Machine) -> None:
        manager, log = await opened(machine)
        disk = manager.disk("/d0")
        await append(log, 4)

        async def checkpoint_at(offset: int) -> None:
            log.state.recovery_point = offset
            await manager.checkpoints.write_recovery_points(disk)

        assert machine.process is not None
        first = machine.process.spawn(checkpoint_at(1), name="first")
        second = machine.process.spawn(checkpoint_at(4), name="second")
        await first
        assert not second.done()
        await machine.process.spawn(checkpoint_at(1), name="third")
        await second
        assert (await disk.read_file("recovery-point-offset-checkpoint")).endswith(b" 1\n")

    simulated(main)


def test_records_deleted_twice_at_once_stay_deleted_once_either_is_confirmed() -> None:
    """The second deletion finds the log start where it wants it; the file may not say so yet."""

    async def main(machine: Machine) -> None:
        _, log = await with_flushed_records(machine)
        first = log.retention.advance_log_start_offset(9)
        await asyncio.sleep(0)
        await log.retention.advance_log_start_offset(6)
        machine.disks["/d0"].is_hung = True  # nothing of what is still queued reaches the kernel
        machine.crash_process()
        machine.disks["/d0"].is_hung = False
        first.cancel()
        _, log = await opened(machine)
        assert log.state.log_start_offset >= 6

    simulated(main)


def test_indexes_that_a_recovery_wrote_are_durable_before_a_later_one_passes_them_by() -> None:
    """All is flushed when the process dies; recovery writes the last segment's indexes again; a roll follows."""

    async def main(machine: Machine) -> None:
        await with_flushed_records(machine)
        machine.crash_process()
        _, log = await opened(machine)
        last = log.state.segments[-1].base_offset
        await append(log, 1, padding=420)
        assert log.state.segments[-1].base_offset == 12
        await log.flusher.flush()
        directory = machine.disks["/d0"].find_directory(str(PARTITION))
        for suffix in ("index", "timeindex"):
            file = directory.entries[f"{last:020d}.{suffix}"]
            assert isinstance(file, FileNode) and file.data and not file.is_dirty

    simulated(main)

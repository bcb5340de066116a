"""What crashes and power losses leave on a simulated disk."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable

import pytest

from simulation.disk import SimulatedDisk
from simulation.filesystem import SECTOR, DiskImage
from simulation.world import Machine, World


def with_disk(seed: int, use: Callable[[World, Machine, DiskImage], Awaitable[None]]) -> None:
    world = World(seed)

    async def main() -> None:
        machine = world.machine("m", "10.0.0.1")
        image = DiskImage("d0", world.stream("image"))
        machine.disks["/d0"] = image
        await use(world, machine, image)

    world.run(main())


def start(machine: Machine) -> SimulatedDisk:
    return SimulatedDisk(machine.start_process(), machine.disks["/d0"], "/d0")


@pytest.mark.parametrize("seed", range(20))
def test_what_was_synced_survives_a_power_loss_and_the_rest_only_by_luck(seed: int) -> None:
    async def use(world: World, machine: Machine, image: DiskImage) -> None:
        disk = start(machine)
        file = await disk.open("a", create=True)
        await file.append([b"s" * 1000])
        await file.fsync()
        await disk.fsync_directory()
        boot = disk.boot_id()
        await file.append([b"u" * 3000])
        machine.lose_power()
        again = start(machine)
        data = await again.read_file("a")
        assert again.boot_id() != boot
        assert data[:1000] == b"s" * 1000
        assert len(data) <= 4000
        assert set(data[1000:]) <= {ord("u"), 0}

    with_disk(seed, use)


def test_a_file_that_is_closed_on_a_disk_that_fails_says_so() -> None:
    """As on a real disk: whoever waits for it would wait for ever."""

    async def use(world: World, machine: Machine, image: DiskImage) -> None:
        file = await start(machine).open("a", create=True)
        image.failure = errno.EIO
        with pytest.raises(OSError, match="Input/output error"):
            await file.close()

    with_disk(1, use)


def test_a_power_loss_tears_at_sectors_loses_all_and_keeps_all_by_seed() -> None:
    lengths: set[int] = set()

    async def use(world: World, machine: Machine, image: DiskImage) -> None:
        disk = start(machine)
        file = await disk.open("a", create=True)
        await disk.fsync_directory()
        await file.append([b"u" * 3000])
        machine.lose_power()
        lengths.add(len((await start(machine).read_file("a")).rstrip(b"\0")))

    for seed in range(60):
        with_disk(seed, use)
    assert {0, 3000} <= lengths
    assert len(lengths) > 4
    assert all(length % SECTOR == 0 or length == 3000 for length in lengths)


def test_an_unsynced_truncation_may_come_undone() -> None:
    found: set[bytes] = set()

    async def use(world: World, machine: Machine, image: DiskImage) -> None:
        disk = start(machine)
        file = await disk.open("a", create=True)
        await file.append([b"o" * 10])
        await file.fsync()
        await disk.fsync_directory()
        await file.truncate(4)
        await file.append([b"n" * 2])
        machine.lose_power()
        found.add(await start(machine).read_file("a"))

    for seed in range(60):
        with_disk(seed, use)
    assert {b"o" * 10, b"oooonn"} <= found


def test_names_that_were_not_synced_may_be_lost_or_come_back_but_a_rename_is_never_half_done() -> None:
    seen: set[tuple[str, ...]] = set()

    async def use(world: World, machine: Machine, image: DiskImage) -> None:
        disk = start(machine)
        await disk.write_file("old", b"1")
        await disk.rename("old", "new")
        await disk.make_directory("t-0")
        machine.lose_power()
        seen.add(tuple(name for name, _, _ in await start(machine).list()))

    for seed in range(60):
        with_disk(seed, use)
    assert seen == {("old",), ("new",), ("new", "t-0")}


@pytest.mark.parametrize("seed", range(20))
def test_a_replaced_small_file_is_old_or_new_after_any_crash(seed: int) -> None:
    async def use(world: World, machine: Machine, image: DiskImage) -> None:
        disk = start(machine)
        await disk.write_file("c", b"old")
        future = disk.write_file("c", b"new")
        assert machine.process is not None
        machine.process.crash_after(1 + seed % 5, machine.lose_power if seed % 2 else machine.crash_process)
        await asyncio.sleep(1.0)
        if machine.process is not None:
            assert future.done()
            machine.lose_power()
            expected = {b"new"}
        else:
            expected = {b"old", b"new"}
        assert await start(machine).read_file("c") in expected

    with_disk(seed, use)


@pytest.mark.parametrize("seed", range(10))
def test_a_process_crash_keeps_what_was_written_and_frees_the_lock(seed: int) -> None:
    async def use(world: World, machine: Machine, image: DiskImage) -> None:
        disk = start(machine)
        assert await disk.lock()
        file = await disk.open("a", create=True)
        await file.append([b"x" * 100])
        queued = [file.append([bytes([65 + n]) * 10]) for n in range(10)]
        machine.crash_process()
        again = start(machine)
        assert await again.lock()
        data = await again.read_file("a")
        expected = b"x" * 100 + b"".join(bytes([65 + n]) * 10 for n in range(10))
        assert expected.startswith(data) and len(data) >= 100
        assert not any(future.done() for future in queued)

    with_disk(seed, use)


def test_a_failing_disk_fails_every_call_and_later_appends() -> None:
    async def use(world: World, machine: Machine, image: DiskImage) -> None:
        disk = start(machine)
        file = await disk.open("a", create=True)
        other = await disk.open("b", create=True)
        image.failure = errno.EIO
        with pytest.raises(OSError):
            await file.append([b"x"])
        image.failure = None
        with pytest.raises(OSError):
            await other.append([b"x"])

    with_disk(1, use)


def test_a_full_disk_takes_nothing_of_what_does_not_fit_and_says_so() -> None:
    async def use(world: World, machine: Machine, image: DiskImage) -> None:
        image.capacity_bytes = 100
        disk = start(machine)
        file = await disk.open("a", create=True)
        other = await disk.open("b", create=True)
        with pytest.raises(OSError) as error:
            await file.append([b"x" * 150])
        assert error.value.errno == errno.ENOSPC
        assert await disk.free_bytes() == 100
        with pytest.raises(OSError):  # it would stand where the other was to stand
            await file.append([b"y"])
        assert await other.append([b"z"]) == 1
        await file.truncate(0)
        assert await file.append([b"y"]) == 1

    with_disk(1, use)


@pytest.mark.parametrize("count", range(4))
def test_a_disk_can_fail_at_every_call(count: int) -> None:
    async def use(world: World, machine: Machine, image: DiskImage) -> None:
        disk = start(machine)
        image.fails_in = count
        served = 0
        with pytest.raises(OSError):
            while True:
                await disk.exists("a")
                served += 1
        assert served == count

    with_disk(1, use)


def test_a_disk_that_is_taken_offline_ends_when_its_call_returns() -> None:
    async def use(world: World, machine: Machine, image: DiskImage) -> None:
        disk = start(machine)
        assert await disk.lock()
        image.is_hung = True
        write, probe = disk.write_file("a", b"x"), disk.probe()
        await asyncio.sleep(40.0)
        assert disk.silent_s() == pytest.approx(40.0)
        disk.take_offline(OSError(errno.ETIMEDOUT, "hangs"))
        with pytest.raises(OSError):
            await write
        assert not disk.has_ended and not probe.done()
        again = disk.reopened()
        image.is_hung = False
        await probe
        assert disk.has_ended and await again.lock()

    with_disk(1, use)


def test_a_hung_disk_answers_nothing_until_it_wakes() -> None:
    async def use(world: World, machine: Machine, image: DiskImage) -> None:
        disk = start(machine)
        image.is_hung = True
        future = disk.write_file("a", b"x")
        await asyncio.sleep(100.0)
        assert not future.done()
        image.is_hung = False
        disk.wake()
        await future

    with_disk(1, use)

"""The future log replaces the current one, also while a directory is full or fails."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.adapters import disk_calls
from ottla_broker.ports.disk import Buffer
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs.log_manager import LogManager
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from ottla_broker.storage.log_dirs.states import ONLINE, DirectoryState
from tests.broker.storage.log_dirs.brokers import T0, TOPIC_ID, BrokerStorage
from tests.broker.storage.log_dirs.moves import SMALL_SEGMENTS, append, directories, run_until_swapped
from tests.broker.storage.log_dirs.replicas import OTHER_TOPIC_ID


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerStorage]:
    """t-0 is on d0, with five records."""
    made = BrokerStorage(tmp_path, 3, SMALL_SEGMENTS, LogManagerSettings())
    manager = await made.start()
    manager.prefer(T0, made.paths[0])
    await append(await manager.get_or_create(T0, TOPIC_ID, True), 0, 5)
    yield made
    made.stop()
    await made.workers.wait_closed()


async def move_to(broker: BrokerStorage, number: int) -> Log:
    """Moves t-0 to that directory."""
    current = broker.manager.get(T0)
    assert current is not None
    replica = await broker.manager.future_replicas.create(current, broker.disks[broker.paths[number]])
    assert replica is not None
    return await run_until_swapped(broker, replica)


async def restart_without(broker: BrokerStorage, number: int) -> LogManager:
    """Restarts the broker while that directory cannot be opened."""
    broker.stop()
    rename(broker.paths[number], broker.paths[number] + "-away")
    put_a_file(broker.paths[number])
    broker.create_manager()
    manager = await broker.start()
    assert manager.offline_paths == [broker.paths[number]]
    return manager


def reopen(broker: BrokerStorage, number: int) -> None:
    """The directory can be opened at the next start."""
    Path(broker.paths[number]).unlink()
    rename(broker.paths[number] + "-away", broker.paths[number])


def put_a_file(path: str) -> None:
    Path(path).write_text("no directory")


def rename(old: str, new: str) -> None:
    Path(old).rename(new)


def fail_the_rename_of_the_replaced_log(broker: BrokerStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """d0 fails when the replaced log there is to be renamed."""
    swap = broker.manager.future_replicas._swap
    rename_replaced = swap._rename_replaced

    async def fails(old: Log) -> None:
        if old.state.disk.path == broker.paths[0]:
            raise OSError(errno.EIO, "Input/output error", old.state.disk.path)
        await rename_replaced(old)

    monkeypatch.setattr(swap, "_rename_replaced", fails)


async def check_only_the_newer_log_is_used(broker: BrokerStorage) -> None:
    """The newer log is on d1, with ten records; the older one, on d0, has five."""
    manager = await restart_without(broker, 1)
    assert manager.get(T0) is None, "the broker would lead with a copy that lacks five records"
    reopen(broker, 1)
    manager = await broker.restart()
    found = manager.get(T0)
    assert found is not None and found.state.disk.path == broker.paths[1] and found.state.log_end_offset == 10


def refuse_renames(monkeypatch: pytest.MonkeyPatch, path: str, suffix: str) -> Callable[[], None]:
    """There is no room in the directory for names with this suffix until the returned function is called."""
    rename = os.rename

    def refuse(old: str, new: str) -> None:
        if new.startswith(path + "/") and new.endswith(suffix):
            raise OSError(errno.ENOSPC, "No space left on device", new)
        rename(old, new)

    monkeypatch.setattr(os, "rename", refuse)
    return lambda: monkeypatch.setattr(os, "rename", rename)


async def test_a_refused_move_keeps_the_marker_of_the_newer_log(
    broker: BrokerStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_the_rename_of_the_replaced_log(broker, monkeypatch)
    await move_to(broker, 1)
    assert broker.manager.offline_paths == broker.paths[:1]
    with pytest.raises(KafkaError, match="cannot be moved while a log directory is offline"):
        await move_to(broker, 2)
    manager = await broker.restart()  # with both directories
    found = manager.get(T0)
    assert found is not None and found.state.disk.path == broker.paths[1]


async def test_a_replaced_log_is_never_used_again_when_its_directory_failed_before_the_rename(
    broker: BrokerStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory of the newer log is missing at the next start."""
    fail_the_rename_of_the_replaced_log(broker, monkeypatch)
    await append(await move_to(broker, 1), 5, 5)
    await check_only_the_newer_log_is_used(broker)


async def test_a_replaced_log_is_never_used_again_when_it_was_offline_at_the_next_start(
    broker: BrokerStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is killed between the two renames. The directory of the older log is missing at the next start, and
    that of the newer log at the start after it."""
    killed = asyncio.Event()

    async def hang(old: Log) -> None:
        killed.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(broker.manager.future_replicas._swap, "_rename_replaced", hang)
    moving = asyncio.ensure_future(move_to(broker, 1))
    await asyncio.wait_for(killed.wait(), 60)
    manager = await restart_without(broker, 0)
    moving.cancel()
    log = manager.get(T0)
    assert log is not None
    await append(log, 5, 5)
    reopen(broker, 0)
    await check_only_the_newer_log_is_used(broker)


async def test_a_swap_succeeds_without_room_for_the_producer_snapshot(
    broker: BrokerStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_file = disk_calls.write_file

    def write(path: str, data: bytes, is_private: bool = False) -> None:
        if path.startswith(broker.paths[1]) and path.endswith(".snapshot"):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        write_file(path, data, is_private)

    monkeypatch.setattr(disk_calls, "write_file", write)
    await move_to(broker, 1)
    monkeypatch.setattr(disk_calls, "write_file", write_file)
    assert [directories(path) for path in broker.paths[1:]] == [["t-0"], []]
    assert "t-0" not in directories(broker.paths[0])
    await append(await move_to(broker, 2), 5, 5)
    manager = await broker.restart()
    found = manager.get(T0)
    assert found is not None and found.state.disk.path == broker.paths[2] and found.state.log_end_offset == 10


async def test_the_marker_stays_when_the_replaced_log_has_no_room_for_its_new_name(
    broker: BrokerStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_room = refuse_renames(monkeypatch, broker.paths[0], "-delete")
    await append(await move_to(broker, 1), 5, 5)
    assert broker.manager.states[broker.paths[0]].state is DirectoryState.FULL
    assert [directories(path) for path in broker.paths] == [["t-0"], ["t-0"], []]
    make_room()
    manager = await broker.restart()
    found = manager.get(T0)
    assert found is not None and found.state.disk.path == broker.paths[1] and found.state.log_end_offset == 10


@pytest.mark.parametrize("has_room", [False, True])
@pytest.mark.parametrize("becomes_stray", [False, True])
async def test_a_replaced_log_that_kept_its_name_is_renamed_before_the_newer_log_is_removed(
    broker: BrokerStorage, monkeypatch: pytest.MonkeyPatch, becomes_stray: bool, has_room: bool
) -> None:
    """Otherwise the next start would use it, or find two logs and not know which one is newer."""
    make_room = refuse_renames(monkeypatch, broker.paths[0], "-delete")
    await move_to(broker, 1)
    manager = broker.manager
    remove = manager.make_stray if becomes_stray else manager.delete
    if has_room:
        make_room()
    else:
        with pytest.raises(KafkaError):
            await remove(T0)
        with pytest.raises(KafkaError):
            await manager.get_or_create(T0, OTHER_TOPIC_ID, True)
        assert [directories(path) for path in broker.paths] == [["t-0"], ["t-0"], []]
        make_room()
        broker.manager.access.apply(broker.paths[0], ONLINE)
    if not becomes_stray or has_room:
        await remove(T0)
    again = await manager.get_or_create(T0, OTHER_TOPIC_ID, True)
    found = [name.rsplit("-", 1)[1] for path in broker.paths for name in directories(path)]
    assert found.count("stray") == becomes_stray and found.count("0") == 1
    manager = await broker.restart()
    log = manager.get(T0)
    assert log is not None and log.state.disk.path == again.state.disk.path and log.state.topic_id == OTHER_TOPIC_ID


async def test_a_replaced_log_that_kept_its_name_is_renamed_before_the_next_move(
    broker: BrokerStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_room = refuse_renames(monkeypatch, broker.paths[0], "-delete")
    await move_to(broker, 1)
    with pytest.raises(KafkaError):
        await move_to(broker, 2)
    make_room()
    await append(await move_to(broker, 2), 5, 5)
    assert "t-0" not in directories(broker.paths[0])
    await broker.manager.delete(T0)  # must not fail on the log that is gone
    assert not broker.failures


async def test_the_current_log_stays_when_the_future_log_cannot_get_its_name(
    broker: BrokerStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be served from a directory with another name: the replaced log must stay."""
    make_room = refuse_renames(monkeypatch, broker.paths[1], "/t-0")
    await move_to(broker, 1)
    assert broker.manager.offline_paths == [broker.paths[1]]
    assert directories(broker.paths[0]) == ["t-0"]
    make_room()
    manager = await broker.restart()
    found = manager.get(T0)
    assert found is not None and found.state.disk.path == broker.paths[0] and found.state.log_end_offset == 5


@pytest.mark.parametrize("is_elsewhere", [False, True])
async def test_a_cancelled_future_log_does_not_resume_when_it_could_not_be_renamed(
    broker: BrokerStorage, monkeypatch: pytest.MonkeyPatch, is_elsewhere: bool
) -> None:
    """The other name of the future log needs room too. A start that finds it would resume it."""
    manager = broker.manager
    log = manager.get(T0)
    assert log is not None
    replica = await manager.future_replicas.create(log, broker.disks[broker.paths[1]])
    assert replica is not None
    refuse_renames(monkeypatch, broker.paths[1], "-delete")
    wanted = broker.disks[broker.paths[2]] if is_elsewhere else log.state.disk
    assert (await manager.future_replicas.create(log, wanted) is not None) == is_elsewhere
    assert manager.states[broker.paths[1]].state is DirectoryState.FULL
    assert directories(broker.paths[1]) == []
    manager = await broker.restart()
    resumed = manager.future_replicas.get(T0)
    assert (None if resumed is None else resumed.future.state.disk.path) == (broker.paths[2] if is_elsewhere else None)
    assert not broker.failures


async def test_a_truncation_without_room_is_not_repeated_on_the_log_that_replaced_it(
    broker: BrokerStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A truncation found no room on d0. It is repeated when there is room, with the end that the log had then."""
    log = broker.manager.get(T0)
    assert log is not None
    await append(log, 5, 15)
    append_to = disk_calls.append_to

    def refuse(path: str, buffers: Sequence[Buffer]) -> int:
        if path.startswith(broker.paths[0]) and buffers:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return append_to(path, buffers)

    monkeypatch.setattr(disk_calls, "append_to", refuse)
    with pytest.raises(KafkaError, match="is full"):
        await log.truncation.truncate_to(18)
    assert log.state.has_unwritten_tail
    monkeypatch.setattr(disk_calls, "append_to", append_to)

    has_swapped, may_go_on = asyncio.Event(), asyncio.Event()
    await_small_files = broker.manager.future_replicas._swap._await_small_files

    async def waits(new: Log, written: Sequence[asyncio.Future[Any]]) -> None:
        has_swapped.set()
        await may_go_on.wait()
        await await_small_files(new, written)

    monkeypatch.setattr(broker.manager.future_replicas._swap, "_await_small_files", waits)
    moving = asyncio.ensure_future(move_to(broker, 1))
    await asyncio.wait_for(has_swapped.wait(), 60)
    new = broker.manager.get(T0)
    assert new is not None and new.state.disk.path == broker.paths[1] and new.state.log_end_offset == 18
    await append(new, 18, 3)
    broker.manager.access.apply(broker.paths[0], ONLINE)
    for _ in range(10):
        await new.state.disk.exists("t-0")
    may_go_on.set()
    await moving
    assert new.state.log_end_offset == 21, "what was written and acknowledged is gone"

"""Moves whose end a directory without room, or one that fails, has kept from coming: which copy counts later."""

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
from tests.broker.storage.test_log_manager import T0, TOPIC_ID, Broker
from tests.broker.storage.test_moves import SMALL_SEGMENTS, append, directories, swapped

OTHER_TOPIC_ID = bytes(range(16, 32))


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """t-0 is on d0, with five records."""
    made = Broker(tmp_path, 3, SMALL_SEGMENTS, LogManagerSettings())
    manager = await made.start()
    manager.prefer(T0, made.paths[0])
    await append(await manager.get_or_create(T0, TOPIC_ID, True), 0, 5)
    yield made
    made.stop()
    await made.workers.wait_closed()


async def moved(broker: Broker, number: int) -> Log:
    """t-0 is on that directory."""
    current = broker.manager.get(T0)
    assert current is not None
    move = await broker.manager.future_replicas.create(current, broker.disks[broker.paths[number]])
    assert move is not None
    return await swapped(broker, move)


async def restart_without(broker: Broker, number: int) -> LogManager:
    """That directory cannot be opened."""
    broker.stop()
    rename(broker.paths[number], broker.paths[number] + "-away")
    put_a_file(broker.paths[number])
    broker.make()
    manager = await broker.start()
    assert manager.offline_paths == [broker.paths[number]]
    return manager


def give_back(broker: Broker, number: int) -> None:
    """It can be opened at the next start."""
    Path(broker.paths[number]).unlink()
    rename(broker.paths[number] + "-away", broker.paths[number])


def put_a_file(path: str) -> None:
    Path(path).write_text("no directory")


def rename(old: str, new: str) -> None:
    Path(old).rename(new)


def fail_the_old_copys_end(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """d0 fails when the old copy there is to be renamed."""
    swap = broker.manager.future_replicas._swap
    rename_replaced = swap._rename_replaced

    async def fails(old: Log) -> None:
        if old.disk.path == broker.paths[0]:
            raise OSError(errno.EIO, "Input/output error", old.disk.path)
        await rename_replaced(old)

    monkeypatch.setattr(swap, "_rename_replaced", fails)


async def test_a_move_that_is_refused_leaves_the_mark_that_tells_the_newer_copy(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_the_old_copys_end(broker, monkeypatch)
    await moved(broker, 1)
    assert broker.manager.offline_paths == broker.paths[:1]
    with pytest.raises(KafkaError, match="cannot be moved while a log directory is offline"):
        await moved(broker, 2)
    manager = await broker.restart()  # with both directories
    found = manager.get(T0)
    assert found is not None and found.disk.path == broker.paths[1]


async def test_an_old_copy_whose_directory_failed_before_it_was_put_away_never_serves_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory it has moved to is the one that is missing at the next start."""
    fail_the_old_copys_end(broker, monkeypatch)
    await append(await moved(broker, 1), 5, 5)
    await check_only_the_newer_copy_serves(broker)


async def check_only_the_newer_copy_serves(broker: Broker) -> None:
    """It is on d1, with ten records; the older one, on d0, has five."""
    manager = await restart_without(broker, 1)
    assert manager.get(T0) is None, "the broker would lead with a copy that lacks five records"
    give_back(broker, 1)
    manager = await broker.restart()
    found = manager.get(T0)
    assert found is not None and found.disk.path == broker.paths[1] and found.log_end_offset == 10


async def test_an_old_copy_that_was_away_when_the_new_one_was_found_never_serves_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is killed between the two renames; at the next start the old copy's directory is missing, at the one
    after that the new one's."""
    killed = asyncio.Event()

    async def put_away(old: Log) -> None:
        killed.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(broker.manager.future_replicas._swap, "_rename_replaced", put_away)
    moving = asyncio.ensure_future(moved(broker, 1))
    await asyncio.wait_for(killed.wait(), 60)
    manager = await restart_without(broker, 0)
    moving.cancel()
    log = manager.get(T0)
    assert log is not None
    await append(log, 5, 5)
    give_back(broker, 0)
    await check_only_the_newer_copy_serves(broker)


async def test_a_copy_that_finds_no_room_for_its_producers_has_taken_over_all_the_same(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_file = disk_calls.write_file

    def write(path: str, data: bytes, is_private: bool = False) -> None:
        if path.startswith(broker.paths[1]) and path.endswith(".snapshot"):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        write_file(path, data, is_private)

    monkeypatch.setattr(disk_calls, "write_file", write)
    await moved(broker, 1)
    monkeypatch.setattr(disk_calls, "write_file", write_file)
    assert [directories(path) for path in broker.paths[1:]] == [["t-0"], []]
    assert "t-0" not in directories(broker.paths[0])
    await append(await moved(broker, 2), 5, 5)
    manager = await broker.restart()
    found = manager.get(T0)
    assert found is not None and found.disk.path == broker.paths[2] and found.log_end_offset == 10


def refuse_renames(monkeypatch: pytest.MonkeyPatch, path: str, suffix: str) -> Callable[[], None]:
    """There is no room in the directory for names that end so, until the answer is called."""
    rename = os.rename

    def refuse(old: str, new: str) -> None:
        if new.startswith(path + "/") and new.endswith(suffix):
            raise OSError(errno.ENOSPC, "No space left on device", new)
        rename(old, new)

    monkeypatch.setattr(os, "rename", refuse)
    return lambda: monkeypatch.setattr(os, "rename", rename)


async def test_an_old_copy_without_room_for_another_name_leaves_the_mark_that_tells_the_newer_one(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    relieve = refuse_renames(monkeypatch, broker.paths[0], "-delete")
    await append(await moved(broker, 1), 5, 5)
    assert broker.manager.states[broker.paths[0]].state is DirectoryState.FULL
    assert [directories(path) for path in broker.paths] == [["t-0"], ["t-0"], []]
    relieve()
    manager = await broker.restart()
    found = manager.get(T0)
    assert found is not None and found.disk.path == broker.paths[1] and found.log_end_offset == 10


@pytest.mark.parametrize("has_room", [False, True])
@pytest.mark.parametrize("is_kept", [False, True])
async def test_an_old_copy_without_room_for_another_name_goes_before_the_newer_one(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, is_kept: bool, has_room: bool
) -> None:
    """Else it would be the partition at the next start, or one of two that nothing tells from each other."""
    relieve = refuse_renames(monkeypatch, broker.paths[0], "-delete")
    await moved(broker, 1)
    manager = broker.manager
    take_away = manager.make_stray if is_kept else manager.delete
    if has_room:
        relieve()
    else:
        with pytest.raises(KafkaError):
            await take_away(T0)
        with pytest.raises(KafkaError):
            await manager.get_or_create(T0, OTHER_TOPIC_ID, True)
        assert [directories(path) for path in broker.paths] == [["t-0"], ["t-0"], []]
        relieve()
        broker.manager.access.apply(broker.paths[0], ONLINE)
    if not is_kept or has_room:
        await take_away(T0)
    again = await manager.get_or_create(T0, OTHER_TOPIC_ID, True)
    found = [name.rsplit("-", 1)[1] for path in broker.paths for name in directories(path)]
    assert found.count("stray") == is_kept and found.count("0") == 1
    manager = await broker.restart()
    log = manager.get(T0)
    assert log is not None and log.disk.path == again.disk.path and log.topic_id == OTHER_TOPIC_ID


async def test_an_old_copy_without_room_for_another_name_goes_before_the_next_move(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    relieve = refuse_renames(monkeypatch, broker.paths[0], "-delete")
    await moved(broker, 1)
    with pytest.raises(KafkaError):
        await moved(broker, 2)
    relieve()
    await append(await moved(broker, 2), 5, 5)
    assert "t-0" not in directories(broker.paths[0])
    await broker.manager.delete(T0)  # what has gone by then is not looked for
    assert not broker.failures


async def test_a_copy_that_cannot_take_its_name_has_not_arrived(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is served under a name that it does not have: the old one must not go."""
    relieve = refuse_renames(monkeypatch, broker.paths[1], "/t-0")
    await moved(broker, 1)
    assert broker.manager.offline_paths == [broker.paths[1]]
    assert directories(broker.paths[0]) == ["t-0"]
    relieve()
    manager = await broker.restart()
    found = manager.get(T0)
    assert found is not None and found.disk.path == broker.paths[0] and found.log_end_offset == 5


@pytest.mark.parametrize("is_elsewhere", [False, True])
async def test_a_move_that_was_taken_back_without_room_is_not_gone_on_with(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, is_elsewhere: bool
) -> None:
    """The copy's other name needs room too. A start that finds the copy would take it up."""
    manager = broker.manager
    log = manager.get(T0)
    assert log is not None
    move = await manager.future_replicas.create(log, broker.disks[broker.paths[1]])
    assert move is not None
    refuse_renames(monkeypatch, broker.paths[1], "-delete")
    wanted = broker.disks[broker.paths[2]] if is_elsewhere else log.disk
    assert (await manager.future_replicas.create(log, wanted) is not None) == is_elsewhere
    assert manager.states[broker.paths[1]].state is DirectoryState.FULL
    assert directories(broker.paths[1]) == []
    manager = await broker.restart()
    goes_on = manager.future_replicas.get(T0)
    assert (None if goes_on is None else goes_on.future.disk.path) == (broker.paths[2] if is_elsewhere else None)
    assert not broker.failures


async def test_a_log_that_has_moved_away_takes_nothing_back_where_it_has_gone(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A truncation found no room on d0. When there is room it is done again, with the end that the log had then."""
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
        await log.truncate_to(18)
    assert log.state.has_unwritten_tail
    monkeypatch.setattr(disk_calls, "append_to", append_to)

    has_taken_over, may_go_on = asyncio.Event(), asyncio.Event()
    settle_in = broker.manager.future_replicas._swap._await_small_files

    async def waits(new: Log, written: Sequence[asyncio.Future[Any]]) -> None:
        has_taken_over.set()
        await may_go_on.wait()
        await settle_in(new, written)

    monkeypatch.setattr(broker.manager.future_replicas._swap, "_await_small_files", waits)
    moving = asyncio.ensure_future(moved(broker, 1))
    await asyncio.wait_for(has_taken_over.wait(), 60)
    new = broker.manager.get(T0)
    assert new is not None and new.disk.path == broker.paths[1] and new.log_end_offset == 18
    await append(new, 18, 3)
    broker.manager.access.apply(broker.paths[0], ONLINE)
    for _ in range(10):
        await new.disk.exists("t-0")
    may_go_on.set()
    await moving
    assert new.log_end_offset == 21, "what was written and acknowledged is gone"

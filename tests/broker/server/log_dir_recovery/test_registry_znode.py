"""A broker with two log directories that starts with the stale logs of recreated replicas only."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.coordination.embedded import EmbeddedCoordination, EmbeddedStore
from ottla_broker.ports import Disk
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.server.log_dir_recovery.registry_znode import RegistryZnode
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs.log_manager import LogManager
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from ottla_broker.storage.log_dirs.states import DirectoryDecision, DirectoryState
from tests.broker.storage.log_dirs.brokers import T0, TOPIC_ID, BrokerStorage
from tests.broker.storage.logs import batch, read_values, written


class Disks(BrokerStorage):
    """The storage of broker 1 over several directories, with a coordination."""

    def __init__(self, root: Path, count: int) -> None:
        super().__init__(root, count, {}, LogManagerSettings())
        self.store = EmbeddedStore(str(root / "coordination"))
        self.coordination = EmbeddedCoordination(self.store)

    async def start(self, broker_id: int = 1, cluster_id: str = "cluster-A") -> LogManager:
        await self.manager.inspect()
        await self.manager.claim(broker_id, cluster_id)
        await RegistryZnode(broker_id, self.coordination, self.manager.registry).recall()
        await self.manager.load()
        return self.manager

    def fail(self, number: int) -> None:
        path = self.paths[number]
        self.manager.directory_failed(self.manager.disk(path), OSError(errno.EIO, "gone", path))

    async def restart_with(self, *numbers: int) -> LogManager:
        """After kill -9, with these directories alone."""
        self.stop()
        away = [path for number, path in enumerate(self.paths) if number not in numbers]
        for path in away:
            take_away(path)
        self.create_manager()
        manager = await self.start()
        for path in away:
            give_back(path)
        return manager


def has_log(path: str) -> bool:
    return Path(path, str(T0)).is_dir()


def take_away(path: str) -> None:
    Path(path).rename(f"{path}-away")
    Path(path).write_text("no directory")


def give_back(path: str) -> None:
    Path(path).unlink()
    Path(f"{path}-away").rename(path)


@pytest.fixture(params=[2])
async def disks(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Disks]:
    """Empty; the parameter is their number."""
    made = Disks(tmp_path, request.param)
    await made.store.open()
    await made.coordination.start()
    await made.start()
    yield made
    made.stop()
    await made.workers.wait_closed()
    await made.coordination.close()
    await made.store.close()


@pytest.fixture
async def broker(disks: Disks) -> Disks:
    """t-0 was on d0 and has been recreated on d1."""
    manager = disks.manager
    manager.prefer(T0, disks.paths[0])
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    log.append_as_leader(batch(b"old"), 0)
    await written(log)
    disks.fail(0)
    recreated = await manager.recreate(T0, TOPIC_ID, disks.paths[1], is_catching_up=True)
    recreated.append_as_leader(batch(b"new"), 0)
    await written(recreated)
    return disks


async def test_a_stale_log_is_not_the_replica_while_the_newer_ones_directory_is_offline(broker: Disks) -> None:
    await broker.manager.registry.caught_up(T0)
    manager = await broker.restart_with(0)
    assert manager.get(T0) is None
    with pytest.raises(KafkaError, match="may be on an offline directory"):
        await manager.get_or_create(T0, TOPIC_ID, False)
    found = (await broker.restart()).get(T0)
    assert found is not None and found.state.disk.path == broker.paths[1]
    assert [value for _, value in await read_values(found, 0)] == [b"new"]


async def test_a_recreated_replica_that_never_caught_up_leaves_the_older_log_the_replica(broker: Disks) -> None:
    """It was not in sync meanwhile, so nothing is committed that the older copy would lack for it."""
    manager = await broker.restart_with(0)
    found = manager.get(T0)
    assert found is not None and [value for _, value in await read_values(found, 0)] == [b"old"]


async def test_the_registry_with_the_highest_revision_counts(broker: Disks) -> None:
    """Both were live together since: the newest copy is the one that is there now."""
    await broker.manager.registry.caught_up(T0)
    manager = await broker.restart()
    await manager.delete(T0)
    manager.prefer(T0, broker.paths[0])
    await manager.get_or_create(T0, TOPIC_ID, True)
    found = (await broker.restart_with(0)).get(T0)
    assert found is not None and found.state.disk.path == broker.paths[0]


async def test_a_replica_does_not_count_as_caught_up_before_the_coordination_store_has_it(broker: Disks) -> None:
    await broker.coordination.close()
    with pytest.raises(KafkaError, match="/ottla/recreated-replicas/1"):
        await broker.manager.registry.caught_up(T0)
    assert broker.manager.registry.is_catching_up(T0)


async def test_a_replica_does_not_count_as_caught_up_when_the_write_was_cancelled(
    broker: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_asked = asyncio.Event()

    async def never() -> None:
        is_asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(broker.manager.registry, "save_elsewhere", never)
    filled = broker.manager.registry.caught_up
    ending = broker.clock.spawn(filled(T0), name="filled")
    await asyncio.wait_for(is_asked.wait(), 60)
    ending.cancel()
    await asyncio.wait([ending])
    assert broker.manager.registry.is_catching_up(T0)
    monkeypatch.undo()
    await filled(T0)
    assert not (await broker.restart()).registry.is_catching_up(T0)


@pytest.mark.parametrize("disks", [3], indirect=True)
@pytest.mark.parametrize("is_there_again", [True, False], ids=["recreated a second time", "on an offline directory"])
async def test_stale_logs_of_a_deleted_replica_are_strays_when_their_directories_are_back(
    broker: Disks, is_there_again: bool
) -> None:
    await broker.manager.registry.caught_up(T0)
    broker.fail(1)
    if is_there_again:
        await broker.manager.recreate(T0, TOPIC_ID, broker.paths[2], is_catching_up=True)
        await broker.manager.registry.caught_up(T0)
    await broker.manager.delete(T0)
    manager = await broker.restart()
    assert manager.get(T0) is None
    for path in broker.paths[:2]:
        assert not has_log(path)
    assert manager.registry.registry.recreated == {}


async def test_a_log_whose_directory_fails_while_it_is_created_is_created_on_another_one(
    disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last call had succeeded, and another log's had not."""
    manager = disks.manager
    create_files = manager.creation.create_files

    async def fail_behind(disk: Disk, *arguments: Any) -> Log:
        log = await create_files(disk, *arguments)
        if disk.path == disks.paths[0]:
            disks.fail(0)
        return log

    monkeypatch.setattr(manager.creation, "create_files", fail_behind)
    manager.prefer(T0, disks.paths[0])
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    assert log.state.disk.path == disks.paths[1] and not log.state.is_failed
    assert (await disks.restart_with(0)).get(T0) is None


@pytest.mark.parametrize("has_another", [True, False], ids=["at once", "when another directory has room"])
async def test_files_of_a_failed_creation_do_not_count_as_the_log_that_another_directory_has(
    disks: Disks, has_another: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = disks.manager
    failing, other = manager.disk(disks.paths[0]), disks.paths[1]

    async def fail(name: str = "") -> None:
        raise OSError(errno.EIO, "gone", failing.path)

    monkeypatch.setattr(failing, "fsync_directory", fail)
    manager.prefer(T0, failing.path)
    if not has_another:
        manager.states.apply(other, DirectoryDecision(DirectoryState.FULL, "full"), 0)
        with pytest.raises(KafkaError):
            await manager.get_or_create(T0, TOPIC_ID, True)
        manager.states.apply(other, DirectoryDecision(DirectoryState.ONLINE, ""), 0)
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    assert log.state.disk.path == other and has_log(failing.path)
    log.append_as_leader(batch(b"a"), 0)
    await written(log)
    assert (await disks.restart_with(0)).get(T0) is None
    found = (await disks.restart()).get(T0)
    assert found is not None and [value for _, value in await read_values(found, 0)] == [b"a"]

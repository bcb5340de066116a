"""Moves between log directories as the replica sees them: what it does once its log has moved, or could not."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_broker.adapters.disk import DirectoryDisk
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.fetchers import Fetchers
from ottla_broker.replication.replica_states.commands import StopCommand
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log_dirs.directory_callbacks import DirectoryCallbacks
from ottla_broker.storage.log_dirs.log_manager import LogManager
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from ottla_broker.storage.log_dirs.states import DirectoryDecision, DirectoryState
from tests.broker.replication import fleet as fleets
from tests.broker.replication.fleet import Fleet, Node, until

TP = TopicPartition("orders", 0)


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Fleet]:
    """Broker 1 leads orders-0, broker 2 follows."""
    fleet = Fleet(tmp_path)
    await fleet.start(1, 2)
    try:
        await fleet.create("orders", (1, 2))
        yield fleet
    finally:
        fleet.stop()


async def try_to_swap(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of broker 2's log has caught up, and does not come to take its place."""
    manager = fleet.nodes[2].manager

    async def swap(move: Any, take_over: Any) -> bool:
        return False

    monkeypatch.setattr(manager.log_manager.future_replicas, "swap", swap)
    move: Any = SimpleNamespace(current=fleet.nodes[2].partition("orders").log, is_finished=False)
    assert not await manager.alter_log_dirs._finish(move)


async def test_a_follower_fetches_again_after_a_swap_that_failed(two: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    await try_to_swap(two, monkeypatch)
    assert two.nodes[2].manager._fetchers.follows(TP)


async def test_a_stopped_replica_does_not_follow_after_a_swap(two: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """StopReplica without deletion: a broker that is about to stop gets it."""
    manager = two.nodes[2].manager
    assert await manager.stop_replicas(1, [StopCommand(TP, 0, False)]) == {TP: ErrorCode.NONE}
    await try_to_swap(two, monkeypatch)
    assert not manager._fetchers.follows(TP)


async def test_a_stopped_broker_follows_nobody_after_a_swap(two: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = two.nodes[2].manager
    await manager.stop()
    await try_to_swap(two, monkeypatch)
    assert not manager._fetchers.follows(TP)


class TwoDirectories(Node):
    """A node with a second log directory; `reports` are the events that have the controller ask again."""

    def __init__(self, fleet: Fleet, broker_id: int, directory: Path, settings: dict[str, str]) -> None:
        super().__init__(fleet, broker_id, directory, settings)
        other = str(directory.parent / f"other-{broker_id}")
        Path(other).mkdir(exist_ok=True)
        self.reports = 0
        self.log_manager = LogManager(
            {str(directory): self.disk, other: DirectoryDisk(other)},
            self.clock,
            self.workers,
            LogManagerSettings(),
            lambda topic: LogConfig(self.config.topic_config(self.overrides)),
            DirectoryCallbacks(lambda path, error: self.failures.append(error)),
        )

    def report_directories(self) -> None:
        self.reports += 1

    def kill(self) -> None:
        super().kill()
        for disk in self.log_manager.access.disks:
            disk.close()


@pytest.fixture
async def roomy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Fleet, TwoDirectories]]:
    """Broker 2 leads orders-0, and broker 1, which has two directories, follows."""
    monkeypatch.setattr(fleets, "Node", TwoDirectories)
    fleet = Fleet(tmp_path)
    await fleet.start(1, 2)
    try:
        await fleet.create("orders", (2, 1))
        node = fleet.nodes[1]
        assert isinstance(node, TwoDirectories)
        yield fleet, node
    finally:
        fleet.stop()


async def test_the_broker_reports_a_replica_that_moved_away_from_a_full_log_directory(
    roomy: tuple[Fleet, TwoDirectories],
) -> None:
    """Its directory stays full, and says nothing; nothing keeps the replica from being used where it is now."""
    fleet, node = roomy
    manager, storage = node.manager, node.log_manager
    full = node.partition("orders").log.state.disk.path
    there = next(path for path in storage.paths if path != full)
    storage.access.apply(full, DirectoryDecision(DirectoryState.FULL, "less free than the reserve"))
    assert await fleet.command("orders", to=[1]) == {1: [ErrorCode.KAFKA_STORAGE_ERROR]}
    await fleet.elect("orders", 2, (2,), to=[2])
    await manager.stop_replicas(1, [StopCommand(TP, 1, False)])
    assert await manager.alter_log_dirs.alter({TP: there}) == {TP: ErrorCode.NONE}
    await until(lambda: node.reports, "the controller is told that it asks again")
    assert node.partition("orders").log.state.disk.path == there
    assert await fleet.command("orders", to=[1]) == {1: [ErrorCode.NONE]}
    assert manager._fetchers.follows(TP)


async def test_a_follower_fetches_again_when_the_future_replicas_directory_fails_during_the_swap(
    roomy: tuple[Fleet, TwoDirectories], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had been stopped for the swap; nobody had it follow again before the next leader epoch."""
    _, node = roomy
    manager, storage = node.manager, node.log_manager
    here = node.partition("orders").log.state.disk.path
    there = next(path for path in storage.paths if path != here)
    has_failed = asyncio.Event()

    async def remove(partitions: list[TopicPartition]) -> None:
        await Fetchers.remove(manager._fetchers, partitions)
        if not has_failed.is_set():
            error = OSError(errno.EIO, "broken")
            asyncio.get_running_loop().call_soon(storage.directory_failed, storage.disk(there), error)
            has_failed.set()
            await asyncio.sleep(0)  # the follower's last call on the copy

    monkeypatch.setattr(manager._fetchers, "remove", remove)
    assert await manager.alter_log_dirs.alter({TP: there}) == {TP: ErrorCode.NONE}
    await has_failed.wait()
    async with manager._commands:
        assert storage.future_replicas.in_progress == [] and node.partition("orders").log.state.disk.path == here
        assert manager._fetchers.follows(TP)
    assert [type(error) for error in node.failures] == [OSError]
    node.failures.clear()

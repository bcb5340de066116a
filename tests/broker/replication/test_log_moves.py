"""Moves between log directories as the replica sees them: what it does once its log has moved, or could not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.commands import StopCommand
from tests.broker.replication.fleet import Fleet

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

    monkeypatch.setattr(manager.log_manager.moves, "swap", swap)
    move: Any = SimpleNamespace(current=fleet.nodes[2].partition("orders").log, is_over=False)
    assert not await manager.moves._finish(move)


async def test_a_follower_goes_on_after_its_log_was_to_move(two: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    await try_to_swap(two, monkeypatch)
    assert two.nodes[2].manager._fetchers.follows(TP)


async def test_a_stopped_replica_does_not_follow_again_because_its_log_moves(
    two: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """StopReplica without deletion: a broker that is about to stop gets it."""
    manager = two.nodes[2].manager
    assert await manager.stop_replicas(1, [StopCommand(TP, 0, False)]) == {TP: ErrorCode.NONE}
    await try_to_swap(two, monkeypatch)
    assert not manager._fetchers.follows(TP)


async def test_nobody_is_followed_after_the_stop_because_a_log_moves(
    two: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = two.nodes[2].manager
    await manager.stop()
    await try_to_swap(two, monkeypatch)
    assert not manager._fetchers.follows(TP)

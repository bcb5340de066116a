"""A broker in controlled shutdown and the commands that reach it still: whom it follows, and what waits for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.replica_states.commands import StopCommand
from tests.broker.replication.fleet import Fleet

TP = TopicPartition("orders", 0)


@pytest.fixture
async def stopping(tmp_path: Path) -> AsyncIterator[Fleet]:
    """Broker 2 of three has followed broker 1 until its controlled shutdown: StopReplica has come."""
    fleet = Fleet(tmp_path)
    await fleet.start(1, 2, 3)
    try:
        await fleet.create("orders", (1, 2, 3))
        manager = fleet.nodes[2].manager
        manager.begin_controlled_shutdown()
        await fleet.elect("orders", 1, (1, 3), to=(1, 3))
        assert await manager.stop_replicas(1, [StopCommand(TP, 1, False)]) == {TP: ErrorCode.NONE}
        yield fleet
    finally:
        fleet.stop()


async def is_written(fleet: Fleet, leader: int) -> bool:
    return bool((await fleet.produce(leader, "orders", "a record")).error_code == 0)


async def test_it_does_not_follow_the_leader_of_a_later_election_and_no_record_waits_for_it(stopping: Fleet) -> None:
    await stopping.elect("orders", 3, (3, 1))
    assert not stopping.nodes[2].manager._fetchers.follows(TP)
    assert await is_written(stopping, 3)
    assert stopping.nodes[2].partition("orders").log.state.log_end_offset == 0
    assert await is_written(stopping, 3)
    assert not stopping.isr_requests
    # Clients that ask it hear who leads.
    assert stopping.nodes[2].partition("orders").leader_id == 3
    assert (await stopping.produce(2, "orders", "x")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_it_does_not_follow_because_a_log_dir_event_or_another_controller_repeats_the_leadership(
    stopping: Fleet,
) -> None:
    assert await stopping.command("orders", to=(2,)) == {2: [ErrorCode.NONE]}
    stopping.controller_epoch += 1
    assert await stopping.command("orders", to=(2,)) == {2: [ErrorCode.NONE]}
    assert not stopping.nodes[2].manager._fetchers.follows(TP)
    assert await is_written(stopping, 1)


async def test_it_does_not_follow_in_a_topic_that_is_new(stopping: Fleet) -> None:
    await stopping.create("more", (1, 2, 3), isr=(1, 3))
    assert not stopping.nodes[2].manager._fetchers.follows(TopicPartition("more", 0))


async def test_it_leads_when_it_is_named_leader_after_all(stopping: Fleet) -> None:
    await stopping.elect("orders", 2, (2,))
    assert await is_written(stopping, 2)


async def test_it_follows_where_it_is_in_sync(stopping: Fleet) -> None:
    await stopping.elect("orders", 1, (1, 2, 3))
    assert stopping.nodes[2].manager._fetchers.follows(TP)
    assert await is_written(stopping, 1)

"""Replicas that are back from an offline directory: what ends the wait of a shorter log, and which ISR a leader has."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.isr import InSyncState
from ottla_broker.replication.replica_states.commands import LeadershipCommand, StopCommand
from ottla_broker.replication.replica_states.local_replica import EPOCH_DURING_DELETE
from ottla_broker.replication.replica_states.reopened import ReturnAction
from ottla_broker.replication.replica_states.replica_events import LogDirFailed, LogDirReopened, LogRemoved
from tests.broker.replication.fleet import Fleet, Node, until

TP = TopicPartition("orders", 0)


@pytest.fixture
async def held(tmp_path: Path) -> AsyncIterator[Fleet]:
    """Broker 1's replica of orders-0 is back, and shorter; the partition's state counts it as in sync."""
    fleet = Fleet(tmp_path)
    await fleet.start(1)
    try:
        await fleet.create("orders", (1, 2), isr=(1, 2))
        manager = fleet.nodes[1].manager
        path = fleet.nodes[1].partition("orders").log.state.disk.path
        manager.replicas.apply(TP, LogDirFailed(path))
        await manager._execution._end_serving_offline()
        # As after a restart, nobody knows in which epoch it acted.
        manager.replicas.apply(TP, LogRemoved(is_deleted=True))
        manager.replicas.apply(TP, LogDirReopened(path, has_whole_log=False))
        yield fleet
    finally:
        fleet.stop()


def alone_in_sync(fleet: Fleet, leader_epoch: int, leader: int = 1) -> LeadershipCommand:
    """Nobody else is in sync."""
    topic_id = fleet.topics["orders"].topic_id
    return LeadershipCommand(TP, topic_id, leader, leader_epoch, leader_epoch, 1, (1,), (1, 2), False)


def directories(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "broker-1").iterdir() if path.name.startswith("orders-0")]


async def test_a_replica_without_its_tail_is_deleted_when_the_controller_says_so(held: Fleet, tmp_path: Path) -> None:
    """Its topic is deleted, or a reassignment has moved it away: no state of its partition ends the wait any more."""
    manager = held.nodes[1].manager
    assert await manager.stop_replicas(1, [StopCommand(TP, EPOCH_DURING_DELETE, True)]) == {TP: ErrorCode.NONE}
    assert manager.log_manager.get(TP) is None and "orders-0" not in directories(tmp_path)
    assert not manager.has_offline


async def test_a_deleted_replica_is_not_created_again_from_an_older_partition_state(
    held: Fleet, tmp_path: Path
) -> None:
    """The state was read before the deletion, or the topic's goes on elsewhere: its nodes are there until the end."""
    manager = held.nodes[1].manager
    await manager.stop_replicas(1, [StopCommand(TP, EPOCH_DURING_DELETE, True)])
    await manager.readmit([LeadershipCommand(TP, held.topics["orders"].topic_id, 2, 1, 1, 1, (2,), (1, 2), False)])
    assert manager.partition(*TP) is None and manager.log_manager.get(TP) is None
    assert "orders-0" not in directories(tmp_path)


async def test_a_stray_is_deleted_when_the_controller_says_so(held: Fleet, tmp_path: Path) -> None:
    manager = held.nodes[1].manager
    await manager.set_unassigned_aside([TP])
    assert [name.rsplit("-", 1)[1] for name in directories(tmp_path)] == ["stray"]
    assert await manager.stop_replicas(1, [StopCommand(TP, EPOCH_DURING_DELETE, True)]) == {TP: ErrorCode.NONE}
    assert [name.rsplit("-", 1)[1] for name in directories(tmp_path)] == ["delete"]


async def test_a_replica_without_its_tail_that_is_only_stopped_still_answers_kafka_storage_error(held: Fleet) -> None:
    manager = held.nodes[1].manager
    assert await manager.stop_replicas(1, [StopCommand(TP, 0, False)]) == {TP: ErrorCode.KAFKA_STORAGE_ERROR}
    assert manager.is_offline(TP) and manager.log_manager.get(TP) is not None


async def test_the_last_in_sync_replica_leads_without_its_tail_in_a_new_epoch_only(held: Fleet) -> None:
    """Its followers may have more of the epoch that it had. Whether it had one before a restart nobody knows."""
    manager = held.nodes[1].manager
    state = partial(alone_in_sync, held)
    assert manager.decide_readmission(state(9)).action is ReturnAction.WAIT
    for _ in range(2):  # the answer may be lost with its connection, and the command comes again
        assert await manager.apply_leadership(1, [state(3)]) == {TP: ErrorCode.KAFKA_STORAGE_ERROR}
        assert manager.decide_readmission(state(3)).action is ReturnAction.WAIT
    # The controller has heard of it, and tells the others only; the coordination store tells us.
    assert manager.decide_readmission(state(4, leader=-1)).action is ReturnAction.ADMIT
    await manager.readmit([state(4, leader=-1)])
    assert not manager.is_offline(TP)
    assert await manager.apply_leadership(1, [state(4, leader=-1)]) == {TP: ErrorCode.NONE}
    assert await manager.apply_leadership(1, [state(5)]) == {TP: ErrorCode.NONE}
    assert held.nodes[1].partition("orders").is_leader


async def test_the_last_in_sync_replica_is_back_in_an_epoch_that_it_refused_while_offline(
    held: Fleet,
) -> None:
    """Nobody leads in that epoch, so nobody has written in it, and the election begins another."""
    manager = held.nodes[1].manager
    without_leader = alone_in_sync(held, 4, leader=-1)
    path = manager.replicas[TP].log_dir
    manager.replicas.apply(TP, LogDirFailed(path))
    assert await manager.apply_leadership(1, [without_leader]) == {TP: ErrorCode.KAFKA_STORAGE_ERROR}
    manager.replicas.apply(TP, LogDirReopened(path, has_whole_log=False))
    assert await manager.apply_leadership(1, [alone_in_sync(held, 3, leader=-1)]) == {TP: ErrorCode.KAFKA_STORAGE_ERROR}
    assert await manager.apply_leadership(1, [without_leader]) == {TP: ErrorCode.NONE}
    assert await manager.apply_leadership(1, [alone_in_sync(held, 5)]) == {TP: ErrorCode.NONE}
    assert held.nodes[1].partition("orders").is_leader


@pytest.fixture
async def asking(tmp_path: Path) -> AsyncIterator[Fleet]:
    """Broker 1 leads orders-0 alone in sync, and asks in vain to add broker 2, which then follows no more."""
    fleet = Fleet(tmp_path)
    await fleet.start(1, 2)
    try:
        fleet.is_controller_answering = False
        await fleet.create("orders", (1, 2), isr=(1,))
        await fleet.produce(1, "orders", "a", acks=1)
        await until(lambda: fleet.unanswered > 0, "the leader asks to add broker 2")
        await until(lambda: fleet.nodes[1].partition("orders").log.state.high_watermark == 1, "broker 2 has the record")
        assert await fleet.nodes[2].manager.stop_replicas(1, [StopCommand(TP, 0, False)]) == {TP: ErrorCode.NONE}
        yield fleet
    finally:
        fleet.stop()


async def fail_and_reopen(node: Node) -> None:
    path = node.partition("orders").log.state.disk.path
    node.manager.replicas.apply(TP, LogDirFailed(path))
    await node.manager._execution._end_serving_offline()
    node.manager.replicas.apply(TP, LogDirReopened(path, has_whole_log=True))


async def test_a_leader_that_is_back_waits_for_the_follower_that_it_had_asked_to_add(asking: Fleet) -> None:
    """The controller grants it after the state was read that the leader comes back with: committed without broker 2, a
    record would be lost when that is elected."""
    node = asking.nodes[1]
    await fail_and_reopen(node)
    state = asking.topics["orders"].states[0]
    await node.manager.readmit([replace(alone_in_sync(asking, 0), partition_epoch=state.partition_epoch)])
    asking.topics["orders"].states[0] = replace(state, isr=(1, 2), partition_epoch=state.partition_epoch + 1)
    await asking.produce(1, "orders", "b", acks=1)
    partition = node.partition("orders")
    assert (partition.log.state.log_end_offset, partition.log.state.high_watermark) == (2, 1)
    asking.is_controller_answering = True
    await until(lambda: partition.in_sync == InSyncState((1, 2)), "the leader learns what was granted")
    assert partition.partition_epoch == state.partition_epoch + 1


async def test_a_leader_that_is_back_takes_a_state_that_is_newer_than_its_request(asking: Fleet) -> None:
    node = asking.nodes[1]
    await fail_and_reopen(node)
    newer = asking.topics["orders"].states[0].partition_epoch + 1
    await node.manager.readmit([replace(alone_in_sync(asking, 0), partition_epoch=newer)])
    partition = node.partition("orders")
    assert (partition.in_sync, partition.partition_epoch) == (InSyncState((1,)), newer)


async def test_a_leader_that_is_back_in_a_newer_epoch_begins_with_the_isr_of_the_election(asking: Fleet) -> None:
    node = asking.nodes[1]
    await fail_and_reopen(node)
    await node.manager.readmit([alone_in_sync(asking, 1)])
    assert node.partition("orders").in_sync == InSyncState((1,))


async def test_a_new_topic_of_the_same_name_does_not_begin_with_the_isr_of_the_one_before(asking: Fleet) -> None:
    """Its epochs begin at 0 again."""
    node = asking.nodes[1]
    await fail_and_reopen(node)
    await node.manager.readmit([replace(alone_in_sync(asking, 0), topic_id=uuid.uuid4().bytes)])
    assert node.partition("orders").in_sync == InSyncState((1,))


async def test_a_leader_that_had_no_room_asks_again_for_what_it_had_asked(asking: Fleet) -> None:
    """It hands its partition over, nobody else is elected, and the controller repeats the same leader epoch."""
    node = asking.nodes[1]
    partition = node.partition("orders")
    unanswered = asking.unanswered
    partition.resign()
    partition.become_leader(0, partition.partition_epoch, 1, (1, 2), (1,))
    assert partition.in_sync.maximal == (1, 2)
    await until(lambda: asking.unanswered > unanswered, "it asks again")

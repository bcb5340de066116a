"""A request of the controller about every replica of a broker: the loop does other work meanwhile."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.local_replicas import command_execution
from ottla_broker.replication.replica_states.commands import LeadershipCommand
from tests.broker.replication.fleet import Fleet

COUNT, A_TURN = 60, 10


@pytest.mark.parametrize("leader", [1, 2])
async def test_other_work_comes_between_the_partitions_of_a_large_leader_and_isr(
    one: Fleet, leader: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_execution, "_PARTITIONS_PER_TURN", A_TURN)
    manager = one.nodes[1].manager
    partitions = [TopicPartition("many", index) for index in range(COUNT)]

    def commands(leader_epoch: int, *, is_new: bool) -> list[LeadershipCommand]:
        return [
            LeadershipCommand(tp, ZERO_UUID, leader, leader_epoch, 0, 1, (1, 2), (1, 2), is_new) for tp in partitions
        ]

    def with_epoch(epoch: int) -> int:
        return sum(partition.leader_epoch == epoch for partition in manager.topics.get("many", {}).values())

    for epoch in (5, 6):
        applying = asyncio.ensure_future(manager.apply_leadership(1, commands(epoch, is_new=epoch == 5)))
        seen = [0]
        while not applying.done():
            await asyncio.sleep(0)
            seen.append(with_epoch(epoch))
        assert applying.result() == dict.fromkeys(partitions, ErrorCode.NONE)
        assert seen[-1] == COUNT
        assert max(after - before for before, after in pairwise(seen)) <= A_TURN
    led = [partition.is_leader for partition in manager.topics["many"].values()]
    assert led == [leader == 1] * COUNT

"""A leader whose log directory has no room for what it has assigned: once it has, followers and consumers go on."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ottla_broker.adapters.lane import LaneFile
from ottla_broker.config.topics import CONSUMER_OFFSETS
from ottla_broker.groups.offsets import CommittedOffset
from ottla_broker.groups.records import offset_record
from ottla_broker.internal_topics.topic_log import AppendOutcome
from ottla_broker.ports.disk import Buffer
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import list_offsets as list_offsets_api
from ottla_broker.protocol.generated import offset_for_leader_epoch as epoch_api
from ottla_broker.records.compression import Codec
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.replica_states.commands import LeadershipCommand
from ottla_broker.server.assembly.internal_topic_log import ReplicatedTopicLog
from ottla_broker.storage.log_dirs.states import ONLINE
from tests.broker.replication.fleet import Fleet, Node, until


class Cramped:
    """A broker's log directory that is full: appends wait until `refuse` tells them so; `relieve` makes room."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch, topic: str = "orders") -> None:
        self._node = node
        self._log = node.partition(topic).log
        self._monkeypatch = monkeypatch
        self._waiting: list[asyncio.Future[int]] = []
        monkeypatch.setattr(node.disk._lane, "append", self._append)

    def _append(
        self,
        file: LaneFile,
        buffers: Sequence[Buffer],
        on_done: Callable[[asyncio.Future[int]], None] | None = None,
    ) -> asyncio.Future[int]:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if on_done is not None:
            future.add_done_callback(on_done)
        self._waiting.append(future)
        return future

    async def refuse(self) -> None:
        for future in self._waiting:
            future.set_exception(OSError(errno.ENOSPC, "No space left on device"))
        await until(lambda: self._log.state.is_full, "the broker sees that its directory is full")

    async def relieve(self) -> None:
        self._monkeypatch.undo()
        self._node.log_manager.access.apply(self._node.disk.path, ONLINE)
        await until(lambda: not self._log.state.is_full, "there is room again")


BEFORE_THE_APPEND, BEFORE_THE_ERROR, BEHIND_IT = "before the append", "before the error", "behind it"
"""When the leader is elected once more."""


async def lose_one(fleet: Fleet, monkeypatch: pytest.MonkeyPatch, when_elected: str) -> None:
    """Broker 1 gives an offset to a record for which there is no room, and is elected as the only one in sync. Then
    there is room again."""
    node = fleet.nodes[1]
    log = node.partition("orders").log
    if when_elected == BEFORE_THE_APPEND:
        await fleet.elect("orders", 1, (1,))
    cramped = Cramped(node, monkeypatch)
    producing = asyncio.ensure_future(fleet.produce(1, "orders", "lost"))
    await until(lambda: log.state.assigned_offset == log.state.log_end_offset + 1, "the record has its offset")
    if when_elected == BEFORE_THE_ERROR:
        await fleet.elect("orders", 1, (1,))
    await cramped.refuse()
    if when_elected == BEHIND_IT:
        await fleet.elect("orders", 1, (1,))
    assert (await producing).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    await cramped.relieve()


@pytest.mark.parametrize("when_elected", [BEFORE_THE_ERROR, BEHIND_IT])
async def test_followers_stay_in_sync_with_a_leader_that_had_no_room_for_assigned_records(
    three: Fleet, monkeypatch: pytest.MonkeyPatch, when_elected: str
) -> None:
    """Its epoch seemed to begin at an offset that no record has, and min.insync.replicas let no producer write one."""
    await three.produce(1, "orders", "a")
    await lose_one(three, monkeypatch, when_elected)
    await until(lambda: sorted(three.topics["orders"].states[0].isr) == [1, 2, 3], "all are in sync")
    answer = await three.produce(1, "orders", "b")
    assert (answer.error_code, answer.base_offset) == (0, 1)
    assert await three.values(1, "orders") == ["a", "b"]


@pytest.mark.parametrize("when_elected", [BEFORE_THE_APPEND, BEFORE_THE_ERROR, BEHIND_IT])
async def test_consumers_find_the_end_of_a_leader_that_had_no_room_for_assigned_records(
    one: Fleet, monkeypatch: pytest.MonkeyPatch, when_elected: str
) -> None:
    await one.produce(1, "orders", "a")
    await lose_one(one, monkeypatch, when_elected)
    epoch = one.topics["orders"].states[0].leader_epoch
    latest = list_offsets_api.ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=epoch)
    answer = await one.ask(
        1,
        ApiKey.LIST_OFFSETS,
        9,
        list_offsets_api.ListOffsetsRequest(
            replica_id=-1, topics=[list_offsets_api.ListOffsetsTopic(name="orders", partitions=[latest])]
        ),
    )
    found = answer.topics[0].partitions[0]
    assert (found.error_code, found.offset, found.leader_epoch) == (0, 1, epoch)
    # A consumer that has heard so asks whether the epoch still reaches that far, and fetches from there.
    asked = epoch_api.OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=epoch)
    answer = await one.ask(
        1,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        epoch_api.OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[epoch_api.OffsetForLeaderTopic(topic="orders", partitions=[asked])]
        ),
    )
    end = answer.topics[0].partitions[0]
    assert (end.error_code, end.leader_epoch, end.end_offset) == (0, epoch, 1)
    data = await one.fetch(1, "orders", 1, current_leader_epoch=epoch, last_fetched_epoch=epoch)
    assert (data.error_code, data.diverging_epoch) == (0, None)


async def test_groups_load_on_a_leader_that_had_no_room_for_assigned_records(
    one: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load waited for that record for ever, and the group's consumers with it: none writes while groups load."""
    await one.create(CONSUMER_OFFSETS, (1,))
    node = one.nodes[1]
    partition = node.partition(CONSUMER_OFFSETS)
    log = ReplicatedTopicLog(CONSUMER_OFFSETS, node.manager, node.clock, codec=Codec.NONE, load_bytes=5 << 20)

    def append(offset: int) -> asyncio.Future[AppendOutcome]:
        now_ms = node.clock.now_ms()
        record = offset_record("billing", TopicPartition("orders", 0), CommittedOffset(offset, -1, "", now_ms))
        return log.append(0, partition.leader_epoch, [record], required_acks=-1, timeout_ms=1_000)

    assert (await append(7)).error == ErrorCode.NONE
    cramped = Cramped(node, monkeypatch, CONSUMER_OFFSETS)
    refused = append(8)
    await one.elect(CONSUMER_OFFSETS, 1, (1,))

    async def load() -> list[int]:
        return [batch.base_offset async for batch in log.read(0, partition.leader_epoch)]

    loading = asyncio.ensure_future(load())
    await asyncio.sleep(0)  # it has seen where the log ends
    await cramped.refuse()
    await cramped.relieve()
    await until(loading.done, "the groups are loaded")
    assert await loading == [0]
    assert (await refused).error != ErrorCode.NONE


async def test_a_record_that_replaces_one_without_room_is_not_counted_on_a_follower_with_the_old_one(
    three: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broker 2 was still writing what broker 3 had when it was elected, and took it back. Broker 3 died without having
    heard so: what it acknowledged was another record."""
    await three.produce(1, "orders", "a")
    follower = three.nodes[2].partition("orders").log
    await until(lambda: follower.state.log_end_offset == 1, "broker 2 follows")
    cramped = Cramped(three.nodes[2], monkeypatch)
    await three.produce(1, "orders", "b", acks=1)
    await until(lambda: follower.state.assigned_offset == 2, "the record has its offset")
    await until(lambda: three.nodes[3].partition("orders").log.state.log_end_offset == 2, "broker 3 has it")
    three.nodes[1].kill()
    await three.elect("orders", 2, (2, 3))
    leader = three.nodes[2].partition("orders")
    await until(lambda: leader.followers[3].log_end_offset == 2, "broker 3 asks for what follows")
    three.nodes[3].kill()
    await cramped.refuse()
    await cramped.relieve()
    answer = await three.produce(2, "orders", "c", timeout_ms=300)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert (leader.log.state.log_end_offset, leader.log.state.high_watermark) == (2, 1)


@pytest.mark.parametrize("moment", ["_assign_all", "_record_answers"])
async def test_a_replica_that_got_room_while_it_was_handed_over_is_reported_again(
    three: Fleet, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Room came while the other partitions of the request were carried out, and nobody told the controller."""
    await three.produce(1, "orders", "a")
    manager, log = three.nodes[2].manager, three.nodes[2].partition("orders").log
    await until(lambda: log.state.log_end_offset == 1, "broker 2 follows")
    reports: list[bool] = []
    manager._full._report = lambda: reports.append(log.state.is_full)
    cramped = Cramped(three.nodes[2], monkeypatch)
    await three.produce(1, "orders", "b", acks=1)
    await until(lambda: log.state.assigned_offset == 2, "the record has its offset")
    await cramped.refuse()
    work = getattr(manager._execution, moment)

    async def late(*arguments: Any) -> Any:
        result = await work(*arguments) if moment == "_assign_all" else None
        await cramped.relieve()
        return result if moment == "_assign_all" else await work(*arguments)

    monkeypatch.setattr(manager._execution, moment, late)
    topic = three.topics["orders"]
    state = topic.states[0]
    tp = TopicPartition("orders", 0)
    command = LeadershipCommand(
        tp, topic.topic_id, 1, state.leader_epoch + 1, state.partition_epoch + 1, 1, (1, 3), (1, 2, 3), False
    )
    assert await manager.apply_leadership(1, [command]) == {tp: ErrorCode.KAFKA_STORAGE_ERROR}
    assert reports == [False]
    assert await manager.apply_leadership(1, [command]) == {tp: ErrorCode.NONE}

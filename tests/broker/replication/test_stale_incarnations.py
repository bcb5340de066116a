"""What an earlier life leaves behind: logs of topics that are gone, proposals for a broker that has restarted since."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.controller.values import LeaderAndIsr
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import leader_and_isr as leader_and_isr_api
from ottla_broker.protocol.generated import stop_replica as stop_replica_api
from ottla_broker.protocol.generated import update_metadata as update_metadata_api
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.replica_states.commands import LeadershipCommand
from tests.broker.replication.fleet import INTERNAL, Fleet, Topic, until
from tests.broker.replication.test_replication import stop_request

OTHER_ID = bytes(15) + b"\x07"


class RecordingFleet(Fleet):
    """Keeps the broker epochs that AlterPartition named."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(directory, settings)
        self.epochs: list[dict[int, int]] = []
        self.asked = asyncio.Event()

    async def alter_partition(self, version: int, request: Any) -> Any:
        for topic in request.topics:
            for asked in topic.partitions:
                self.epochs.append({member.broker_id: member.broker_epoch for member in asked.new_isr_with_epochs})
        self.asked.set()
        return await super().alter_partition(version, request)


async def test_alter_partition_names_the_broker_epoch_that_had_caught_up(tmp_path: Path) -> None:
    """KIP-903: it restarts, without its tail, before the controller has answered; that life must not get in."""
    fleet = RecordingFleet(tmp_path)
    await fleet.start(1, 2)
    topic = fleet.topics["orders"] = Topic(bytes(15) + b"\x01", {0: LeaderAndIsr(1, 0, (1,), 1, 0)}, {0: (1, 2)})
    await fleet._leader_and_isr(fleet.nodes[1], "orders", True, 7)
    assert topic.states[0].isr == (1,)
    await fleet.produce(1, "orders", "a", "b", acks=1)
    leader = fleet.nodes[1].partition("orders")
    fleet.is_controller_answering = False
    leader.on_follower_fetch(2, 2, 0, 5)
    await fleet.asked.wait()
    leader.on_follower_fetch(2, 0, 0, 6)
    fleet.asked.clear()
    await fleet.asked.wait()
    fleet.stop()
    assert [epochs[2] for epochs in fleet.epochs] == [5] * len(fleet.epochs)


async def test_a_follower_that_lost_records_while_alter_partition_was_in_flight_leaves_the_isr(tmp_path: Path) -> None:
    """Its log directory failed and came back shorter, in the same life of the broker, while no controller answered."""
    fleet = RecordingFleet(tmp_path)
    await fleet.start(1, 2)
    topic = fleet.topics["orders"] = Topic(bytes(15) + b"\x01", {0: LeaderAndIsr(1, 0, (1,), 1, 0)}, {0: (1, 2)})
    await fleet._leader_and_isr(fleet.nodes[1], "orders", True, 7)
    assert (await fleet.produce(1, "orders", "a", "b", acks=-1)).error_code == ErrorCode.NONE
    leader = fleet.nodes[1].partition("orders")
    fleet.is_controller_answering = False
    leader.on_follower_fetch(2, 2, 0, 102)
    await fleet.asked.wait()
    leader.on_follower_fetch(2, 0, 0, 102)
    fleet.is_controller_answering = True
    async with asyncio.timeout(10):
        await until(lambda: len(fleet.isr_requests) >= 2, "the leader takes it out again")
    assert fleet.isr_requests == [(0, (1, 2)), (0, (1,))]
    assert topic.states[0].isr == (1,)
    fleet.stop()


async def test_an_isr_member_that_fetches_below_the_high_watermark_leaves_the_isr(tmp_path: Path) -> None:
    """It lost power, and no controller saw that: with its earlier position it would be elected, and cut the others."""
    fleet = Fleet(tmp_path)
    await fleet.start(1, 2)
    await fleet.create("orders", (1, 2))
    await fleet.produce(1, "orders", "a", "b")
    leader = fleet.nodes[1].partition("orders")
    await until(lambda: leader.log.state.high_watermark == 2, "both have it")
    fleet.nodes[2].kill()
    leader.on_follower_fetch(2, 1, 0, 102)
    async with asyncio.timeout(10):
        await until(lambda: leader.in_sync.committed == (1,), "the leader takes it out")
    assert fleet.topics["orders"].states[0].isr == (1,)
    fleet.stop()


@pytest.fixture
def stray_directory(tmp_path: Path) -> Any:
    return lambda: sorted(path.name for path in (tmp_path / "broker-1").iterdir() if path.is_dir())


async def _restarted_with_records(tmp_path: Path) -> Fleet:
    """One broker whose logs of "orders" are found on disk, and nobody has named them yet."""
    fleet = Fleet(tmp_path)
    await fleet.start(1)
    await fleet.create("orders", (1,), partitions=2)
    await fleet.produce(1, "orders", "old")
    fleet.nodes[1].kill()
    topics, fleet.topics = fleet.topics, {}
    await fleet.start(1)
    fleet.topics = topics
    return fleet


async def test_a_topic_that_is_created_again_never_gets_the_records_of_the_deleted_one(
    tmp_path: Path, stray_directory: Any
) -> None:
    fleet = await _restarted_with_records(tmp_path)
    fleet.topics["orders"].topic_id = OTHER_ID
    assert await fleet.command("orders", is_new=True) == {1: [0, 0]}
    assert await fleet.values(1, "orders") == []
    assert (await fleet.produce(1, "orders", "new")).error_code == 0
    assert await fleet.values(1, "orders") == ["new"]
    names = stray_directory()
    assert [name.endswith("-stray") for name in names] == [False, True, False, True], names
    fleet.stop()


async def test_a_full_leader_and_isr_makes_unnamed_logs_strays_which_stop_replica_deletes(
    tmp_path: Path, stray_directory: Any
) -> None:
    fleet = await _restarted_with_records(tmp_path)
    request = leader_and_isr_api.LeaderAndIsrRequest(controller_epoch=1, type=2)
    await fleet.ask(1, ApiKey.LEADER_AND_ISR, 7, request, INTERNAL)
    assert all(name.endswith("-stray") for name in stray_directory()) and len(stray_directory()) == 2
    await fleet.ask(1, ApiKey.STOP_REPLICA, 4, stop_request(4, -2, delete=True), INTERNAL)
    assert sorted(name.rpartition("-")[2] for name in stray_directory()) == ["delete", "stray"]
    fleet.stop()


@pytest.mark.parametrize("knew_its_log", [True, False])
async def test_a_full_leader_and_isr_ends_the_partitions_of_a_topic_that_has_another_id(
    one: Fleet, stray_directory: Any, knew_its_log: bool
) -> None:
    """It was cut off while the topic was deleted and made again. It has never ended: its replica is not just found."""
    manager = one.nodes[1].manager
    heard: list[tuple[int, int]] = []
    manager.add_leadership_listener(lambda leaders, others: heard.append((len(leaders), len(others))))
    await one.produce(1, "orders", "old")
    if not knew_its_log:
        one.nodes[1].partition("orders").log.state.topic_id = None  # of before there were topic ids
    loaded: list[str] = []

    async def load(topic: str) -> None:
        loaded.append(topic)

    orders = TopicPartition("orders", 0)
    command = LeadershipCommand(orders, OTHER_ID, 1, 0, 0, 1, (1,), (1,), False)
    assert await manager.apply_leadership(1, [command], load_topic=load) == {orders: ErrorCode.INCONSISTENT_TOPIC_ID}
    assert not loaded and not heard
    assert await manager.apply_leadership(1, [command], is_full=True, load_topic=load) == {orders: ErrorCode.NONE}
    assert loaded == ["orders"]
    assert heard == [(0, 1), (0, 1), (1, 0)], "the end of both partitions of the deleted topic comes first"
    assert (
        manager.topic_name(OTHER_ID) == "orders"
        and one.topics["orders"].topic_id not in manager._partitions.topic_names
    )
    assert manager.partition("orders", 1) is None
    one.topics["orders"].topic_id = OTHER_ID
    assert await one.values(1, "orders") == []
    assert (await one.produce(1, "orders", "new")).error_code == 0
    assert await one.values(1, "orders") == ["new"]
    endings = [name.rpartition("-")[2] for name in stray_directory()]
    assert sorted(endings) == ["0", "stray", "stray"], endings


async def test_a_full_leader_and_isr_deletes_nothing_that_a_later_request_created(one: Fleet) -> None:
    """The first copy of a request hangs on its topics' configuration; the controller has sent it again meanwhile."""
    node = one.nodes[1]
    services = node.dispatcher.services
    assert services is not None
    is_asked, is_reachable = asyncio.Event(), asyncio.Event()

    async def load(topic: str) -> None:
        if topic == "a":
            is_asked.set()
            await is_reachable.wait()

    services.dynamic_config.load_topic = load  # type: ignore[method-assign, assignment]

    def request(topic: str, *, is_full: bool) -> leader_and_isr_api.LeaderAndIsrRequest:
        state = leader_and_isr_api.LeaderAndIsrPartitionState(
            partition_index=0, leader=1, leader_epoch=0, isr=[1], replicas=[1], is_new=True
        )
        named = leader_and_isr_api.LeaderAndIsrTopicState(
            topic_name=topic, topic_id=topic.encode() * 16, partition_states=[state]
        )
        return leader_and_isr_api.LeaderAndIsrRequest(
            controller_epoch=1, type=2 if is_full else 1, topic_states=[named]
        )

    early = asyncio.ensure_future(one.ask(1, ApiKey.LEADER_AND_ISR, 7, request("a", is_full=True), INTERNAL))
    await is_asked.wait()
    late = asyncio.ensure_future(one.ask(1, ApiKey.LEADER_AND_ISR, 7, request("b", is_full=False), INTERNAL))
    await asyncio.wait([late], timeout=0.2)
    is_reachable.set()
    await asyncio.gather(early, late)
    assert node.manager.partition("b", 0) is not None


def _leader_and_isr(name: str, topic_id: bytes, type_: int) -> leader_and_isr_api.LeaderAndIsrRequest:
    state = leader_and_isr_api.LeaderAndIsrPartitionState(
        partition_index=0, leader=1, leader_epoch=0, isr=[1], replicas=[1], is_new=True
    )
    topic = leader_and_isr_api.LeaderAndIsrTopicState(topic_name=name, topic_id=topic_id, partition_states=[state])
    return leader_and_isr_api.LeaderAndIsrRequest(controller_epoch=1, type=type_, topic_states=[topic])


async def test_a_late_full_leader_and_isr_over_a_closed_connection_deletes_nothing(one: Fleet) -> None:
    """The network was cut for longer than the controller waits; what it sent before still comes, when it has gone on
    over another connection."""
    former, present = await one.client(1, INTERNAL), await one.client(1, INTERNAL)
    for request in (_leader_and_isr("a", b"a" * 16, 2), _leader_and_isr("b", b"b" * 16, 1)):
        await present.send(ApiKey.LEADER_AND_ISR, 7, request)
    one.topics["b"] = Topic(b"b" * 16)
    await one.produce(1, "b", "acknowledged")
    response = await former.send(ApiKey.LEADER_AND_ISR, 7, _leader_and_isr("a", b"a" * 16, 2))
    assert one.nodes[1].manager.partition("b", 0) is not None
    assert await one.values(1, "b") == ["acknowledged"]
    assert response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH


async def test_a_late_stop_replica_over_a_closed_connection_deletes_nothing(one: Fleet) -> None:
    former, present = await one.client(1, INTERNAL), await one.client(1, INTERNAL)
    await present.send(ApiKey.STOP_REPLICA, 4, stop_request(4, -2, delete=True))
    await present.send(ApiKey.LEADER_AND_ISR, 7, _leader_and_isr("orders", OTHER_ID, 1))
    one.topics["orders"] = Topic(OTHER_ID)
    await one.produce(1, "orders", "acknowledged")
    response = await former.send(ApiKey.STOP_REPLICA, 4, stop_request(4, -2, delete=True))
    assert one.nodes[1].manager.partition("orders", 0) is not None
    assert await one.values(1, "orders") == ["acknowledged"]
    assert response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH


async def test_a_late_update_metadata_over_a_closed_connection_is_refused(one: Fleet) -> None:
    former, present = await one.client(1, INTERNAL), await one.client(1, INTERNAL)
    await present.send(ApiKey.STOP_REPLICA, 4, stop_replica_api.StopReplicaRequest(controller_epoch=1))
    request = update_metadata_api.UpdateMetadataRequest(controller_id=0, controller_epoch=1)
    response = await former.send(ApiKey.UPDATE_METADATA, 8, request)
    assert response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert list(one.nodes[1].metadata.brokers) == [1]
    request.controller_epoch = 2  # the next one has only this connection
    assert (await former.send(ApiKey.UPDATE_METADATA, 8, request)).error_code == ErrorCode.NONE


async def test_a_broker_stops_while_a_command_waits_for_the_coordination_store(one: Fleet) -> None:
    manager = one.nodes[1].manager
    is_asked = asyncio.Event()

    async def load(topic: str) -> None:
        is_asked.set()
        await asyncio.Event().wait()

    command = LeadershipCommand(TopicPartition("a", 0), OTHER_ID, 1, 0, 0, 1, (1,), (1,), True)
    waiting = asyncio.ensure_future(manager.apply_leadership(1, [command], load_topic=load))
    await is_asked.wait()
    await manager.stop()
    assert await waiting == {command.topic_partition: ErrorCode.REPLICA_NOT_AVAILABLE}


async def test_a_stopping_broker_deletes_no_replica(one: Fleet) -> None:
    """Its logs are being closed; the controller asks again when it has come back."""
    await one.nodes[1].manager.stop()
    response = await one.ask(1, ApiKey.STOP_REPLICA, 4, stop_request(4, -2, delete=True), INTERNAL)
    assert [error.error_code for error in response.partition_errors] == [ErrorCode.REPLICA_NOT_AVAILABLE]


async def test_a_command_to_an_earlier_incarnation_is_refused_before_this_one_is_registered(one: Fleet) -> None:
    """The listeners are open before the registration; the controller repeats what the last life did not answer."""
    manager = one.nodes[1].manager
    epoch = -1
    manager.fence._broker_epoch = lambda: epoch
    state = leader_and_isr_api.LeaderAndIsrPartitionState(
        partition_index=0, leader=1, leader_epoch=3, isr=[1], replicas=[1]
    )
    topic = leader_and_isr_api.LeaderAndIsrTopicState(
        topic_name="orders", topic_id=one.topics["orders"].topic_id, partition_states=[state]
    )
    request = leader_and_isr_api.LeaderAndIsrRequest(controller_epoch=1, broker_epoch=50, topic_states=[topic])
    asking = asyncio.ensure_future(one.ask(1, ApiKey.LEADER_AND_ISR, 7, request, INTERNAL))
    await asyncio.wait([asking], timeout=0.1)
    epoch = 60
    assert (await asking).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert one.nodes[1].partition("orders").leader_epoch == 0


async def test_update_metadata_of_a_former_controller_is_refused_once_another_sent_a_command(one: Fleet) -> None:
    await one.ask(1, ApiKey.STOP_REPLICA, 4, stop_replica_api.StopReplicaRequest(controller_epoch=2), INTERNAL)
    request = update_metadata_api.UpdateMetadataRequest(controller_id=9, controller_epoch=1)
    response = await one.ask(1, ApiKey.UPDATE_METADATA, 8, request, INTERNAL)
    assert response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert list(one.nodes[1].metadata.brokers) == [1]


async def test_a_refused_follower_that_stops_fetching_does_not_hold_the_high_watermark_back(tmp_path: Path) -> None:
    """It counted as about to join when it died. Nobody fetches after that, so only time can let the request go."""
    fleet = Fleet(tmp_path, {"replica.lag.time.max.ms": "400"})
    await fleet.start(1, 2)
    fleet.topics["orders"] = Topic(bytes(15) + b"\x01", {0: LeaderAndIsr(1, 0, (1,), 1, 0)}, {0: (1, 2)})
    await fleet._leader_and_isr(fleet.nodes[1], "orders", True, 7)
    fleet.nodes[2].kill()
    leader = fleet.nodes[1].partition("orders")
    leader.on_follower_fetch(2, 0, 0, -1)
    assert leader.in_sync.is_in_flight and 2 in leader.in_sync.maximal
    assert (await fleet.produce(1, "orders", "a")).error_code == ErrorCode.NONE
    assert 2 not in leader.in_sync.maximal
    fleet.stop()

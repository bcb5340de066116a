"""Three brokers over real sockets: acknowledgements, the ISR, leader changes and what a returned replica cuts off."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import fetch as fetch_api
from ottla_broker.protocol.generated import leader_and_isr as leader_and_isr_api
from ottla_broker.protocol.generated import stop_replica as stop_replica_api
from ottla_broker.records import legacy
from ottla_broker.records.formats import MAGIC_OFFSET
from ottla_broker.records.ids import TopicPartition
from ottla_broker.records.record import Record
from ottla_broker.replication.replica_states.commands import LeadershipCommand, StopCommand
from ottla_broker.server.peers.broker_client import BrokerClient
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs.replica_registry import RecreatedReplica
from tests.broker.replication.fleet import INTERNAL, Fleet, Node, batch, fetch_request, produce_request, until
from tests.broker.storage.logs import read_bytes


def ends(fleet: Fleet, topic: str = "orders") -> list[int]:
    return [node.partition(topic).log.state.log_end_offset for node in fleet.live]


def high_watermarks(fleet: Fleet, topic: str = "orders") -> list[int]:
    return [node.partition(topic).log.state.high_watermark for node in fleet.live]


async def test_an_acknowledged_record_is_on_every_in_sync_replica(three: Fleet) -> None:
    for number in range(20):
        answer = await three.produce(1, "orders", str(number))
        assert (answer.error_code, answer.base_offset) == (0, number)
        assert ends(three) == [number + 1] * 3
    await until(lambda: high_watermarks(three) == [20] * 3, "followers learn the high watermark")
    assert await three.values(1, "orders") == [str(number) for number in range(20)]


async def test_consumers_see_nothing_that_is_not_on_every_in_sync_replica(three: Fleet) -> None:
    three.nodes[2].kill()
    answer = await three.produce(1, "orders", "a", acks=1)
    assert answer.error_code == 0
    assert await three.values(1, "orders") == []


async def test_a_follower_refuses_produce_and_old_fetches_and_names_the_leader(three: Fleet) -> None:
    await three.produce(1, "orders", "a")
    part = await three.produce(2, "orders", "b")
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (1, 0)
    response = await three.ask(2, ApiKey.PRODUCE, 11, produce_request("orders", batch("b")))
    assert [(node.node_id, node.rack) for node in response.node_endpoints] == [(1, "rack-1")]
    assert (await three.fetch(2, "orders", version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    # From version 11 on a consumer may read from a follower, up to the follower's own high watermark (KIP-392).
    await until(lambda: high_watermarks(three)[1] == 1, "the follower learns the high watermark")
    assert await three.values(2, "orders") == ["a"]


async def test_a_dead_follower_leaves_the_isr_and_the_waiting_request_is_acknowledged(hasty: Fleet) -> None:
    hasty.nodes[3].kill()
    answer = await hasty.produce(1, "orders", "a")
    assert answer.error_code == 0
    assert hasty.topics["orders"].states[0].isr == (1, 2)
    assert hasty.nodes[1].partition("orders").in_sync.committed == (1, 2)


async def test_a_shrink_that_the_controller_has_not_confirmed_lets_nothing_go(hasty: Fleet) -> None:
    hasty.is_controller_answering = False
    hasty.nodes[3].kill()
    partition = hasty.nodes[1].partition("orders")
    answer = await hasty.produce(1, "orders", "a", timeout_ms=1_700)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    await until(lambda: partition.in_sync.is_in_flight, "the shrink is asked for")
    assert partition.log.state.high_watermark == 0
    hasty.is_controller_answering = True
    await until(lambda: partition.log.state.high_watermark == 1, "the shrink is confirmed")


@pytest.mark.parametrize("failure", [ConnectionError("the controller is away"), ValueError("nobody thought of this")])
async def test_a_controller_that_does_not_answer_is_asked_again_and_logged_once(
    hasty: Fleet, caplog: pytest.LogCaptureFixture, failure: Exception
) -> None:
    caplog.set_level("INFO")
    hasty.is_controller_answering, hasty.controller_failure = False, failure
    hasty.nodes[3].kill()
    await hasty.produce(1, "orders", "a", acks=1)
    await until(lambda: hasty.unanswered >= 5, "it is asked for the fifth time")
    hasty.is_controller_answering = True
    partition = hasty.nodes[1].partition("orders")
    await until(lambda: partition.in_sync.committed == (1, 2), "the shrink is confirmed")
    assert caplog.text.count("AlterPartition is tried again until it is answered") == 1


async def test_below_min_insync_replicas_acks_all_is_refused_and_the_high_watermark_stands(hasty: Fleet) -> None:
    await hasty.produce(1, "orders", "a")
    for broker_id in (2, 3):
        hasty.nodes[broker_id].kill()
    partition = hasty.nodes[1].partition("orders")
    # As long as nothing is written the dead followers have all there is; taking them out is the controller's matter.
    accepted = await hasty.produce(1, "orders", "b", acks=1)
    assert (accepted.error_code, accepted.base_offset) == (0, 1)
    await until(lambda: partition.in_sync.committed == (1,), "the ISR shrinks to the leader")
    refused = await hasty.produce(1, "orders", "c")
    assert (refused.error_code, refused.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    assert "min.isr requirement of 2" in refused.error_message
    assert partition.log.state.high_watermark == 1
    assert await hasty.values(1, "orders") == ["a"]


async def test_a_returned_follower_catches_up_and_joins_the_isr_again(hasty: Fleet) -> None:
    await hasty.produce(1, "orders", "a")
    hasty.nodes[3].kill()
    await hasty.produce(1, "orders", "b")
    await hasty.start(3)
    await hasty.command("orders", to=[3])
    await until(lambda: hasty.topics["orders"].states[0].isr == (1, 2, 3), "broker 3 joins the ISR")
    assert (await hasty.produce(1, "orders", "c")).error_code == 0
    assert ends(hasty) == [3, 3, 3]


async def test_after_a_leader_change_nothing_acknowledged_is_lost_and_the_old_tail_is_cut(three: Fleet) -> None:
    await three.produce(1, "orders", "a")
    # Broker 1 writes two records that nobody else gets, then dies.
    for broker_id in (2, 3):
        follower = three.nodes[broker_id]
        await follower.manager._fetchers.remove([TopicPartition("orders", 0)])
    await three.produce(1, "orders", "lost", acks=1)
    await three.produce(1, "orders", "lost too", acks=1)
    assert ends(three) == [3, 1, 1]
    await three.elect("orders", 2, (2, 3))
    assert (await three.produce(2, "orders", "b")).error_code == 0
    await until(lambda: ends(three) == [2, 2, 2], "broker 1 has cut its tail and follows")
    await until(lambda: 1 in three.topics["orders"].states[0].isr, "broker 1 joins the ISR")
    await three.elect("orders", 1, (1, 2, 3))
    assert await three.values(1, "orders") == ["a", "b"]


async def test_a_leader_that_wrote_nothing_leaves_no_trace_in_its_successors(three: Fleet) -> None:
    await three.produce(1, "orders", "a")
    await three.elect("orders", 2, (1, 2, 3))  # epoch 1 begins and ends at offset 1 on broker 2
    await three.elect("orders", 3, (1, 2, 3))
    assert (await three.produce(3, "orders", "b")).error_code == 0
    assert ends(three) == [2, 2, 2]
    await until(lambda: three.topics["orders"].states[0].isr == (1, 2, 3), "all are in sync")


async def test_acknowledged_records_survive_leader_changes_under_load(three: Fleet) -> None:
    acknowledged: list[str] = []
    is_over = False

    async def produce() -> None:
        number = 0
        while True:
            leader = three.topics["orders"].states[0].leader
            answer = await three.produce(leader, "orders", str(number))
            if answer.error_code == 0:
                acknowledged.append(str(number))
                number += 1
                if is_over:  # not before: one that was refused may be in the log all the same
                    return

    load = asyncio.ensure_future(produce())
    for leader in (2, 3, 1, 2):
        target = len(acknowledged) + 10
        await until(lambda target=target: len(acknowledged) >= target, "records are acknowledged")
        await until(lambda: len(three.topics["orders"].states[0].isr) == 3, "all are in sync")
        await three.elect("orders", leader, (1, 2, 3))
    is_over = True
    await load
    found = await three.values(2, "orders")
    # A request that failed at a leader change may be in the log all the same, so a number may stand there twice.
    assert sorted(set(found), key=int) == acknowledged
    await until(lambda: len(set(ends(three))) == 1, "all logs are equally long")


async def test_killed_leaders_lose_nothing_acknowledged_and_rejoin_under_load(three: Fleet) -> None:
    acknowledged: list[str] = []
    is_over = False

    async def produce() -> None:
        number = 0
        while not is_over:
            leader = three.topics["orders"].states[0].leader
            try:
                answer = await three.produce(leader, "orders", str(number))
            except OSError:  # killed with our request under way, which may have been written or not
                continue
            if answer.error_code == 0:
                acknowledged.append(str(number))
                number += 1

    load = asyncio.ensure_future(produce())
    for dead, heir in ((1, 2), (2, 3), (3, 1)):
        target = len(acknowledged) + 20
        await until(lambda target=target: len(acknowledged) >= target, "records are acknowledged")
        three.nodes[dead].kill()
        await three.elect("orders", heir, tuple(broker for broker in (1, 2, 3) if broker != dead))
        target = len(acknowledged) + 20
        await until(lambda target=target: len(acknowledged) >= target, "the heir acknowledges")
        await three.start(dead)
        await three.command("orders", to=[dead])
        await until(lambda: len(three.topics["orders"].states[0].isr) == 3, "the dead one has returned")
    is_over = True
    await load
    found = await three.values(1, "orders")
    # A record may stand there twice, or once without having been acknowledged; none that was is missing.
    assert sorted(set(found) & set(acknowledged), key=int) == acknowledged
    await until(lambda: len({*ends(three), *high_watermarks(three)}) == 1, "all logs are equally long")
    assert len({bytes((await three.fetch(broker_id, "orders")).records) for broker_id in (1, 2, 3)}) == 1


async def test_a_broker_that_stops_gives_waiting_requests_back_and_leads_no_more(three: Fleet) -> None:
    for broker_id in (2, 3):
        three.nodes[broker_id].kill()
    waiting = asyncio.ensure_future(three.produce(1, "orders", "a", timeout_ms=60_000))
    partition = three.nodes[1].partition("orders")
    await until(lambda: len(partition.acks_all), "the request waits")
    await three.nodes[1].manager.stop()
    assert (await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await three.produce(1, "orders", "b", acks=1)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_follower_below_the_leaders_log_start_begins_again_there(hasty: Fleet) -> None:
    await hasty.produce(1, "orders", "a")
    hasty.nodes[3].kill()
    for value in "bcd":
        await hasty.produce(1, "orders", value)
    leader = hasty.nodes[1].partition("orders").log
    await until(lambda: leader.state.high_watermark == 4, "all is acknowledged")
    await leader.truncation.truncate_fully_and_start_at(4)  # as retention leaves it
    await hasty.start(3)
    await hasty.elect("orders", 1, (1, 2))
    await until(lambda: hasty.nodes[3].partition("orders").log.state.log_start_offset == 4, "broker 3 begins at 4")
    await until(lambda: 3 in hasty.topics["orders"].states[0].isr, "broker 3 joins the ISR")


@pytest.mark.parametrize("magic", [0, 1])
async def test_a_new_replica_takes_a_log_that_begins_with_an_old_message_format(tmp_path: Path, magic: int) -> None:
    fleet = Fleet(tmp_path)
    await fleet.start(1)
    try:
        await fleet.create("orders", (1, 2), isr=(1,))
        log = fleet.nodes[1].partition("orders").log
        old = [Record(offset, 1000 + offset, b"key", b"%d" % offset) for offset in range(3)]
        log.append_as_follower(memoryview(legacy.build_message_set(old, magic)))
        await fleet.produce(1, "orders", "new")
        await fleet.start(2)
        await fleet.elect("orders", 1, (1,))
        await until(lambda: fleet.topics["orders"].states[0].isr == (1, 2), "the new replica is in sync")
        assert await read_bytes(fleet.nodes[2].partition("orders").log, 0) == await read_bytes(log, 0)
    finally:
        fleet.stop()


async def test_a_leaders_damaged_first_batch_keeps_no_other_partition_from_a_replica_that_begins_again(
    tmp_path: Path,
) -> None:
    fleet = Fleet(tmp_path)
    await fleet.start(1)
    try:
        for topic in ("damaged", "orders"):
            await fleet.create(topic, (1, 2), isr=(1,))
            await fleet.produce(1, topic, "a")
        with (tmp_path / "broker-1" / "damaged-0" / f"{0:020d}.log").open("r+b") as file:
            file.seek(MAGIC_OFFSET)
            file.write(b"\x63")
        await fleet.start(2)
        for topic in ("damaged", "orders"):
            await fleet.elect(topic, 1, (1,))
        await until(lambda: fleet.topics["orders"].states[0].isr == (1, 2), "the sound partition is in sync")
        assert fleet.nodes[2].partition("damaged").log.state.log_end_offset == 0
    finally:
        fleet.stop()


async def test_a_leader_that_hangs_while_it_is_asked_for_its_offsets_holds_up_no_other_leadership(
    hasty: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_asked = asyncio.Event()
    send = BrokerClient.send

    def swallow(client: BrokerClient, api_key: int, version: int, request: Any, **keywords: Any) -> asyncio.Future[Any]:
        if api_key != ApiKey.LIST_OFFSETS:
            return send(client, api_key, version, request, **keywords)
        is_asked.set()
        return asyncio.get_running_loop().create_future()

    hasty.nodes[3].kill()
    await hasty.produce(1, "orders", "a")
    leader = hasty.nodes[1].partition("orders").log
    await leader.truncation.truncate_fully_and_start_at(1)
    await hasty.produce(1, "orders", "b")
    await until(lambda: hasty.nodes[2].partition("orders").log.state.log_end_offset == 2, "broker 2 has all")
    monkeypatch.setattr(BrokerClient, "send", swallow)
    await hasty.start(3)
    await hasty.elect("orders", 1, (1, 2))
    await asyncio.wait_for(is_asked.wait(), 60)
    monkeypatch.undo()
    await asyncio.wait_for(hasty.elect("orders", 2, (2,)), 60)
    await until(lambda: hasty.nodes[3].partition("orders").log.state.log_end_offset == 2, "broker 3 follows broker 2")


async def test_high_watermarks_survive_a_restart_through_their_checkpoint(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, {"replica.high.watermark.checkpoint.interval.ms": "20"})
    await fleet.start(1)
    await fleet.create("orders", (1,))
    await fleet.produce(1, "orders", "a", "b")
    checkpoint = tmp_path / "broker-1" / "replication-offset-checkpoint"
    await until(lambda: checkpoint.exists() and "orders 0 2" in checkpoint.read_text(), "the checkpoint is written")
    fleet.nodes[1].kill()
    await fleet.start(1)
    log = fleet.nodes[1].log_manager.get(TopicPartition("orders", 0))
    assert log is not None and (log.state.high_watermark, log.state.log_end_offset) == (2, 2)
    fleet.stop()


# Fetches as a replica


async def replica_fetch(
    fleet: Fleet, replica_id: int, offset: int, topic: str = "orders", *, last_epoch: int = -1, epoch: int = 0
) -> object:
    request = fetch_request(
        fleet.topics[topic].topic_id,
        topic,
        offset,
        current_leader_epoch=epoch,
        last_fetched_epoch=last_epoch,
    )
    request.replica_state = fetch_api.ReplicaState(replica_id=replica_id, replica_epoch=1)
    response = await fleet.ask(1, ApiKey.FETCH, 17, request, INTERNAL)
    return response.responses[0].partitions[0]


async def test_a_follower_of_an_unknown_epoch_is_told_where_the_logs_part(one: Fleet) -> None:
    await one.create("flights", (1, 2), isr=(1,))
    await one.produce(1, "flights", "a", "b")
    await one.elect("flights", 1, (1,))  # nothing is written in epoch 1
    await one.elect("flights", 1, (1,))
    await one.produce(1, "flights", "c")
    diverging = await replica_fetch(one, 2, 5, "flights", last_epoch=1, epoch=2)
    assert diverging.error_code == 0 and bytes(diverging.records) == b""  # type: ignore[attr-defined]
    end = diverging.diverging_epoch  # type: ignore[attr-defined]
    assert (end.epoch, end.end_offset) == (0, 2)
    agreed = await replica_fetch(one, 2, 2, "flights", last_epoch=0, epoch=2)
    assert agreed.diverging_epoch is None and agreed.records  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("epoch", "code"), [(0, ErrorCode.FENCED_LEADER_EPOCH), (9, ErrorCode.UNKNOWN_LEADER_EPOCH)], ids=["past", "future"]
)
async def test_a_fetch_of_another_epoch_tells_the_leader_nothing_of_its_follower(
    one: Fleet, epoch: int, code: ErrorCode
) -> None:
    await one.create("flights", (1, 2), isr=(1,))
    await one.elect("flights", 1, (1,))
    await one.produce(1, "flights", "a", "b")
    partition = one.nodes[1].partition("flights")
    follower = partition.followers[2]
    assert (await replica_fetch(one, 2, 0, "flights", epoch=1)).error_code == 0  # type: ignore[attr-defined]
    assert (follower.log_end_offset, partition.in_sync.committed) == (0, (1,))
    fenced = await replica_fetch(one, 2, 2, "flights", epoch=epoch)
    assert fenced.error_code == code and not fenced.records  # type: ignore[attr-defined]
    assert (follower.log_end_offset, partition.in_sync.committed) == (0, (1,)) and not partition.in_sync.is_in_flight
    assert (await replica_fetch(one, 2, 2, "flights", epoch=1)).error_code == 0  # type: ignore[attr-defined]
    assert follower.log_end_offset == 2


async def test_a_broker_that_is_no_replica_cannot_fetch_as_one(one: Fleet) -> None:
    data = await replica_fetch(one, 9, 0)
    assert data.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH  # type: ignore[attr-defined]


# The controller's commands


async def leader_and_isr(fleet: Fleet, version: int, **changes: int) -> leader_and_isr_api.LeaderAndIsrResponse:
    topic = fleet.topics["orders"]
    state = leader_and_isr_api.LeaderAndIsrPartitionState(
        topic_name="orders",
        partition_index=0,
        leader=1,
        leader_epoch=changes.get("leader_epoch", 1),
        isr=[1],
        replicas=[changes.get("replica", 1)],
    )
    request = leader_and_isr_api.LeaderAndIsrRequest(
        controller_epoch=changes.get("controller_epoch", 1),
        broker_epoch=changes.get("broker_epoch", -1),
        ungrouped_partition_states=[state],
        topic_states=[
            leader_and_isr_api.LeaderAndIsrTopicState(
                topic_name="orders",
                topic_id=bytes(15) + bytes([changes["topic_id"]]) if "topic_id" in changes else topic.topic_id,
                partition_states=[state],
            )
        ],
    )
    if version < 2:
        request.topic_states = []
    else:
        request.ungrouped_partition_states = []
    response = await fleet.ask(1, ApiKey.LEADER_AND_ISR, version, request, INTERNAL)
    assert isinstance(response, leader_and_isr_api.LeaderAndIsrResponse)
    return response


@pytest.mark.parametrize("version", range(8))
async def test_leader_and_isr_in_every_version(one: Fleet, version: int) -> None:
    response = await leader_and_isr(one, version)
    errors = response.topics[0].partition_errors if version >= 5 else response.partition_errors
    assert (response.error_code, [error.error_code for error in errors]) == (0, [0])
    assert one.nodes[1].partition("orders").leader_epoch == 1


@pytest.mark.parametrize(
    ("changes", "whole", "part"),
    [
        ({"broker_epoch": 1}, ErrorCode.STALE_BROKER_EPOCH, None),
        ({"broker_epoch": 1000}, ErrorCode.NONE, ErrorCode.NONE),
        ({"controller_epoch": 0}, ErrorCode.STALE_CONTROLLER_EPOCH, None),
        ({"leader_epoch": 0}, ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH),
        ({"topic_id": 9}, ErrorCode.NONE, ErrorCode.INCONSISTENT_TOPIC_ID),
        ({"replica": 8}, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_leader_and_isr_is_fenced(
    one: Fleet, changes: dict[str, int], whole: ErrorCode, part: ErrorCode | None
) -> None:
    response = await leader_and_isr(one, 7, **changes)
    assert response.error_code == whole
    if part is not None:
        assert response.topics[0].partition_errors[0].error_code == part
    assert one.nodes[1].partition("orders").leader_epoch == (1 if part is ErrorCode.NONE else 0)


async def test_a_full_leader_and_isr_deletes_what_it_does_not_name(one: Fleet, tmp_path: Path) -> None:
    known = one.topics["orders"]
    state = leader_and_isr_api.LeaderAndIsrPartitionState(
        partition_index=0, leader=1, leader_epoch=1, isr=[1], replicas=[1]
    )
    topic = leader_and_isr_api.LeaderAndIsrTopicState(
        topic_name="orders", topic_id=known.topic_id, partition_states=[state]
    )
    request = leader_and_isr_api.LeaderAndIsrRequest(controller_epoch=1, type=2, topic_states=[topic])
    await one.ask(1, ApiKey.LEADER_AND_ISR, 7, request, INTERNAL)
    assert one.nodes[1].manager.partition("orders", 0) is not None
    assert one.nodes[1].manager.partition("orders", 1) is None
    assert not (tmp_path / "broker-1" / "orders-1").exists()


def stop_request(version: int, epoch: int, *, delete: bool) -> stop_replica_api.StopReplicaRequest:
    request = stop_replica_api.StopReplicaRequest(controller_epoch=1)
    if version >= 3:
        request.topic_states = [
            stop_replica_api.StopReplicaTopicState(
                topic_name="orders",
                partition_states=[
                    stop_replica_api.StopReplicaPartitionState(
                        partition_index=0, leader_epoch=epoch, delete_partition=delete
                    )
                ],
            )
        ]
    else:
        request.delete_partitions = delete
        if version == 0:
            request.ungrouped_partitions = [
                stop_replica_api.StopReplicaPartitionV0(topic_name="orders", partition_index=0)
            ]
        else:
            request.topics = [stop_replica_api.StopReplicaTopicV1(name="orders", partition_indexes=[0])]
    return request


@pytest.mark.parametrize("version", range(5))
async def test_stop_replica_deletes_in_every_version(one: Fleet, tmp_path: Path, version: int) -> None:
    response = await one.ask(1, ApiKey.STOP_REPLICA, version, stop_request(version, -2, delete=True), INTERNAL)
    assert [error.error_code for error in response.partition_errors] == [0]
    assert one.nodes[1].manager.partition("orders", 0) is None
    assert not (tmp_path / "broker-1" / "orders-0").exists()
    # Asked again, and for a log that is not there, the answer is the same: the controller may repeat itself.
    response = await one.ask(1, ApiKey.STOP_REPLICA, version, stop_request(version, -2, delete=True), INTERNAL)
    assert [error.error_code for error in response.partition_errors] == [0]


async def test_an_older_stop_replica_is_fenced(one: Fleet) -> None:
    await one.elect("orders", 1, (1,))
    response = await one.ask(1, ApiKey.STOP_REPLICA, 4, stop_request(4, 0, delete=True), INTERNAL)
    assert [error.error_code for error in response.partition_errors] == [ErrorCode.FENCED_LEADER_EPOCH]
    assert one.nodes[1].manager.partition("orders", 0) is not None


async def test_a_log_that_fails_in_an_unforeseen_way_costs_no_other_partition_of_the_request(
    three: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_manager = three.nodes[3].log_manager
    get_or_create = log_manager.get_or_create

    async def fail_one(tp: TopicPartition, *arguments: Any, **keywords: Any) -> Log:
        if tp.partition == 1:
            raise ValueError("nobody has thought of this")
        return await get_or_create(tp, *arguments, **keywords)

    monkeypatch.setattr(log_manager, "get_or_create", fail_one)
    await three.create("payments", (1, 2, 3), partitions=3)
    codes = (await three.command("payments"))[3]
    assert codes == [ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.STALE_CONTROLLER_EPOCH]
    assert (await three.produce(1, "payments", "a", index=2)).error_code == ErrorCode.NONE
    monkeypatch.undo()
    for _ in range(2):  # the first answer may be lost with its connection
        assert (await three.command("payments"))[3][1] == ErrorCode.NONE
    assert (await three.produce(1, "payments", "a", index=1)).error_code == ErrorCode.NONE
    assert three.nodes[3].partition("payments", 1).log.state.log_end_offset == 1
    await three.elect("payments", 1, (1, 2, 3), index=1)
    assert (await three.command("payments"))[3][1] == ErrorCode.STALE_CONTROLLER_EPOCH


async def test_a_stopped_follower_follows_no_more(hasty: Fleet) -> None:
    await hasty.ask(3, ApiKey.STOP_REPLICA, 4, stop_request(4, 0, delete=False), INTERNAL)
    await hasty.produce(1, "orders", "a")
    assert ends(hasty) == [1, 1, 0]
    assert hasty.topics["orders"].states[0].isr == (1, 2)


async def test_a_stopped_follower_follows_again_when_the_controller_repeats_itself(three: Fleet) -> None:
    """It was stopped because its directory was offline, was back before the command came, and is told so next."""
    await three.ask(3, ApiKey.STOP_REPLICA, 4, stop_request(4, 0, delete=False), INTERNAL)
    assert three.nodes[3].partition("orders").replica.is_idle
    assert (await three.command("orders"))[3] == [ErrorCode.NONE]
    await three.produce(1, "orders", "a")
    assert ends(three) == [1, 1, 1]
    assert (await three.command("orders"))[3] == [ErrorCode.STALE_CONTROLLER_EPOCH]


async def test_listeners_are_notified_of_leadership_changes(three: Fleet) -> None:
    heard: list[tuple[list[int], list[int]]] = []
    node: Node = three.nodes[2]
    node.manager.add_leadership_listener(
        lambda leaders, others: heard.append(([p.index for p in leaders], [p.index for p in others]))
    )
    await three.elect("orders", 2, (1, 2, 3))
    await three.elect("orders", 3, (1, 2, 3))
    assert heard == [([0], []), ([], [0])]


async def test_of_a_replica_that_is_deleted_nothing_is_remembered(three: Fleet) -> None:
    """Else it would be looked for, and recreated, when the next log directory fails."""
    manager = three.nodes[1].manager
    three.nodes[1].partition("orders").log.state.mark_full()
    await three.elect("orders", 1, (1, 2, 3))
    orders = TopicPartition("orders", 0)
    assert list(manager.replicas.reported_offline) == [orders]
    await manager.stop_replicas(three.controller_epoch, [StopCommand(orders, 1, True)])
    assert not manager.replicas.reported_offline


async def test_a_replica_that_is_recreated_while_a_command_waits_does_not_lead_with_an_empty_log(three: Fleet) -> None:
    """The command waits for another follower to stop; meanwhile its own replica's place is taken by an empty one."""
    node = three.nodes[2]
    orders = TopicPartition("orders", 0)
    follower = node.manager._fetchers._followers[orders]
    is_stopped = asyncio.Event()
    follower._task = node.clock.spawn(is_stopped.wait(), name="what the follower is at")
    command = LeadershipCommand(orders, three.topics["orders"].topic_id, 2, 1, 1, 1, (2,), (1, 2, 3), False)
    asked = node.clock.spawn(node.manager.apply_leadership(1, [command]), name="LeaderAndIsr")
    await until(lambda: follower._is_stopped, "the command waits")
    home = node.partition("orders").log.state.disk.path
    node.log_manager.registry.record(orders, RecreatedReplica(home, True, ("/gone",)))
    is_stopped.set()
    assert await asked == {orders: ErrorCode.KAFKA_STORAGE_ERROR}
    assert not node.partition("orders").is_leader

"""The controller over a coordination store: what the store holds and what the brokers get."""

import asyncio
import dataclasses
from typing import Never

import pytest

from ottla_broker.config import Endpoint
from ottla_broker.controller.acts.isr_writes import TopicIsrChanges
from ottla_broker.controller.decisions import topic_plans
from ottla_broker.controller.decisions.isr_changes import IsrChange
from ottla_broker.controller.decisions.topic_plans import NewTopic, TopicGrowth
from ottla_broker.coordination import znodes
from ottla_broker.exposition import Exposition
from ottla_broker.ports.coordination import ConnectionLoss, CoordinationError, Delete
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from tests.broker.controller.fleet import LISTENER, WAIT_MS, Fleet, create, fleet_of


async def test_the_first_controller_becomes_active_and_sends_the_brokers_their_endpoints(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    assert controller.is_active and controller.controller_id == 0 and controller.epoch == 1
    assert (await fleet.tool.get("/controller_epoch"))[0] == b"1"
    node = znodes.ControllerZnode.decode((await fleet.tool.get("/controller"))[0])
    assert node.broker_id == 0
    for broker in range(3):
        first = channels.sent[[sent[0] for sent in channels.sent].index(broker)]
        assert first[1] is ApiKey.UPDATE_METADATA
        assert [entry.id for entry in first[2].live_brokers] == [0, 1, 2]
        assert {endpoint.listener for endpoint in first[2].live_brokers[broker].endpoints} == {LISTENER, "CLIENT"}


async def test_a_dead_leader_is_replaced_from_the_isr_and_leaves_it(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2, 0)})
    channels.forget()
    await fleet.kill(1)
    await channels.until(lambda: channels.metadata(0, "t") and channels.metadata(2, "t"))
    state, stat = await fleet.state("t")
    assert (state.leader, state.leader_epoch, state.isr) == (2, 1, (2, 0)) and stat.version == 1
    for broker in (0, 2):
        assert channels.leadership(broker, "t").leader == 2
        assert channels.metadata(broker, "t").offline_replicas == [1]
        (metadata,) = channels.requests(broker, ApiKey.UPDATE_METADATA)
        assert [entry.id for entry in metadata.live_brokers] == [0, 2]
    assert 1 not in channels.open_brokers


async def test_the_last_of_the_isr_is_kept_without_leader_until_it_returns(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    await fleet.kill(1)
    await channels.until(lambda: channels.metadata(2, "t").leader == 2)
    await fleet.kill(2)
    await channels.until(lambda: channels.metadata(0, "t").leader == -1)
    state, _ = await fleet.state("t")
    assert (state.leader, state.isr, state.leader_epoch) == (-1, (2,), 2)
    assert controller.offline_partitions() == 1
    await fleet.register(1)
    await channels.until(lambda: 1 in channels.open_brokers and channels.metadata(1, "t"))
    assert (await fleet.state("t"))[0].leader == -1
    channels.forget()
    await fleet.register(2)
    await channels.until(lambda: channels.metadata(0, "t") and channels.metadata(0, "t").leader == 2)
    state, _ = await fleet.state("t")
    assert (state.leader, state.isr, state.leader_epoch) == (2, (2,), 3)
    assert controller.offline_partitions() == 0


async def test_unclean_election_only_where_the_topic_allows_it(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await create(controller, "clean", {0: (1, 2)})
    await create(controller, "dirty", {0: (1, 2)}, configs={"unclean.leader.election.enable": "true"})
    await fleet.kill(1)
    await channels.until(lambda: channels.metadata(0, "dirty").leader == 2)
    await fleet.kill(2)
    await channels.until(lambda: channels.metadata(0, "dirty").leader == -1)
    await fleet.register(1)
    await channels.until(lambda: channels.metadata(0, "dirty").leader == 1)
    exposed = Exposition(fleet.brokers[0].metrics).text().decode()
    assert "kafka_controller_controllerstats_uncleanleaderelections_total 1.0" in exposed
    assert "kafka_controller_kafkacontroller_offlinepartitionscount 1.0" in exposed
    assert "kafka_controller_kafkacontroller_activecontrollercount 1.0" in exposed
    dirty, _ = await fleet.state("dirty")
    assert (dirty.leader, dirty.isr, dirty.leader_recovery_state) == (1, (1,), 1)
    assert (await fleet.state("clean"))[0].leader == -1


@pytest.mark.parametrize(
    ("protocol", "versions", "recovering"),
    [("2.8", (5, 7, 3), 0), ("3.2", (6, 7, 3), 1), ("3.4-IV0", (7, 8, 4), 1), ("3.9", (7, 8, 4), 1)],
)
async def test_brokers_are_told_in_the_versions_of_inter_broker_protocol_version(
    tmp_path, protocol, versions, recovering
) -> None:
    async with Fleet(tmp_path, inter_broker_protocol_version=protocol) as fleet:
        controller, channels = await fleet_of(fleet)
        await create(controller, "t", {0: (1, 2)}, configs={"unclean.leader.election.enable": "true"})
        await create(controller, "gone", {0: (1, 2)})
        await controller.delete_topics(["gone"], timeout_ms=60_000)
        for broker, leader in ((1, 2), (2, -1)):  # found dead together, either would lead again, and cleanly
            await fleet.kill(broker)
            await channels.until(lambda leader=leader: channels.metadata(0, "t").leader == leader)
        await fleet.register(1)
        await channels.until(lambda: channels.metadata(0, "t").leader == 1)
        apis = (ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA, ApiKey.STOP_REPLICA)
        assert tuple(channels.versions[api] for api in apis) == versions
        assert channels.leadership(1, "t").leader_recovery_state == recovering
        assert (await fleet.state("t"))[0].leader_recovery_state == recovering


async def test_a_returning_broker_hears_the_endpoints_then_everything_it_holds(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2), 1: (0, 2)})
    await create(controller, "u", {0: (2, 1)})
    await fleet.kill(1)
    await channels.until(lambda: channels.metadata(0, "t").leader == 2)
    channels.forget()
    await fleet.register(1)
    await channels.until(lambda: channels.leadership(1, "u"))
    to_it = [(key, request) for broker, key, request in channels.sent if broker == 1]
    assert [key for key, _ in to_it] == [ApiKey.UPDATE_METADATA, ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA]
    welcome, full = to_it[0][1], to_it[1][1]
    assert {topic.topic_name: len(topic.partition_states) for topic in welcome.topic_states} == {"t": 2, "u": 1}
    assert full.type == 2
    assert {
        (topic.topic_name, state.partition_index) for topic in full.topic_states for state in topic.partition_states
    } == {("t", 0), ("u", 0)}
    assert not any(state.is_new for topic in full.topic_states for state in topic.partition_states)
    assert channels.metadata(0, "t").offline_replicas == []
    # Its return elects nobody: the leaders live, and it joins the ISR when it has caught up.
    assert (await fleet.state("t"))[0].leader == 2


async def test_a_bounce_that_one_look_cannot_see_is_handled_as_death_and_return(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    before = channels.open_brokers[1].epoch
    channels.forget()
    await fleet.bounce(1)
    await channels.until(lambda: channels.requests(1, ApiKey.LEADER_AND_ISR))
    assert channels.open_brokers[1].epoch > before
    state, _ = await fleet.state("t")
    assert (state.leader, state.isr) == (2, (2,))
    assert channels.requests(1, ApiKey.LEADER_AND_ISR)[0].type == 2


async def test_a_failed_directory_moves_its_leaders_and_the_broker_stays(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    channels.storage_errors.add((1, "t", 0))
    await create(controller, "t", {0: (1, 2)})
    await channels.until(lambda: channels.metadata(0, "t").leader == 2)
    state, _ = await fleet.state("t")
    assert (state.leader, state.isr) == (2, (2,))
    assert channels.metadata(0, "t").offline_replicas == [1]
    (stop,) = channels.requests(1, ApiKey.STOP_REPLICA)
    assert not stop.topic_states[0].partition_states[0].delete_partition
    assert 1 in channels.open_brokers


def change(partition_epoch=0, leader_epoch=0, isr=((1, -1),), broker=1):
    return IsrChange(broker, leader_epoch, partition_epoch, isr)


async def test_an_isr_that_a_leader_alters_reaches_every_broker(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    created = await create(controller, "t", {0: (1, 2)})
    topic_id = created.plan.topic.topic_id
    epoch = channels.open_brokers[1].epoch
    (answers,) = await controller.alter_partitions(1, epoch, [TopicIsrChanges(topic_id, None, {0: change()})], 3)
    assert answers[0].error is ErrorCode.NONE
    assert (answers[0].leadership.isr, answers[0].leadership.partition_epoch) == ((1,), 1)
    state, stat = await fleet.state("t")
    assert (state.isr, state.leader_epoch, stat.version) == ((1,), 0, 1)
    assert channels.metadata(0, "t").isr == [1] and channels.metadata(0, "t").zk_version == 1
    (answers,) = await controller.alter_partitions(
        1, epoch, [TopicIsrChanges(topic_id, None, {0: change(isr=((1, -1), (2, -1)))})], 3
    )
    assert answers[0].error is ErrorCode.INVALID_UPDATE_VERSION


async def test_alter_partition_refusals(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    epoch = channels.open_brokers[1].epoch
    with pytest.raises(KafkaError) as refused:
        await controller.alter_partitions(1, epoch - 1, [], 3)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
    unknown = TopicIsrChanges(b"x" * 16, None, {0: change()})
    by_name = TopicIsrChanges(None, "t", {0: change(leader_epoch=-1), 7: change()})
    first, second = await controller.alter_partitions(1, epoch, [unknown, by_name], 3)
    assert first[0].error is ErrorCode.UNKNOWN_TOPIC_ID
    assert second[0].error is ErrorCode.FENCED_LEADER_EPOCH
    assert second[7].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_state_written_behind_our_back_is_a_conflict_and_then_known(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2, 0)})
    epoch = channels.open_brokers[1].epoch
    by_leader = znodes.PartitionStateZnode(1, 0, 1, (1, 2))
    await fleet.tool.set("/brokers/topics/t/partitions/0/state", by_leader.encode())
    (answers,) = await controller.alter_partitions(1, epoch, [TopicIsrChanges(None, "t", {0: change()})], 1)
    assert answers[0].error is ErrorCode.INVALID_UPDATE_VERSION
    assert channels.metadata(0, "t").isr == [1, 2]
    await fleet.tool.set("/brokers/topics/t/partitions/0/state", znodes.PartitionStateZnode(1, 0, 1, (1, 0)).encode())
    channels.forget()
    await fleet.kill(1)
    await channels.until(lambda: channels.metadata(0, "t") and channels.metadata(0, "t").leader == 0)
    assert (await fleet.state("t"))[0].isr == (0,)


async def test_isr_change_notifications_are_read_told_and_removed(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    await fleet.tool.set("/brokers/topics/t/partitions/0/state", znodes.PartitionStateZnode(1, 0, 1, (1,)).encode())
    path = await fleet.tool.create(znodes.ISR_CHANGE_PREFIX, znodes.encode_partitions([("t", 0)]), sequence=True)
    await fleet.until_gone(path)
    assert channels.metadata(2, "t").isr == [1]


async def test_the_next_controller_takes_over_with_a_higher_epoch(fleet) -> None:
    controller, _channels = await fleet_of(fleet)
    await create(controller, "t", {0: (0, 1)})
    second, to = await fleet.start_controller(1)
    assert not second.is_active and second.controller_id == 0
    with pytest.raises(KafkaError) as refused:
        await second.create_topics([NewTopic("u", 1, 1)], timeout_ms=WAIT_MS)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    await fleet.kill(0)
    await to.until(lambda: second.is_active and to.metadata(1, "t") and to.metadata(1, "t").leader == 1)
    assert second.epoch == 2
    state, _ = await fleet.state("t")
    assert (state.leader, state.isr, state.controller_epoch) == (1, (1,), 2)
    assert to.requests(1, ApiKey.LEADER_AND_ISR)[0].controller_epoch == 2
    introduction = to.requests(2, ApiKey.UPDATE_METADATA)[0]
    # Else a broker that has just started would answer clients that the topic does not exist.
    assert [topic.topic_name for topic in introduction.topic_states] == ["t"]


async def test_a_leader_that_restarted_while_no_controller_was_active_leads_in_a_new_epoch(fleet) -> None:
    """It may have lost records in a power loss: in the old epoch they look like what it writes now."""
    controller, _channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2), 1: (2, 1)})
    await fleet.kill(0)
    await fleet.bounce(1)
    for successor_id in (2, 1):  # the second finds what the first has written
        successor, to = await fleet.start_controller(successor_id)
        await to.until(lambda: successor.is_active and to.metadata(1, "t", 1))  # noqa: B023 - awaited at once
        states = [(await fleet.state("t", index))[0] for index in (0, 1)]
        found = [(state.leader, state.leader_epoch, state.isr) for state in states]
        assert found == [(1, 1, (1, 2)), (2, 0, (2, 1))]
        await successor.stop()


async def test_a_leader_whose_return_was_not_seen_before_a_write_for_its_former_life_gets_a_new_epoch_too(
    fleet, monkeypatch
) -> None:
    """The ISR change that it had asked for before it was gone stands above its registration."""
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    epoch = channels.open_brokers[1].epoch
    store = controller._active.store
    write = store.write_leadership

    async def write_late(*arguments, **named):
        await fleet.bounce(1)
        return await write(*arguments, **named)

    monkeypatch.setattr(store, "write_leadership", write_late)
    await controller.alter_partitions(1, epoch, [TopicIsrChanges(None, "t", {0: change()})], 1)
    await fleet.kill(0)
    state = (await fleet.state("t"))[0]
    assert (state.leader, state.leader_epoch, state.isr) == (1, 0, (1,))
    successor, to = await fleet.start_controller(2)
    await to.until(lambda: successor.is_active and to.metadata(1, "t", 0))
    assert (await fleet.state("t"))[0].leader_epoch == 1


async def test_a_controller_that_was_replaced_unseen_can_write_nothing(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    # Another broker has raised the epoch; /controller still shows the old one.
    await fleet.tool.set("/controller_epoch", b"2")
    with pytest.raises(KafkaError) as refused:
        await controller.create_topics([NewTopic("u", 1, 1)], timeout_ms=WAIT_MS)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert not controller.is_active and not channels.open_brokers
    assert not await fleet.exists("/brokers/topics/u") and not await fleet.exists("/config/topics/u")


async def test_an_expired_session_ends_the_term_and_a_new_registration_begins_another(fleet) -> None:
    controller, channels = await fleet_of(fleet, 2)
    await create(controller, "t", {0: (0, 1)})
    session = fleet.brokers[0].session
    expired = session.session_id
    await fleet.expire(session)
    assert not controller.is_active and not channels.open_brokers
    assert session.session_id != expired
    await fleet.announce(session, 0)
    controller.broker_registered()
    await channels.until(lambda: controller.is_active and channels.leadership(0, "t"))
    assert controller.epoch == 2


@pytest.mark.parametrize("is_late", [False, True], ids=["before the start", "before it is reported"])
async def test_a_broker_whose_registration_went_with_its_session_does_not_become_controller(fleet, is_late) -> None:
    """Clients would get a controller that no list of brokers has: librdkafka then waits for a minute."""
    broker = await fleet.register(0)
    await fleet.register(1)
    if is_late:
        controller, channels = await fleet.start_controller(0)
        await create(controller, "t", {0: (0, 1)})
    await fleet.expire(broker.session)
    if is_late:
        controller.broker_registered()  # of the session that has ended: the next one has made none yet
    else:
        controller, channels = await fleet.start_controller(0)
    with pytest.raises(KafkaError) as refused:
        await controller.create_topics([NewTopic("u", 1, 1)], timeout_ms=WAIT_MS)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert not controller.is_active and not await fleet.exists(znodes.CONTROLLER)
    channels.forget()
    await fleet.announce(broker.session, 0)
    controller.broker_registered()
    await channels.until(lambda: controller.is_active and channels.requests(1, ApiKey.UPDATE_METADATA))
    for request in channels.requests(1, ApiKey.UPDATE_METADATA):
        assert request.controller_id in {alive.id for alive in request.live_brokers}


async def test_what_somebody_has_put_below_the_configuration_of_a_topic_goes_with_it(fleet) -> None:
    controller, _ = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    await fleet.tool.create("/config/topics/t/stray")
    (result,) = await controller.delete_topics(["t"], timeout_ms=WAIT_MS)
    assert result.error is ErrorCode.NONE
    await fleet.until_gone("/admin/delete_topics/t")
    assert not await fleet.exists("/config/topics/t")


@pytest.mark.parametrize(
    "content",
    [
        b'{"version":5,"endpoints":["INTERNAL://h:1"],"features":{"f":3}}',
        b'{"version":5,"endpoints":["INTERNAL://h:1"],"listener_security_protocol_map":{"INTERNAL":[1]}}',
        b'{"version":5,"endpoints":["INTERNAL://h:4294967296"]}',
        b"[" * 200_000,
    ],
)
async def test_a_broker_becomes_the_controller_when_another_registration_cannot_be_parsed(fleet, content) -> None:
    await fleet.tool.create("/brokers/ids/7", content)
    controller, channels = await fleet_of(fleet)
    assert controller.is_active
    assert (await create(controller, "t", {0: (1, 2)})).error is ErrorCode.NONE
    told = channels.requests(1, ApiKey.UPDATE_METADATA)
    assert told and all(broker.id != 7 for request in told for broker in request.live_brokers)


@pytest.mark.parametrize("name", ["4294967296", "1" * 5000])
async def test_a_registration_of_a_broker_that_no_request_can_name_harms_nobody(fleet, name) -> None:
    await fleet.tool.create(f"/brokers/ids/{name}", b'{"version":5,"endpoints":["INTERNAL://h:1"]}')
    controller, _ = await fleet_of(fleet)
    assert controller.is_active
    assert (await create(controller, "t", {0: (1, 2)})).error is ErrorCode.NONE


async def test_a_state_beyond_every_number_on_the_wire_harms_no_other_partition(fleet) -> None:
    controller, _ = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2), 1: (1, 2)})
    state = b'{"controller_epoch":1,"leader":4294967296,"version":1,"leader_epoch":0,"isr":[1,2]}'
    await fleet.tool.set(znodes.PartitionStateZnode.path("t", 0), state)
    await controller.stop()
    successor, to = await fleet.start_controller(1)
    assert successor.is_active and to.metadata(2, "t", 1).leader == 1 and to.metadata(2, "t", 0) is None


async def test_what_stands_below_a_partition_without_a_state_does_not_keep_it_from_one(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await fleet.tool.create("/brokers/topics/t", znodes.TopicAssignment({0: (1, 2)}).encode())
    await channels.until(lambda: channels.leadership(1, "t"))
    await controller.stop()
    state = znodes.PartitionStateZnode.path("t", 0)
    await asyncio.gather(fleet.tool.delete(state), fleet.tool.create(znodes.partition_path("t", 0) + "/stray"))
    successor, to = await fleet.start_controller(1)
    await to.until(lambda: successor.is_active and to.leadership(2, "t"))
    assert (await create(successor, "u", {0: (0,)})).error is ErrorCode.NONE
    assert (await fleet.state("t"))[0].leader == 1


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/log_dir_event_notification/log_dir_event_0000000000", b"{}"),
        ("/isr_change_notification/isr_change_0000000000", b"{}"),
        ("/admin/preferred_replica_election", b"{}"),
        ("/admin/delete_topics/absent", b""),
        ("/admin/reassign_partitions", b'{"version":1,"partitions":[{"topic":"absent","partition":0,"replicas":[1]}]}'),
    ],
)
async def test_a_request_that_somebody_has_put_a_node_below_goes_like_any_other(fleet, path, content) -> None:
    await fleet.tool.create(path, content)
    await fleet.tool.create(f"{path}/stray")
    controller, _ = await fleet_of(fleet)
    assert controller.is_active and not await fleet.exists(path)
    assert (await create(controller, "t", {0: (1, 2)})).error is ErrorCode.NONE


@pytest.mark.parametrize("assignments", [None, [(1, 2), (0, 1)]])
async def test_a_topic_that_lacks_its_first_partition_cannot_grow_and_harms_nobody(fleet, assignments) -> None:
    controller, channels = await fleet_of(fleet)
    await fleet.tool.create("/brokers/topics/t", znodes.TopicAssignment({1: (1, 2)}).encode())
    await channels.until(lambda: channels.leadership(1, "t", 1))
    growth = TopicGrowth("t", 3, assignments)
    (result,) = await controller.create_partitions([growth], timeout_ms=WAIT_MS)
    assert result.error is ErrorCode.UNKNOWN_SERVER_ERROR and "partition id 0" in result.message
    assert controller.is_active and controller.epoch == 1


async def test_an_unreadable_topic_harms_no_other_and_no_full_request_is_sent(fleet) -> None:
    await fleet.tool.create("/brokers/topics/broken", b"not json")
    controller, channels = await fleet_of(fleet)
    assert (await create(controller, "fine", {0: (1, 2)})).error is ErrorCode.NONE
    channels.forget()
    await fleet.bounce(1)
    await channels.until(lambda: channels.requests(1, ApiKey.LEADER_AND_ISR))
    assert all(request.type == 1 for request in channels.requests(1, ApiKey.LEADER_AND_ISR))
    assert all(request.type == 0 for request in channels.requests(1, ApiKey.UPDATE_METADATA))


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_topic_whose_assignment_names_a_broker_twice_is_deleted_like_any_other(fleet, is_known) -> None:
    content = b'{"version":1,"partitions":{"0":[1,1,2]}}'
    if is_known:
        controller, channels = await fleet_of(fleet)
        await fleet.tool.create("/brokers/topics/t", content)
        await channels.until(lambda: channels.leadership(1, "t"))
        assert channels.leadership(1, "t").replicas == [1, 2]
        await fleet.tool.create(znodes.delete_topic_path("t"))
    else:
        await fleet.tool.create("/brokers/topics/t", content)
        await fleet.tool.create(znodes.delete_topic_path("t"))
        controller, _ = await fleet_of(fleet)
    await fleet.until_gone(znodes.topic_path("t"))
    assert controller.is_active and controller.epoch == 1


async def test_two_runs_send_the_same_requests_in_the_same_order(tmp_path) -> None:
    traces = []
    for run in ("one", "two"):
        (tmp_path / run).mkdir()
        async with Fleet(tmp_path / run) as fleet:
            controller, channels = await fleet_of(fleet)
            for name in ("b", "a", "c"):
                await create(controller, name, partitions=3, replication_factor=2)
            await fleet.kill(2)
            await channels.until(lambda channels=channels: channels.requests(0)[-1].live_brokers[-1].id == 1)
            await create(controller, "d", {0: (0, 1)})  # everything before it is done
            traces.append(
                [
                    (broker, key.name, [topic.topic_name for topic in request.topic_states])
                    for broker, key, request in channels.sent
                ]
            )
    assert traces[0] == traces[1]


async def test_another_broker_becomes_the_controller_at_once_when_the_active_one_stops(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    second, to = await fleet.start_controller(1)
    await controller.stop()
    await to.until(lambda: second.is_active)
    assert second.epoch == 2 and not channels.open_brokers
    with pytest.raises(KafkaError) as refused:
        await controller.create_topics([NewTopic("t", 1, 1)], timeout_ms=WAIT_MS)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


async def test_the_controller_resigns_after_an_unforeseen_error_and_another_continues(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    second, to = await fleet.start_controller(1)
    await create(controller, "t", {0: (1, 2)})

    def broken(*_) -> Never:
        raise RuntimeError("the wire has a bug")

    channels.send = broken
    with pytest.raises(KafkaError) as refused:
        await create(controller, "u", {0: (1, 2)})
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    await to.until(lambda: second.is_active and to.metadata(2, "u") and to.metadata(2, "u").leader == 1)
    assert not controller.is_active and (await fleet.state("u"))[0].leader == 1


async def test_an_unforeseen_error_of_a_topics_plan_is_the_error_of_that_topic_alone(fleet, monkeypatch) -> None:
    """Nothing is written yet. The client that asks again would make one controller after the other resign."""
    controller, _ = await fleet_of(fleet)
    await create(controller, "grows", {0: (1, 2)})
    await create(controller, "stays", {0: (1, 2)})

    def broken(*given, **_) -> Never:
        raise RuntimeError("the rule has a bug")

    monkeypatch.setattr(topic_plans, "validate_topic_config", lambda given, **_: given and broken())
    topics = [NewTopic("t", assignment={0: (1, 2)}, configs={"a": "b"}), NewTopic("u", assignment={0: (1, 2)})]
    refused, other = await controller.create_topics(topics, timeout_ms=WAIT_MS)
    assert (refused.error, other.error) == (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE)
    monkeypatch.setattr(topic_plans.topic_rules, "check_added_assignment", broken)
    growths = [TopicGrowth("grows", 2, [(1, 2)]), TopicGrowth("stays", 2)]
    refused, other = await controller.create_partitions(growths, timeout_ms=WAIT_MS)
    assert (refused.error, other.error) == (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE)
    assert controller.is_active and controller.epoch == 1
    assert not await fleet.exists("/brokers/topics/t") and len((await fleet.assignment("grows")).partitions) == 1


@pytest.mark.parametrize("validate_only", [True, False])
async def test_a_config_number_of_any_length_is_the_error_of_its_topic_alone(fleet, validate_only) -> None:
    controller, _ = await fleet_of(fleet)
    topics = [
        NewTopic("t", assignment={0: (1, 2)}, configs={"retention.ms": "1" * 5000}),
        NewTopic("u", assignment={0: (1, 2)}),
    ]
    refused, other = await controller.create_topics(topics, timeout_ms=WAIT_MS, validate_only=validate_only)
    assert (refused.error, other.error) == (ErrorCode.INVALID_CONFIG, ErrorCode.NONE)
    assert controller.is_active and controller.epoch == 1


@pytest.mark.parametrize(
    "error", [ConnectionLoss(), CoordinationError("/controller", "the store has a bug")], ids=["connection", "store"]
)
async def test_a_controller_that_failed_deletes_its_znode_when_the_store_answers_again(fleet, error) -> None:
    """Its session goes on, and with it /controller: no other broker could be elected."""
    controller, channels = await fleet_of(fleet)
    session, send, lost = fleet.brokers[0].session, channels.send, []
    multi = session.multi

    def broken(*_) -> Never:
        channels.send = send
        raise RuntimeError("the wire has a bug")

    def losing(operations):
        if Delete("/controller") in operations and not lost:
            lost.append(operations)
            future = asyncio.get_running_loop().create_future()
            future.set_exception(error)
            return future
        return multi(operations)

    session.multi, channels.send = losing, broken
    with pytest.raises(KafkaError):
        await create(controller, "t", {0: (1, 2)})
    await channels.until(lambda: controller.is_active and controller.epoch == 2)
    assert lost
    assert (await create(controller, "u", {0: (1, 2)})).error is ErrorCode.NONE


async def test_an_address_that_changes_while_its_broker_lives_is_told_to_everybody(fleet) -> None:
    """As Apache Kafka's does in a mixed fleet, when its advertised.listeners are altered."""
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    path = znodes.BrokerRegistration.path(2)
    for port in (4711, 4712):
        channels.forget()
        data, _ = await fleet.tool.get(path)
        registration = znodes.BrokerRegistration.decode(2, data)
        moved = Endpoint("CLIENT", "127.0.0.1", port)
        changed = dataclasses.replace(registration, endpoints=(registration.endpoints[0], moved))
        await fleet.tool.set(path, changed.encode())
        await channels.until(lambda: {0, 1, 2} <= {broker for broker, _, _ in channels.sent})
        assert channels.requests(api_key=ApiKey.UPDATE_METADATA) == channels.requests()
        for request in channels.requests():
            assert [end.port for end in request.live_brokers[2].endpoints if end.listener == "CLIENT"] == [port]
    assert (await fleet.state("t"))[0].leader == 1 and set(channels.open_brokers) == {0, 1, 2}


async def reregister(fleet, broker, *endpoints) -> None:
    """Changes the registration of a broker that stays alive."""
    path = znodes.BrokerRegistration.path(broker)
    data, _ = await fleet.tool.get(path)
    changed = dataclasses.replace(znodes.BrokerRegistration.decode(broker, data), endpoints=endpoints)
    await fleet.tool.set(path, changed.encode())


CLIENT_OF_2 = Endpoint("CLIENT", "127.0.0.1", 9094)


async def test_a_broker_that_changes_its_inter_broker_address_is_reached_there_and_told_everything_again(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2), 1: (2, 1), 2: (0, 1)})
    await create(controller, "gone", {0: (2, 1)})
    channels.silent.add(2)  # nobody is there any more
    await controller.delete_topics(["gone"], timeout_ms=WAIT_MS)
    await create(controller, "u", {0: (2, 0)})
    channels.forget()
    channels.silent.clear()
    await reregister(fleet, 2, Endpoint(LISTENER, "127.0.0.1", 4711), CLIENT_OF_2)
    await fleet.until_gone("/brokers/topics/gone")
    assert channels.open_brokers[2].endpoint(LISTENER).port == 4711
    full = channels.requests(2, ApiKey.LEADER_AND_ISR)[0]
    assert full.type == 2 and {
        (topic.topic_name, state.partition_index) for topic in full.topic_states for state in topic.partition_states
    } == {("t", 0), ("t", 1), ("u", 0)}
    assert channels.metadata(2, "u").leader == 2
    # It never went: nothing was taken from it.
    assert [(await fleet.state("t", partition))[0].leader_epoch for partition in range(3)] == [0, 0, 0]


async def test_an_inter_broker_listener_may_come_and_go_while_its_broker_lives(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    await reregister(fleet, 2, CLIENT_OF_2)
    await channels.until(lambda: 2 not in channels.open_brokers)
    await create(controller, "u", {0: (2, 1)})
    channels.forget()
    await reregister(fleet, 2, Endpoint(LISTENER, "127.0.0.1", 4711), CLIENT_OF_2)
    await channels.until(lambda: channels.leadership(2, "u"))
    assert channels.metadata(2, "t").leader == 1 and channels.open_brokers[2].endpoint(LISTENER).port == 4711
    assert controller.epoch == 1


async def test_a_controller_whose_own_inter_broker_address_changes_goes_on(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    channels.silent.add(0)
    creating = asyncio.ensure_future(create(controller, "t", {0: (0, 1)}))
    await channels.until(lambda: channels.metadata(0, "t"))
    channels.silent.clear()
    await reregister(fleet, 0, Endpoint(LISTENER, "127.0.0.1", 4711))
    assert (await creating).error is ErrorCode.NONE
    assert (await create(controller, "u", {0: (0, 1)})).error is ErrorCode.NONE


async def test_a_broker_without_the_inter_broker_listener_harms_nobody(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await fleet.announce(fleet.tool, 9, listener="ELSEWHERE")
    await channels.until(lambda: channels.requests(0)[-1].live_brokers[-1].id == 9)
    assert (await create(controller, "t", {0: (1, 2)})).error is ErrorCode.NONE
    assert 9 not in channels.open_brokers

"""Reassignment (KIP-455): the decisions, and what the store and the brokers see of one."""

import pytest

from ottla_broker.controller.acts.isr_writes import TopicIsrChanges
from ottla_broker.controller.acts.requested_elections import ElectionType
from ottla_broker.controller.decisions.isr_changes import IsrChange
from ottla_broker.controller.decisions.reassignment_steps import ReassignmentPhase, is_ongoing, next_step, plan
from ottla_broker.controller.decisions.topic_plans import NewTopic, TopicGrowth
from ottla_broker.controller.values import LeaderAndIsr, ReplicaAssignment
from ottla_broker.coordination import znodes
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from tests.broker.controller.fleet import WAIT_MS, fleet_of

T0 = TopicPartition("t", 0)
ALL = frozenset(range(6))


# ---- decisions


def led(leader, *isr, epoch=3):
    return LeaderAndIsr(leader=leader, leader_epoch=epoch, isr=isr, partition_epoch=5, controller_epoch=1)


def refusal(current, leadership, wanted, live=ALL, online=ALL):
    with pytest.raises(KafkaError) as raised:
        plan(current, leadership, wanted, live=live, online=online)
    return raised.value.code


@pytest.mark.parametrize(
    ("wanted", "live"), [((), ALL), ((1, 1), ALL), ((-1, 1), ALL), ((1, 9), ALL), ((1, 4), frozenset({1, 2, 3}))]
)
def test_a_list_that_cannot_be_is_refused(wanted, live) -> None:
    code = refusal(ReplicaAssignment((1, 2)), led(1, 1, 2), wanted, live)
    assert code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_dead_broker_may_stay_and_may_leave() -> None:
    now = ReplicaAssignment((1, 2))
    assert plan(now, led(1, 1), (1, 2, 3), live=frozenset({1, 3}), online=frozenset({1})).adding == (3,)
    assert plan(now, led(1, 1), (1, 3), live=frozenset({1, 3}), online=frozenset({1})).removing == (2,)


def test_there_must_be_something_to_cancel() -> None:
    assert refusal(ReplicaAssignment((1, 2)), led(1, 1, 2), None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_nothing_takes_away_the_last_replica_that_is_in_sync() -> None:
    moving = ReplicaAssignment((3, 1), adding=(3,), removing=(1,))
    assert refusal(moving, led(3, 3), None) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert refusal(moving, led(3, 3), (4,)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    # In sync, but not there: going back would leave the partition without leader.
    assert refusal(moving, led(3, 1, 3), None, online=frozenset({3})) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert plan(moving, led(3, 1, 3), None, live=ALL, online=ALL) == ReplicaAssignment((1,))


def test_what_was_never_led_gets_its_target_at_once() -> None:
    assert plan(ReplicaAssignment((1, 2)), None, (3,), live=ALL, online=frozenset()) == ReplicaAssignment((3,))


def test_the_end_waits_for_somebody_of_the_target_who_can_lead() -> None:
    moving = ReplicaAssignment((3, 4, 1), adding=(3, 4), removing=(1,))
    assert next_step(moving, led(1, 1, 3), ALL).phase is ReassignmentPhase.COPY
    assert next_step(moving, led(1, 1, 3, 4), frozenset({1})).phase is ReassignmentPhase.WAIT
    step = next_step(moving, led(1, 1, 3, 4), frozenset({1, 4}))
    assert step.phase is ReassignmentPhase.END
    assert (step.election.leadership.leader, step.election.leadership.isr) == (4, (3, 4))


# ---- the act


async def topic_on(controller, *replicas, name="t") -> None:
    (result,) = await controller.create_topics([NewTopic(name, assignment={0: replicas})], timeout_ms=WAIT_MS)
    assert result.error is ErrorCode.NONE


async def alter(controller, replicas, partition=T0):
    """The error code."""
    answer = (await controller.alter_reassignments({partition: replicas}))[partition]
    return ErrorCode.NONE if answer is None else answer.code


async def in_sync(fleet, controller, channels, *isr) -> None:
    """The leader of t-0 reports this ISR."""
    state, stat = await fleet.state("t")
    members = tuple((broker, -1) for broker in isr)
    change = TopicIsrChanges(None, "t", {0: IsrChange(state.leader, state.leader_epoch, stat.version, members)})
    epoch = channels.open_brokers[state.leader].epoch
    ((answer,),) = [found.values() for found in await controller.alter_partitions(state.leader, epoch, [change], 1)]
    assert answer.error is ErrorCode.NONE


async def stored(fleet, topic="t", partition=0):
    """(replicas, adding, removing)"""
    found = await fleet.assignment(topic)
    return (
        found.partitions[partition],
        found.adding_replicas.get(partition, ()),
        found.removing_replicas.get(partition, ()),
    )


async def barrier(controller) -> None:
    """Returns when every event before it is done."""
    await controller.create_topics([NewTopic("barrier", 1, 1)], timeout_ms=WAIT_MS, validate_only=True)


async def test_a_partition_moves_when_its_new_replicas_are_in_sync_and_the_old_ones_are_deleted(fleet) -> None:
    controller, channels = await fleet_of(fleet, 4)
    await topic_on(controller, 0, 1)
    channels.forget()
    assert await alter(controller, (2, 3)) is ErrorCode.NONE
    assert await stored(fleet) == ((2, 3, 0, 1), (2, 3), (0, 1))
    state, _ = await fleet.state("t")
    assert (state.leader, state.leader_epoch, state.isr) == (0, 1, (0, 1))
    for broker, is_new in ((0, False), (1, False), (2, True), (3, True)):
        told = channels.leadership(broker, "t")
        assert (told.leader, told.leader_epoch, told.is_new) == (0, 1, is_new)
        assert (tuple(told.replicas), tuple(told.adding_replicas)) == ((2, 3, 0, 1), (2, 3))
        assert tuple(channels.metadata(broker, "t").replicas) == (2, 3, 0, 1)
    ongoing = await controller.list_reassignments()
    assert ongoing == {T0: ReplicaAssignment((2, 3, 0, 1), (2, 3), (0, 1))}

    channels.forget()
    await in_sync(fleet, controller, channels, 0, 1, 2)
    assert await controller.list_reassignments() == ongoing and not channels.requests(api_key=ApiKey.STOP_REPLICA)
    await in_sync(fleet, controller, channels, 0, 1, 2, 3)
    assert await stored(fleet) == ((2, 3), (), ())
    state, _ = await fleet.state("t")
    assert (state.leader, state.leader_epoch, state.isr) == (2, 2, (2, 3))
    for broker in (2, 3):
        told = channels.leadership(broker, "t")
        assert (told.leader, told.leader_epoch, tuple(told.replicas)) == (2, 2, (2, 3))
        assert not channels.deleted(broker)
    for broker in (0, 1):
        assert channels.leadership(broker, "t") is None and channels.deleted(broker) == {("t", 0)}
    assert tuple(channels.metadata(0, "t").replicas) == (2, 3)
    assert await controller.list_reassignments() == {}


async def test_the_leader_stays_where_it_can(fleet) -> None:
    controller, channels = await fleet_of(fleet, 3)
    await topic_on(controller, 0, 1)
    await alter(controller, (2, 0))
    await in_sync(fleet, controller, channels, 0, 1, 2)
    state, _ = await fleet.state("t")
    assert (state.leader, state.isr) == (0, (0, 2)) and await stored(fleet) == ((2, 0), (), ())


async def test_fewer_replicas_and_another_order_take_effect_at_once(fleet) -> None:
    controller, channels = await fleet_of(fleet, 3)
    await topic_on(controller, 0, 1, 2)
    assert await alter(controller, (2, 1, 0)) is ErrorCode.NONE
    assert await stored(fleet) == ((2, 1, 0), (), ()) and not channels.deleted(0)
    assert tuple(channels.leadership(1, "t").replicas) == (2, 1, 0)
    assert await alter(controller, (2, 1)) is ErrorCode.NONE
    assert await stored(fleet) == ((2, 1), (), ())
    state, _ = await fleet.state("t")
    assert (state.leader, state.isr) == (2, (1, 2)) and channels.deleted(0) == {("t", 0)}


async def test_a_reassignment_adds_replicas_without_removing_any(fleet) -> None:
    controller, channels = await fleet_of(fleet, 3)
    await topic_on(controller, 0)
    assert await alter(controller, (0, 1, 2)) is ErrorCode.NONE
    assert await stored(fleet) == ((0, 1, 2), (1, 2), ())
    await in_sync(fleet, controller, channels, 0, 1, 2)
    assert await stored(fleet) == ((0, 1, 2), (), ())
    assert not channels.requests(api_key=ApiKey.STOP_REPLICA)


async def test_a_cancelled_reassignment_goes_back_and_its_learners_are_deleted(fleet) -> None:
    controller, channels = await fleet_of(fleet, 4)
    await topic_on(controller, 0, 1)
    assert await alter(controller, None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    await alter(controller, (2, 3))
    await in_sync(fleet, controller, channels, 0, 1, 2)
    assert await alter(controller, None) is ErrorCode.NONE
    assert await stored(fleet) == ((0, 1), (), ())
    state, _ = await fleet.state("t")
    assert (state.leader, state.isr) == (0, (0, 1))
    assert channels.deleted(2) == channels.deleted(3) == {("t", 0)} and not channels.deleted(0)
    assert tuple(channels.leadership(0, "t").replicas) == (0, 1)
    # A replica that is added again is created again.
    await alter(controller, (2, 1))
    assert channels.leadership(2, "t").is_new


async def test_a_new_target_replaces_the_old_one(fleet) -> None:
    controller, channels = await fleet_of(fleet, 5)
    await topic_on(controller, 0, 1)
    await alter(controller, (2, 3))
    await alter(controller, (2, 4))
    assert await stored(fleet) == ((2, 4, 0, 1), (2, 4), (0, 1))
    assert channels.deleted(3) == {("t", 0)} and not channels.deleted(2)
    await in_sync(fleet, controller, channels, 0, 1, 2, 4)
    assert await stored(fleet) == ((2, 4), (), ())


async def test_what_cannot_be_carried_out_is_refused_partition_by_partition(fleet) -> None:
    controller, _ = await fleet_of(fleet, 3)
    await topic_on(controller, 0)
    wanted = {
        T0: (1,),
        TopicPartition("t", 1): (1,),
        TopicPartition("nowhere", 0): (1,),
        TopicPartition("nowhere", 1): (9,),
        TopicPartition("nowhere", 2): None,
    }
    answers = await controller.alter_reassignments(wanted)
    assert list(answers) == sorted(wanted)
    assert [None if one is None else one.code for one in answers.values()] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        None,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


async def topic_of_many(controller, count):
    """`count` partitions on the brokers 0 and 1; where all of them are to go."""
    assignment = dict.fromkeys(range(count), (0, 1))
    (result,) = await controller.create_topics([NewTopic("t", assignment=assignment)], timeout_ms=WAIT_MS)
    assert result.error is ErrorCode.NONE
    return {TopicPartition("t", partition): (2, 3) for partition in assignment}


async def test_a_topic_is_judged_as_a_whole_however_many_of_its_partitions_move(fleet, monkeypatch) -> None:
    """Judged once for each, a topic of thousands held up its controller for seconds."""
    controller, _ = await fleet_of(fleet, 4)
    wanted = await topic_of_many(controller, 50)
    encode, encoded = znodes.TopicAssignment.encode, []
    monkeypatch.setattr(znodes.TopicAssignment, "encode", lambda self: encoded.append(1) or encode(self))
    assert not any((await controller.alter_reassignments(wanted)).values())
    assert 0 < len(encoded) < 10


async def test_what_would_make_a_topic_larger_than_a_znode_is_refused(fleet, monkeypatch) -> None:
    controller, _ = await fleet_of(fleet, 4)
    wanted = await topic_of_many(controller, 50)
    (data, _) = await fleet.tool.get("/brokers/topics/t")
    monkeypatch.setattr("ottla_broker.controller.store.MAX_ZNODE_BYTES", len(data) + 200)
    answers = await controller.alter_reassignments(wanted)
    assert {error.code for error in answers.values()} == {ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    await fleet.tool.create("/admin/reassign_partitions", znodes.encode_reassignment(wanted))
    await fleet.until_gone("/admin/reassign_partitions")
    assert not await controller.list_reassignments()
    assert controller.is_active and controller.epoch == 1
    assert await alter(controller, (2, 3)) is ErrorCode.NONE


async def test_a_topic_does_not_grow_while_it_is_reassigned(fleet) -> None:
    controller, _ = await fleet_of(fleet, 3)
    await topic_on(controller, 0)
    await alter(controller, (1,))
    (result,) = await controller.create_partitions([TopicGrowth("t", 2)], timeout_ms=WAIT_MS)
    assert result.error is ErrorCode.REASSIGNMENT_IN_PROGRESS
    await alter(controller, None)
    (result,) = await controller.create_partitions([TopicGrowth("t", 2)], timeout_ms=WAIT_MS)
    assert result.error is ErrorCode.NONE


async def test_a_topic_that_is_being_reassigned_can_be_deleted(fleet) -> None:
    controller, channels = await fleet_of(fleet, 4)
    await topic_on(controller, 0, 1)
    await alter(controller, (2, 3))
    await controller.delete_topics(["t"], timeout_ms=WAIT_MS)
    await fleet.until_gone("/brokers/topics/t")
    assert all(channels.deleted(broker) == {("t", 0)} for broker in range(4))
    assert await alter(controller, (1, 2)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await controller.list_reassignments() == {}


async def test_the_next_controller_goes_on_with_what_was_begun_and_tells_the_leader_again(fleet) -> None:
    controller, channels = await fleet_of(fleet, 4)
    await topic_on(controller, 1, 2)
    await alter(controller, (3, 2))
    await controller.stop()
    successor, channels = await fleet.start_controller(1)
    await channels.until(lambda: successor.is_active)
    assert await successor.list_reassignments() == {T0: ReplicaAssignment((3, 2, 1), (3,), (1,))}
    told = channels.leadership(1, "t")
    assert told.leader_epoch == 2 and tuple(told.replicas) == (3, 2, 1)
    assert channels.leadership(3, "t").is_new
    await in_sync(fleet, successor, channels, 1, 2, 3)
    assert await stored(fleet) == ((3, 2), (), ()) and channels.deleted(1) == {("t", 0)}


async def test_the_next_controller_ends_what_was_in_sync_already(fleet) -> None:
    controller, channels = await fleet_of(fleet, 3)
    await topic_on(controller, 0, 1)
    await controller.stop()
    moving = await fleet.assignment("t")
    data = znodes.TopicAssignment({0: (1, 0)}, moving.topic_id, {}, {0: (0,)}).encode()
    await fleet.tool.set("/brokers/topics/t", data)
    successor, channels = await fleet.start_controller(1)
    await channels.until(lambda: successor.is_active)
    await barrier(successor)
    assert await stored(fleet) == ((1,), (), ())
    state, _ = await fleet.state("t")
    assert (state.leader, state.isr) == (1, (1,)) and channels.deleted(0) == {("t", 0)}


async def test_the_next_controller_ends_what_the_brokers_have_heard_the_end_of(fleet) -> None:
    """Fewer replicas take effect at once. Had the leader heard of them and the store not, it would refuse the others,
    in the epoch in which the next controller names them again, for good."""
    controller, channels = await fleet_of(fleet, 3)
    second, to = await fleet.start_controller(1)
    await topic_on(controller, 0, 1, 2)
    store = controller._active.store
    write = store.write_assignments

    async def fail_at_the_end(topic, assignments):
        if not any(is_ongoing(one) for one in assignments.values()):
            raise RuntimeError("the controller dies")
        return await write(topic, assignments)

    store.write_assignments = fail_at_the_end
    with pytest.raises(KafkaError):
        await alter(controller, (0,))
    assert channels.leadership(0, "t").replicas == [0]
    await to.until(lambda: second.is_active and to.leadership(0, "t") and to.leadership(0, "t").replicas == [0])
    await barrier(second)
    assert await stored(fleet) == ((0,), (), ())
    assert to.leadership(0, "t").leader_epoch > channels.leadership(0, "t").leader_epoch


async def test_a_reassignment_outlives_the_death_of_leader_and_learner(fleet) -> None:
    controller, channels = await fleet_of(fleet, 5)
    await topic_on(controller, 1, 2)
    await alter(controller, (3, 4))
    await fleet.kill(1)
    await channels.until(lambda: channels.leadership(2, "t").leader == 2)
    await fleet.kill(3)
    await channels.until(lambda: 3 in channels.metadata(0, "t").offline_replicas)
    await in_sync(fleet, controller, channels, 2, 4)
    assert await stored(fleet) == ((3, 4, 1, 2), (3, 4), (1, 2))
    channels.forget()
    await fleet.register(3)
    await channels.until(lambda: channels.leadership(3, "t"))
    assert channels.leadership(3, "t").is_new
    await in_sync(fleet, controller, channels, 2, 4, 3)
    assert await stored(fleet) == ((3, 4), (), ())
    assert channels.deleted(2) == {("t", 0)} and not channels.deleted(1)
    # Broker 1 was not there: it gets the request when it registers again.
    await fleet.register(1)
    await channels.until(lambda: channels.deleted(1) == {("t", 0)})


async def test_an_unclean_election_takes_what_is_being_added_last(fleet) -> None:
    controller, channels = await fleet_of(fleet, 4)
    await topic_on(controller, 1, 2)
    await alter(controller, (3, 2))
    await fleet.kill(2)
    await channels.until(lambda: channels.metadata(0, "t").isr == [1])
    await fleet.register(2)
    await fleet.kill(1)
    await channels.until(lambda: channels.metadata(0, "t").leader == -1)
    await channels.until(lambda: 2 in channels.open_brokers)
    (result,) = await controller.elect_leaders([T0], ElectionType.UNCLEAN, timeout_ms=WAIT_MS)
    assert result.error is ErrorCode.NONE
    # Broker 3, at the head of the assignment, has copied nothing that anybody knows of; broker 2 was in sync once.
    assert await stored(fleet) == ((3, 2, 1), (3,), (1,))
    state, _ = await fleet.state("t")
    assert (state.leader, state.isr) == (2, (2,))


@pytest.mark.parametrize("how", ["asked for", "allowed before", "allowed afterwards"])
async def test_an_unclean_election_of_the_target_ends_the_reassignment(fleet, how) -> None:
    """The old replica is gone for good, and its records are given up."""
    controller, channels = await fleet_of(fleet)
    allowed = {"unclean.leader.election.enable": "true"}
    configs = allowed if how == "allowed before" else {}
    await controller.create_topics([NewTopic("t", assignment={0: (1,)}, configs=configs)], timeout_ms=WAIT_MS)
    await alter(controller, (2,))
    await fleet.kill(1)
    if how != "allowed before":
        await channels.until(lambda: channels.metadata(0, "t").leader == -1)
    if how == "allowed afterwards":
        await fleet.tool.set("/config/topics/t", znodes.encode_config(allowed))
        controller.unclean_election_enabled("t")
    if how == "asked for":
        (result,) = await controller.elect_leaders([T0], ElectionType.UNCLEAN, timeout_ms=WAIT_MS)
        assert result.error is ErrorCode.NONE
    await channels.until(lambda: channels.metadata(0, "t").leader == 2)
    await barrier(controller)
    assert await controller.list_reassignments() == {}
    assert await stored(fleet) == ((2,), (), ())
    await fleet.register(1)
    await channels.until(lambda: channels.deleted(1) == {("t", 0)})


async def test_a_replica_that_cannot_be_deleted_is_told_again_when_its_broker_returns(fleet) -> None:
    controller, channels = await fleet_of(fleet, 3)
    await topic_on(controller, 0, 1)
    channels.delete_errors.add((1, "t", 0))
    await alter(controller, (0, 2))
    await in_sync(fleet, controller, channels, 0, 1, 2)
    assert channels.deleted(1) == {("t", 0)}
    channels.delete_errors.clear()
    channels.forget()
    await fleet.bounce(1)
    await channels.until(lambda: channels.deleted(1) == {("t", 0)})
    channels.forget()
    await fleet.bounce(1)
    await channels.until(lambda: channels.requests(1, ApiKey.UPDATE_METADATA))
    await barrier(controller)
    assert not channels.deleted(1)


async def test_a_replica_on_an_offline_directory_is_told_again_at_an_event_of_its_broker(fleet) -> None:
    controller, channels = await fleet_of(fleet, 3)
    await topic_on(controller, 0, 1)
    channels.delete_errors.add((1, "t", 0))
    await alter(controller, (0, 2))
    await in_sync(fleet, controller, channels, 0, 1, 2)
    assert channels.deleted(1) == {("t", 0)}
    channels.delete_errors.clear()
    for expected in ({("t", 0)}, set()):
        channels.forget()
        event = await fleet.tool.create(znodes.LOG_DIR_EVENT_PREFIX, znodes.encode_log_dir_event(1), sequence=True)
        await fleet.until_gone(event)
        await barrier(controller)
        assert channels.deleted(1) == expected


async def test_the_end_waits_for_a_broker_of_the_target(fleet) -> None:
    controller, channels = await fleet_of(fleet, 3)
    await topic_on(controller, 0)
    await alter(controller, (2,))
    channels.storage_errors.add((2, "t", 0))
    await in_sync(fleet, controller, channels, 0)  # a new partition epoch, and nothing to end
    await fleet.kill(2)
    await channels.until(lambda: 2 in channels.metadata(0, "t").offline_replicas)
    channels.storage_errors.clear()
    await fleet.register(2)
    await channels.until(lambda: 2 not in channels.metadata(0, "t").offline_replicas)
    await in_sync(fleet, controller, channels, 0, 2)
    assert await stored(fleet) == ((2,), (), ())


async def test_a_partition_that_was_never_led_is_given_to_brokers_that_live(fleet) -> None:
    controller, channels = await fleet_of(fleet, 2)
    await controller.create_topics([NewTopic("t", assignment={0: (7, 8)})], timeout_ms=1)
    assert await alter(controller, (1, 0)) is ErrorCode.NONE
    state, _ = await fleet.state("t")
    assert (state.leader, state.isr) == (1, (1, 0)) and await stored(fleet) == ((1, 0), (), ())
    assert channels.leadership(1, "t").is_new and controller.offline_partitions() == 0


# ---- /admin/reassign_partitions, which tools before KIP-455 write


def request(**targets):
    wanted = {tuple(name.rsplit("_", 1)): replicas for name, replicas in targets.items()}
    return znodes.encode_reassignment({(topic, int(index)): replicas for (topic, index), replicas in wanted.items()})


async def test_the_old_znode_begins_reassignments_and_goes_when_they_have_ended(fleet) -> None:
    controller, channels = await fleet_of(fleet, 4)
    await topic_on(controller, 0, 1)
    await topic_on(controller, 0, name="u")
    await fleet.tool.create(znodes.REASSIGN_PARTITIONS, request(t_0=(2, 3), u_0=(1,), nowhere_0=(1,), u_5=()))
    await channels.until(lambda: channels.leadership(2, "t") and channels.leadership(1, "u"))
    await barrier(controller)
    assert (await controller.list_reassignments()).keys() == {T0, TopicPartition("u", 0)}
    left = znodes.decode_reassignment((await fleet.tool.get(znodes.REASSIGN_PARTITIONS))[0])
    assert left == {("t", 0): (2, 3), ("u", 0): (1,)}
    # A request by the API is newer.
    assert await alter(controller, None, TopicPartition("u", 0)) is ErrorCode.NONE
    left = znodes.decode_reassignment((await fleet.tool.get(znodes.REASSIGN_PARTITIONS))[0])
    assert left == {("t", 0): (2, 3)}
    await in_sync(fleet, controller, channels, 0, 1, 2, 3)
    assert not await fleet.exists(znodes.REASSIGN_PARTITIONS)
    assert await stored(fleet) == ((2, 3), (), ())
    # And it can be used again; of one that is deleted meanwhile, nothing stays.
    await fleet.tool.create(znodes.REASSIGN_PARTITIONS, request(t_0=(0, 3)))
    await channels.until(lambda: tuple(channels.leadership(2, "t").replicas) == (0, 3, 2))
    await controller.delete_topics(["t"], timeout_ms=WAIT_MS)
    await fleet.until_gone("/brokers/topics/t")
    await fleet.until_gone(znodes.REASSIGN_PARTITIONS)


async def test_the_old_znode_waits_for_brokers_and_is_found_by_the_next_controller(fleet) -> None:
    controller, _ = await fleet_of(fleet, 2)
    await topic_on(controller, 1)
    await controller.stop()
    await fleet.tool.create(znodes.REASSIGN_PARTITIONS, request(t_0=(5,)))
    successor, channels = await fleet.start_controller(1)
    await channels.until(lambda: successor.is_active)
    await barrier(successor)
    assert await stored(fleet) == ((5, 1), (5,), (1,))
    await fleet.register(5)
    await channels.until(lambda: channels.leadership(5, "t"))
    await in_sync(fleet, successor, channels, 1, 5)
    assert await stored(fleet) == ((5,), (), ()) and not await fleet.exists(znodes.REASSIGN_PARTITIONS)


async def test_an_old_znode_that_is_no_json_is_left_alone(fleet) -> None:
    controller, _channels = await fleet_of(fleet, 2)
    await fleet.tool.create(znodes.REASSIGN_PARTITIONS, b"{")
    await topic_on(controller, 0)
    await barrier(controller)
    assert controller.is_active and await fleet.exists(znodes.REASSIGN_PARTITIONS)


async def test_nothing_moves_whose_state_has_become_unreadable(fleet) -> None:
    """The replicas that would go may be the only ones in sync."""
    controller, channels = await fleet_of(fleet, 3)
    await topic_on(controller, 0, 1, 2)
    await fleet.tool.set(znodes.PartitionStateZnode.path("t", 0), b"nonsense")
    channels.forget()
    assert await alter(controller, (0, 1)) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert await stored(fleet) == ((0, 1, 2), (), ())
    assert not channels.requests(api_key=ApiKey.STOP_REPLICA)


async def test_an_election_whose_state_has_become_unreadable_is_not_reported_as_held(fleet) -> None:
    controller, _ = await fleet_of(fleet, 3)
    await topic_on(controller, 0, 1)
    assert await alter(controller, (1, 0)) is ErrorCode.NONE
    await fleet.tool.set(znodes.PartitionStateZnode.path("t", 0), b"nonsense")
    (result,) = await controller.elect_leaders([T0], ElectionType.PREFERRED, timeout_ms=WAIT_MS)
    assert result.error is ErrorCode.UNKNOWN_SERVER_ERROR

"""Requested and periodic elections: the results that clients get, and who leads afterwards."""

from types import SimpleNamespace

import pytest

from ottla_broker.controller.acts.requested_elections import ElectionType
from ottla_broker.controller.context import ControllerContext
from ottla_broker.controller.decisions.leader_imbalance import decide_imbalance
from ottla_broker.controller.decisions.topic_plans import NewTopic
from ottla_broker.controller.values import LeaderAndIsr, RegisteredBroker, ReplicaAssignment, Topic
from ottla_broker.coordination import znodes
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import elect_leaders as el
from ottla_broker.records.ids import TopicPartition
from ottla_broker.server.handlers import elect_leaders
from tests.broker.controller.fleet import WAIT_MS, AnswerLost, Fleet, ImpatientClock, fleet_of
from tests.broker.server.contexts import handler_context


@pytest.fixture
async def fleet(tmp_path):
    async with Fleet(tmp_path, auto_leader_rebalance_enable="false") as fleet:
        yield fleet


async def create(controller, name, assignment, **configs):
    overrides = {key.replace("_", "."): value for key, value in configs.items()}
    new = NewTopic(name, assignment=assignment, configs=overrides)
    (result,) = await controller.create_topics([new], timeout_ms=WAIT_MS)
    assert result.error is ErrorCode.NONE
    return result


async def moved_away(fleet, controller, channels, name="t") -> None:
    """A topic whose preferred leader 1 was away, is back and in sync again, while 2 leads."""
    await create(controller, name, {0: (1, 2)})
    await fleet.kill(1)
    await channels.until(lambda: channels.metadata(0, name).leader == 2)
    await fleet.register(1)
    await channels.until(lambda: 1 in channels.open_brokers)
    await channels.until(lambda: channels.metadata(1, name) is not None)


async def rejoin(fleet, name="t") -> None:
    """Broker 1 is in the ISR again, as a leader of an older protocol writes it."""
    state, stat = await fleet.state(name)
    data = znodes.PartitionStateZnode(state.leader, state.leader_epoch, state.controller_epoch, (2, 1), 0).encode()
    await fleet.tool.set(znodes.PartitionStateZnode.path(name, 0), data, stat.version)
    await fleet.tool.create(znodes.ISR_CHANGE_PREFIX, znodes.encode_partitions([(name, 0)]), sequence=True)


async def ask(controller, version, partitions, election_type=0, timeout_ms=WAIT_MS, topics=None):
    """The handler's answer, through the codec both ways: {(topic, partition): code}, and the code for all."""
    request = el.ElectLeadersRequest(
        election_type=election_type,
        topic_partitions=None
        if partitions is None
        else [el.TopicPartitions(topic=name, partitions=ids) for name, ids in partitions.items()],
        timeout_ms=timeout_ms,
    )
    frame = b"".join(bytes(chunk) for chunk in codec.frame_request(ApiKey.ELECT_LEADERS, version, 7, "test", request))
    view = memoryview(frame)[4:]
    decoded = el.read_request(version, view, codec.read_request_header(view).body_offset)
    services = SimpleNamespace(controller=controller, metadata=SimpleNamespace(topics=topics or {}))
    response = await elect_leaders.handle(services, handler_context(api_version=version), decoded)
    frame = b"".join(bytes(chunk) for chunk in codec.frame_response(ApiKey.ELECT_LEADERS, version, 7, response))
    response = codec.read_response_frame(ApiKey.ELECT_LEADERS, version, memoryview(frame)[4:])[1]
    return {
        (topic.topic, entry.partition_id): ErrorCode(entry.error_code)
        for topic in response.replica_election_results
        for entry in topic.partition_result
    }, ErrorCode(response.error_code)


@pytest.mark.parametrize("version", range(3))
async def test_every_partition_asked_for_is_answered_in_every_version(fleet, version) -> None:
    controller, channels = await fleet_of(fleet)
    await moved_away(fleet, controller, channels)
    await create(controller, "fine", {0: (0, 2), 1: (2, 0)})
    asked = {"fine": [1, 0, 7], "nowhere": [0], "t": [0]}
    answers, code = await ask(controller, version, asked)
    assert code is ErrorCode.NONE
    assert answers == {
        ("fine", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("fine", 1): ErrorCode.ELECTION_NOT_NEEDED,
        ("fine", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,  # alive, and not in sync
    }
    await rejoin(fleet)
    await fleet.until_gone(znodes.ISR_CHANGE_PREFIX + "0000000000")
    assert (await ask(controller, version, {"t": [0]}))[0] == {("t", 0): ErrorCode.NONE}
    state, _ = await fleet.state("t")
    assert (state.leader, state.isr) == (1, (2, 1))
    assert channels.metadata(0, "t").leader == 1 and channels.leadership(2, "t").leader == 1
    assert (await ask(controller, version, {"t": [0]}))[0] == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}


@pytest.mark.parametrize("election_type", list(ElectionType))
async def test_an_election_whose_write_lost_its_answer_has_been_held(fleet, election_type) -> None:
    for broker in range(3):
        await fleet.register(broker)
    coordination = AnswerLost(fleet.brokers[0].session)
    controller, channels = await fleet.start_controller(0, coordination)
    await moved_away(fleet, controller, channels)
    if election_type is ElectionType.PREFERRED:
        await rejoin(fleet)
        await create(controller, "fence", {0: (0,)})
    else:
        await fleet.kill(2)
        await channels.until(lambda: channels.metadata(0, "t").leader == -1)
    coordination.armed = True
    (result,) = await controller.elect_leaders([TopicPartition("t", 0)], election_type, timeout_ms=WAIT_MS)
    assert not coordination.armed and (await fleet.state("t"))[0].leader == 1
    assert result.error is ErrorCode.NONE


async def test_all_partitions_asked_for_answers_only_those_with_something_to_do(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await moved_away(fleet, controller, channels)
    await create(controller, "fine", {0: (0, 2)})
    answers, _ = await ask(controller, 2, None)
    assert answers == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


async def test_a_topic_being_deleted_and_a_broker_that_is_not_the_controller(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    channels.silent.add(1)
    await controller.delete_topics(["t"], timeout_ms=0)
    assert (await ask(controller, 2, {"t": [0]}))[0] == {("t", 0): ErrorCode.INVALID_TOPIC_EXCEPTION}
    other, _ = await fleet.start_controller(1)
    assert (await ask(other, 2, {"t": [0]}))[0] == {("t", 0): ErrorCode.NOT_CONTROLLER}
    known = {"t": SimpleNamespace(partitions={0: None, 1: None})}
    answers, _ = await ask(other, 2, None, topics=known)
    assert answers == {("t", 0): ErrorCode.NOT_CONTROLLER, ("t", 1): ErrorCode.NOT_CONTROLLER}


async def test_an_election_type_that_does_not_exist_is_refused(fleet) -> None:
    controller, _ = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    assert await ask(controller, 1, {"t": [0]}, election_type=2) == (
        {("t", 0): ErrorCode.INVALID_REQUEST},
        ErrorCode.INVALID_REQUEST,
    )


async def test_an_election_that_the_own_broker_has_not_heard_of_in_time_is_held_all_the_same(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await moved_away(fleet, controller, channels)
    await rejoin(fleet)
    await fleet.until_gone(znodes.ISR_CHANGE_PREFIX + "0000000000")
    channels.silent.add(0)
    answers, _ = await ask(controller, 2, {"t": [0]}, timeout_ms=1)
    assert answers == {("t", 0): ErrorCode.REQUEST_TIMED_OUT}
    assert (await fleet.state("t"))[0].leader == 1


async def test_an_unclean_election_takes_any_live_replica_of_a_partition_without_leader(fleet) -> None:
    controller, channels = await fleet_of(fleet, 4)
    await create(controller, "t", {0: (1, 2)})
    await create(controller, "dead", {0: (1,)})
    await create(controller, "led", {0: (2, 3)})
    await fleet.kill(2)
    await channels.until(lambda: channels.metadata(0, "t").isr == [1])
    await fleet.register(2)
    await fleet.kill(1)
    await channels.until(lambda: channels.metadata(0, "t").leader == -1)
    await channels.until(lambda: 2 in channels.open_brokers)
    answers, _ = await ask(controller, 2, {"t": [0], "dead": [0], "led": [0]}, ElectionType.UNCLEAN)
    assert answers == {
        ("dead", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ("led", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("t", 0): ErrorCode.NONE,
    }
    state, _ = await fleet.state("t")
    assert (state.leader, state.isr, state.leader_recovery_state) == (2, (2,), 1)
    assert channels.leadership(2, "t").leader_recovery_state == 1


async def test_a_topic_that_may_elect_uncleanly_from_now_on_gets_a_leader_at_once(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await create(controller, "may", {0: (1, 2)})
    await create(controller, "must-not", {0: (1, 2)}, unclean_leader_election_enable="false")
    for broker, isr in ((2, [1]), (1, [1])):
        await fleet.kill(broker)
        await channels.until(lambda isr=isr: channels.metadata(0, "must-not").isr == isr)
    await channels.until(lambda: channels.metadata(0, "must-not").leader == -1)
    await fleet.register(2)
    await channels.until(lambda: 2 in channels.open_brokers)
    controller.unclean_election_enabled(None)  # the broker's own default still says no
    await create(controller, "fence", {0: (0,)})
    assert channels.metadata(0, "may").leader == -1
    await fleet.tool.set("/config/topics/may", znodes.encode_config({"unclean.leader.election.enable": "true"}))
    controller.unclean_election_enabled("may")
    await channels.until(lambda: channels.metadata(0, "may").leader == 2)
    assert channels.metadata(0, "must-not").leader == -1


async def test_the_znode_of_older_tools_is_honoured_and_goes(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await moved_away(fleet, controller, channels)
    await rejoin(fleet)
    path = znodes.PREFERRED_REPLICA_ELECTION
    await fleet.until_gone(znodes.ISR_CHANGE_PREFIX + "0000000000")
    await fleet.tool.create(path, znodes.encode_partitions([("t", 0), ("nowhere", 3)]))
    await fleet.until_gone(path)
    assert (await fleet.state("t"))[0].leader == 1
    for content in (b"no json", b""):  # the watch is armed again, and rubbish does not stay
        await fleet.tool.create(path, content)
        await fleet.until_gone(path)


async def test_an_election_asked_for_by_znode_survives_the_controller(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await moved_away(fleet, controller, channels)
    await rejoin(fleet)
    await fleet.until_gone(znodes.ISR_CHANGE_PREFIX + "0000000000")
    await fleet.kill(0)
    await fleet.tool.create(znodes.PREFERRED_REPLICA_ELECTION, znodes.encode_partitions([("t", 0)]))
    await fleet.start_controller(2)
    await fleet.until_gone(znodes.PREFERRED_REPLICA_ELECTION)
    assert (await fleet.state("t"))[0].leader == 1


class HurriedClock(ImpatientClock):
    """The five seconds between two looks are five milliseconds; limits of time are what they are."""

    def call_later(self, delay_s, callback, *arguments):
        return super().call_later(delay_s / 1000 if delay_s == 5 else delay_s, callback, *arguments)


async def test_leaderships_go_back_to_their_preferred_replicas_by_themselves(tmp_path) -> None:
    async with Fleet(tmp_path, leader_imbalance_check_interval_seconds="5") as fleet:
        for broker in range(3):
            await fleet.register(broker)
        fleet.brokers[0].clock = HurriedClock(seed=0)
        controller, channels = await fleet.start_controller(0)
        await moved_away(fleet, controller, channels)
        await rejoin(fleet)
        await channels.until(lambda: channels.metadata(0, "t").leader == 1)
        assert (await fleet.state("t"))[0].leader_epoch == 2


def context_of(assignments, leaders, isr=None, brokers=(1, 2, 3)):
    context = ControllerContext(1, 0)
    context.brokers = {broker: RegisteredBroker(broker, 7, ()) for broker in brokers}
    context.add_topic(Topic("t", None, assignments))
    for partition, leader in leaders.items():
        replicas = assignments[partition].replicas
        context.leadership[TopicPartition("t", partition)] = LeaderAndIsr(leader, 3, isr or replicas, 5, 1)
    return context


def test_a_broker_is_out_of_balance_above_the_percentage_only() -> None:
    assignments = {partition: ReplicaAssignment((1, 2)) for partition in range(10)}
    leaders = dict.fromkeys(range(10), 1)
    one_elsewhere = context_of(assignments, {**leaders, 4: 2})
    assert decide_imbalance(one_elsewhere, 10) == []
    (found,) = decide_imbalance(one_elsewhere, 9)
    assert (found.broker, found.led_by_others, found.preferring) == (1, 1, 10)
    assert found.electable == (TopicPartition("t", 4),)


def test_what_is_deleted_reassigned_offline_or_out_of_sync_is_left_alone() -> None:
    assignments = {0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((1, 2, 3), adding=(3,))}
    (found,) = decide_imbalance(context_of(assignments, {0: 2, 1: 2}), 0)
    assert found.electable == (TopicPartition("t", 0),)
    (found,) = decide_imbalance(context_of(assignments, {0: 2, 1: 2}, isr=(2,)), 0)
    assert found.electable == () and found.led_by_others == 2
    (found,) = decide_imbalance(context_of(assignments, {0: 2, 1: 2}, brokers=(2, 3)), 0)
    assert found.electable == ()
    context = context_of(assignments, {0: 2, 1: 2})
    context.topics_to_delete.add("t")
    assert decide_imbalance(context, 0) == []

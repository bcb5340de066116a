"""The controller over a coordination store: what the store holds and what the brokers are told."""

import asyncio
import dataclasses
import itertools
import uuid

import pytest

from ottla_broker.controller.administration import TopicIsrChanges
from ottla_broker.controller.isr_changes import IsrChange
from ottla_broker.controller.topic_plans import NewTopic, TopicGrowth
from ottla_broker.coordination import znodes
from ottla_broker.exposition import Exposition
from ottla_broker.metadata.cache import MetadataCache
from ottla_broker.ports.coordination import ConnectionLoss, CoordinationError, Delete
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from tests.broker.controller.fleet import LISTENER, AnswerLost, Fleet, fleet_of

WAIT_MS = 60_000
LONG_LIST = ",".join(f"{partition}:0" for partition in range(130_000))
"""More than a znode takes."""


@pytest.fixture(params=["embedded", pytest.param("zookeeper", marks=pytest.mark.java)])
async def fleet(request, tmp_path):
    """Every test on the embedded store and on a real ZooKeeper."""
    chroot = None
    if request.param == "zookeeper":
        chroot = f"{request.getfixturevalue('zookeeper').connect}/controller/{uuid.uuid4()}"
    async with Fleet(tmp_path, chroot) as fleet:
        yield fleet


async def create(controller, name, assignment=None, **rest):
    new = NewTopic(name, assignment=assignment, **rest)
    (result,) = await controller.create_topics([new], timeout_ms=WAIT_MS)
    return result


async def test_the_first_controller_takes_office_and_introduces_the_brokers(fleet):
    controller, channels = await fleet_of(fleet)
    assert controller.is_active and controller.controller_id == 0 and controller.epoch == 1
    assert (await fleet.tool.get("/controller_epoch"))[0] == b"1"
    node = znodes.Controller.decode((await fleet.tool.get("/controller"))[0])
    assert node.broker_id == 0
    for broker in range(3):
        first = channels.sent[[sent[0] for sent in channels.sent].index(broker)]
        assert first[1] is ApiKey.UPDATE_METADATA
        assert [entry.id for entry in first[2].live_brokers] == [0, 1, 2]
        assert {endpoint.listener for endpoint in first[2].live_brokers[broker].endpoints} == {LISTENER, "CLIENT"}


async def test_creating_a_topic_writes_its_znodes_and_tells_leaders_before_metadata(fleet):
    controller, channels = await fleet_of(fleet)
    channels.forget()
    result = await create(controller, "flights", partitions=6, replication_factor=3, configs={"retention.ms": "1000"})
    assert result.error is ErrorCode.NONE
    stored = await fleet.assignment("flights")
    assert stored.topic_id.bytes == result.plan.topic.topic_id and len(stored.partitions) == 6
    config, _ = await fleet.tool.get("/config/topics/flights")
    assert znodes.decode_config("", config) == {"retention.ms": "1000"}
    for partition, replicas in stored.partitions.items():
        state, stat = await fleet.state("flights", partition)
        assert (state.leader, state.leader_epoch, set(state.isr)) == (replicas[0], 0, {0, 1, 2})
        assert state.controller_epoch == 1 and stat.version == 0
        for broker in range(3):
            told = channels.leadership(broker, "flights", partition)
            assert (told.leader, told.is_new, told.partition_epoch) == (replicas[0], True, 0)
            assert tuple(told.replicas) == replicas
            assert channels.metadata(broker, "flights", partition).leader == replicas[0]
    for broker in range(3):
        keys = [key for to, key, _ in channels.sent if to == broker]
        assert keys.index(ApiKey.LEADER_AND_ISR) < keys.index(ApiKey.UPDATE_METADATA)
    (request,) = channels.requests(1, ApiKey.LEADER_AND_ISR)
    assert request.controller_epoch == 1 and request.type == 1
    assert [leader.port for leader in request.live_leaders] == [19000, 19001, 19002]


async def test_a_new_partition_is_told_as_new_also_when_the_answer_to_its_state_was_lost(fleet):
    """Else a broker with an offline directory would refuse it: the replica might be there."""
    for broker in range(3):
        await fleet.register(broker)
    coordination = AnswerLost(fleet.brokers[0].session)
    controller, channels = await fleet.start_controller(0, coordination)
    coordination.armed = True
    assert (await create(controller, "t", {0: (1,)})).error is ErrorCode.NONE
    assert not coordination.armed and channels.leadership(1, "t").is_new


async def test_many_topics_are_told_of_together_and_hold_up_nobody(fleet):
    controller, channels = await fleet_of(fleet)
    channels.forget()
    many = [NewTopic(f"t{number}", assignment={0: (1, 2)}) for number in range(60)]
    creating = asyncio.ensure_future(controller.create_topics(many, timeout_ms=WAIT_MS))
    await asyncio.sleep(0)
    await controller.create_topics([NewTopic("asked-meanwhile", 1, 1)], timeout_ms=WAIT_MS, validate_only=True)
    assert not creating.done() and not await fleet.exists("/brokers/topics/t59")
    assert [result.error for result in await creating] == [ErrorCode.NONE] * 60
    for api_key in (ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA):
        assert len(channels.requests(1, api_key)) == 3
    assert {channels.leadership(2, new.name).leader for new in many} == {1}


@pytest.mark.parametrize("by_tool", [False, True])
async def test_many_topics_are_deleted_together_and_hold_up_nobody(fleet, by_tool):
    controller, channels = await fleet_of(fleet)
    names = [f"t{number}" for number in range(60)]
    await controller.create_topics([NewTopic(name, assignment={0: (1, 2)}) for name in names], timeout_ms=WAIT_MS)
    channels.forget()
    if by_tool:
        deleting = asyncio.gather(*[fleet.tool.create(znodes.delete_topic_path(name)) for name in names])
    else:
        deleting = asyncio.ensure_future(controller.delete_topics(names, timeout_ms=WAIT_MS))
        await asyncio.sleep(0)
        await controller.create_topics([NewTopic("asked-meanwhile", 1, 1)], timeout_ms=WAIT_MS, validate_only=True)
        assert not deleting.done()
    await deleting
    for name in names:
        await fleet.until_gone(znodes.topic_path(name))
    told = [len(request.topic_states) for request in channels.requests(1, ApiKey.STOP_REPLICA)]
    assert told and max(told) <= 20


async def test_many_deletions_that_wait_for_one_broker_go_on_a_few_at_a_time(fleet):
    controller, channels = await fleet_of(fleet)
    names = [f"t{number}" for number in range(60)]
    await controller.create_topics([NewTopic(name, assignment={0: (1, 2)}) for name in names], timeout_ms=WAIT_MS)
    await fleet.kill(2)
    await channels.until(lambda: channels.metadata(0, "t59").offline_replicas == [2])
    await controller.delete_topics(names, timeout_ms=WAIT_MS)
    channels.forget()
    await fleet.register(2)
    for name in names:
        await fleet.until_gone(znodes.topic_path(name))
    told = [len(request.topic_states) for request in channels.requests(2, ApiKey.STOP_REPLICA)]
    assert sum(told) == 60 and max(told) <= 20


async def test_names_that_collide_within_a_request_are_refused(fleet):
    controller, _ = await fleet_of(fleet)
    news = [NewTopic(name, assignment={0: (0,)}) for name in ("a.b", "c", "a_b")]
    first, second, third = await controller.create_topics(news, timeout_ms=WAIT_MS)
    assert (first.error, second.error) == (ErrorCode.NONE, ErrorCode.NONE)
    assert third.error is ErrorCode.INVALID_TOPIC_EXCEPTION and "a.b" in third.message


async def test_creation_waits_until_the_own_broker_has_the_metadata(fleet):
    controller, channels = await fleet_of(fleet)
    channels.silent.add(0)
    (late,) = await controller.create_topics([NewTopic("late", 1, 1)], timeout_ms=20)
    assert late.error is ErrorCode.REQUEST_TIMED_OUT
    assert await fleet.exists("/brokers/topics/late")
    (at_once,) = await controller.create_topics([NewTopic("at-once", 1, 1)], timeout_ms=0)
    assert at_once.error is ErrorCode.REQUEST_TIMED_OUT
    channels.speak(0)
    assert (await create(controller, "soon", partitions=1, replication_factor=1)).error is ErrorCode.NONE


async def test_racks_are_respected(fleet):
    controller, _ = await fleet_of(fleet, 4, racks=("a", "a", "b", "b"))
    await create(controller, "spread", partitions=8, replication_factor=2)
    racks = {0: "a", 1: "a", 2: "b", 3: "b"}
    for replicas in (await fleet.assignment("spread")).partitions.values():
        assert {racks[broker] for broker in replicas} == {"a", "b"}


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewTopic("here", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic("a/b", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("..", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("x" * 250, 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("dot_ted", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("t", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", 2**31 - 1, 1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 2, -1, {0: (0,)}), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", assignment={0: (0, 0)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignment={0: (0,), 1: (0, 1)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignment={1: (0,)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignment={0: ()}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", 1, 1, None, {"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", 1, 1, None, {"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", 1, 1, None, {"no.such.key": "1"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", 1, 1, None, {"leader.replication.throttled.replicas": LONG_LIST}), ErrorCode.INVALID_CONFIG),
    ],
)
async def test_what_cannot_be_created_is_refused_with_kafkas_code_and_leaves_no_trace(fleet, new, code):
    controller, _ = await fleet_of(fleet)
    await create(controller, "here", {0: (0,)})
    await create(controller, "dot.ted", {0: (0,)})
    (result,) = await controller.create_topics([new], timeout_ms=WAIT_MS)
    assert result.error is code and result.message
    assert sorted(await fleet.tool.children("/brokers/topics")) == ["dot.ted", "here"]
    assert controller.is_active and controller.epoch == 1


async def test_defaults_and_validate_only(fleet):
    controller, channels = await fleet_of(fleet)
    channels.forget()
    (result,) = await controller.create_topics([NewTopic("t")], timeout_ms=WAIT_MS, validate_only=True)
    assert result.error is ErrorCode.NONE and len(result.plan.topic.partitions) == 1
    assert not await fleet.exists("/brokers/topics/t") and not channels.sent


async def test_a_dead_leader_is_replaced_from_the_isr_and_leaves_it(fleet):
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


async def test_the_last_of_the_isr_is_kept_without_leader_until_it_returns(fleet):
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


async def test_unclean_election_only_where_the_topic_allows_it(fleet):
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
):
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


async def test_a_returning_broker_hears_the_endpoints_then_everything_it_holds(fleet):
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


async def test_a_bounce_that_one_look_cannot_see_is_handled_as_death_and_return(fleet):
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


async def test_a_topic_made_by_a_tool_gets_an_id_and_leaders(fleet):
    _controller, channels = await fleet_of(fleet)
    await fleet.tool.create("/brokers/topics/tool", b'{"version":1,"partitions":{"0":[1,2],"1":[2,0]}}')
    await channels.until(lambda: channels.metadata(0, "tool", 1))
    assert (await fleet.assignment("tool")).topic_id is not None
    assert (await fleet.state("tool", 1))[0].leader == 2


async def test_partitions_grow_by_request_and_by_tool(fleet):
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    topic_id = (await fleet.assignment("t")).topic_id
    (result,) = await controller.create_partitions([TopicGrowth("t", 3)], timeout_ms=WAIT_MS)
    assert result.error is ErrorCode.NONE
    grown = await fleet.assignment("t")
    assert grown.topic_id == topic_id and sorted(grown.partitions) == [0, 1, 2]
    assert all(len(replicas) == 2 for replicas in grown.partitions.values())
    assert channels.metadata(0, "t", 2).leader == grown.partitions[2][0]
    by_tool = znodes.TopicAssignment({**grown.partitions, 3: (0, 1)}, topic_id)
    await fleet.tool.set("/brokers/topics/t", by_tool.encode())
    await channels.until(lambda: channels.metadata(0, "t", 3))
    assert (await fleet.state("t", 3))[0].leader == 0


@pytest.mark.parametrize(
    ("growth", "code"),
    [
        (TopicGrowth("nobody", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicGrowth("t", 1), ErrorCode.INVALID_PARTITIONS),
        (TopicGrowth("t", 2), ErrorCode.INVALID_PARTITIONS),
        (TopicGrowth("t", 3, [(0, 1), (1, 2)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicGrowth("t", 3, [(0, 9)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicGrowth("t", 3, [(0,)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicGrowth("t", 3, [(1, 1)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicGrowth("t", 80_000), ErrorCode.INVALID_PARTITIONS),
    ],
)
async def test_what_cannot_grow_is_refused(fleet, growth, code):
    controller, _ = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2), 1: (2, 0)})
    (result,) = await controller.create_partitions([growth], timeout_ms=WAIT_MS)
    assert result.error is code and result.message
    assert len((await fleet.assignment("t")).partitions) == 2
    assert controller.is_active and controller.epoch == 1


async def test_deleting_a_topic_removes_replicas_then_every_znode(fleet):
    controller, channels = await fleet_of(fleet)
    created = await create(controller, "t", {0: (1, 2), 1: (2, 0)}, configs={"retention.ms": "1"})
    channels.forget()
    (result,) = await controller.delete_topics(["t"], timeout_ms=WAIT_MS)
    assert result.error is ErrorCode.NONE
    assert channels.metadata(0, "t").leader == -2
    await fleet.until_gone("/admin/delete_topics/t")
    assert channels.deleted(1) == {("t", 0)}
    assert channels.deleted(2) == {("t", 0), ("t", 1)}
    (stop,) = channels.requests(0, ApiKey.STOP_REPLICA)
    assert stop.topic_states[0].partition_states[0].leader_epoch == -2
    assert not await fleet.exists("/brokers/topics/t") and not await fleet.exists("/config/topics/t")
    again = await create(controller, "t", {0: (0, 1)})
    assert again.error is ErrorCode.NONE and again.plan.topic.topic_id != created.plan.topic.topic_id


async def test_a_deletion_waits_for_a_dead_broker_and_ends_when_it_returns(fleet):
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    await fleet.kill(1)
    await channels.until(lambda: channels.metadata(0, "t").leader == 2)
    (result,) = await controller.delete_topics(["t"], timeout_ms=WAIT_MS)
    assert result.error is ErrorCode.NONE
    assert await fleet.exists("/brokers/topics/t")
    assert (await create(controller, "t", {0: (0,)})).error is ErrorCode.TOPIC_ALREADY_EXISTS
    await fleet.register(1)
    await fleet.until_gone("/brokers/topics/t")
    assert channels.deleted(1) == {("t", 0)}


async def test_a_deletion_survives_the_controller(fleet):
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    channels.silent.add(1)
    await controller.delete_topics(["t"], timeout_ms=WAIT_MS)
    await fleet.kill(0)
    assert await fleet.exists("/admin/delete_topics/t")
    await fleet.start_controller(2)
    await fleet.until_gone("/brokers/topics/t")
    assert fleet.brokers[2].channels.deleted(1) == {("t", 0)}


def metadata_of(broker, *sent):
    """The metadata cache of the broker after these terms."""
    cache = MetadataCache(broker)
    for to, key, request in itertools.chain(*sent):
        if to == broker and key is ApiKey.UPDATE_METADATA:
            cache.update(request)
    return cache


async def test_a_broker_without_a_session_during_a_deletion_forgets_the_topic_when_it_is_back(fleet):
    """Its process lives on: its metadata is what it was."""
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (0, 1)})
    await create(controller, "stays", {0: (0, 1)})
    broker = fleet.brokers[2]
    await broker.session.delete(znodes.BrokerRegistration.path(2))
    await channels.until(lambda: 2 not in channels.open_brokers)
    await controller.delete_topics(["t"], timeout_ms=WAIT_MS)
    await fleet.until_gone("/brokers/topics/t")
    assert "t" in metadata_of(2, channels.sent).topics
    await fleet.announce(broker.session, 2)
    await channels.until(lambda: 2 in channels.open_brokers)
    await create(controller, "fence", {0: (0,)})
    assert set(metadata_of(2, channels.sent).topics) == {"stays", "fence"}


async def test_a_deletion_that_a_broker_did_not_hear_of_from_the_last_controller_it_hears_from_the_next(fleet):
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (0, 1)})
    heard = list(channels.sent)
    channels.silent.add(2)  # what is sent from now on stays in the queue
    await controller.delete_topics(["t"], timeout_ms=WAIT_MS)
    await fleet.until_gone("/brokers/topics/t")
    await fleet.kill(0)
    _, after = await fleet.start_controller(1)
    assert "t" in metadata_of(2, heard).topics
    assert "t" not in metadata_of(2, heard, after.sent).topics


async def test_a_marker_made_by_a_tool_deletes_and_one_without_topic_goes(fleet):
    controller, _channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    await fleet.tool.create("/admin/delete_topics/ghost")
    await fleet.until_gone("/admin/delete_topics/ghost")
    await fleet.tool.create("/admin/delete_topics/t")
    await fleet.until_gone("/brokers/topics/t")
    (result,) = await controller.delete_topics(["t"], timeout_ms=WAIT_MS)
    assert result.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_marker_is_taken_away_when_deletion_is_switched_off(tmp_path):
    async with Fleet(tmp_path, delete_topic_enable="false") as fleet:
        controller, channels = await fleet_of(fleet)
        await create(controller, "t", {0: (1, 2)})
        await fleet.tool.create("/admin/delete_topics/t")
        await fleet.until_gone("/admin/delete_topics/t")
        assert await fleet.exists("/brokers/topics/t") and not channels.deleted(1)


async def test_a_replica_that_cannot_be_deleted_keeps_the_topic_until_its_broker_restarts(fleet):
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    channels.delete_errors.add((1, "t", 0))
    await controller.delete_topics(["t"], timeout_ms=WAIT_MS)
    await create(controller, "fence", {0: (0,)})  # everything queued before it has been handled
    assert await fleet.exists("/brokers/topics/t")
    channels.delete_errors.clear()
    await fleet.bounce(1)
    await fleet.until_gone("/brokers/topics/t")


async def test_a_failed_directory_moves_its_leaders_and_the_broker_stays(fleet):
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


async def test_a_leader_alters_its_isr_and_everybody_hears(fleet):
    controller, channels = await fleet_of(fleet)
    created = await create(controller, "t", {0: (1, 2)})
    topic_id = created.plan.topic.topic_id
    epoch = channels.open_brokers[1].epoch
    (answers,) = await controller.alter_isrs(1, epoch, [TopicIsrChanges(topic_id, None, {0: change()})], 3)
    assert answers[0].error is ErrorCode.NONE
    assert (answers[0].leadership.isr, answers[0].leadership.partition_epoch) == ((1,), 1)
    state, stat = await fleet.state("t")
    assert (state.isr, state.leader_epoch, stat.version) == ((1,), 0, 1)
    assert channels.metadata(0, "t").isr == [1] and channels.metadata(0, "t").zk_version == 1
    (answers,) = await controller.alter_isrs(
        1, epoch, [TopicIsrChanges(topic_id, None, {0: change(isr=((1, -1), (2, -1)))})], 3
    )
    assert answers[0].error is ErrorCode.INVALID_UPDATE_VERSION


async def test_alter_partition_refusals(fleet):
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    epoch = channels.open_brokers[1].epoch
    with pytest.raises(KafkaError) as refused:
        await controller.alter_isrs(1, epoch - 1, [], 3)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
    unknown = TopicIsrChanges(b"x" * 16, None, {0: change()})
    by_name = TopicIsrChanges(None, "t", {0: change(leader_epoch=-1), 7: change()})
    first, second = await controller.alter_isrs(1, epoch, [unknown, by_name], 3)
    assert first[0].error is ErrorCode.UNKNOWN_TOPIC_ID
    assert second[0].error is ErrorCode.FENCED_LEADER_EPOCH
    assert second[7].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_state_written_behind_our_back_is_a_conflict_and_then_known(fleet):
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2, 0)})
    epoch = channels.open_brokers[1].epoch
    by_leader = znodes.PartitionState(1, 0, 1, (1, 2))
    await fleet.tool.set("/brokers/topics/t/partitions/0/state", by_leader.encode())
    (answers,) = await controller.alter_isrs(1, epoch, [TopicIsrChanges(None, "t", {0: change()})], 1)
    assert answers[0].error is ErrorCode.INVALID_UPDATE_VERSION
    assert channels.metadata(0, "t").isr == [1, 2]
    await fleet.tool.set("/brokers/topics/t/partitions/0/state", znodes.PartitionState(1, 0, 1, (1, 0)).encode())
    channels.forget()
    await fleet.kill(1)
    await channels.until(lambda: channels.metadata(0, "t") and channels.metadata(0, "t").leader == 0)
    assert (await fleet.state("t"))[0].isr == (0,)


async def test_isr_change_notifications_are_read_told_and_removed(fleet):
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    await fleet.tool.set("/brokers/topics/t/partitions/0/state", znodes.PartitionState(1, 0, 1, (1,)).encode())
    path = await fleet.tool.create(znodes.ISR_CHANGE_PREFIX, znodes.encode_partitions([("t", 0)]), sequence=True)
    await fleet.until_gone(path)
    assert channels.metadata(2, "t").isr == [1]


async def test_the_next_controller_takes_over_with_a_higher_epoch(fleet):
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
    # A client of a broker that has just started would else be told that its topic is not there.
    assert [topic.topic_name for topic in introduction.topic_states] == ["t"]


async def test_a_leader_that_was_gone_while_nobody_was_in_office_leads_on_in_a_new_epoch(fleet):
    """It may have lost records with its power: in the old epoch nobody could tell them from what it writes now."""
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
):
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
    await controller.alter_isrs(1, epoch, [TopicIsrChanges(None, "t", {0: change()})], 1)
    await fleet.kill(0)
    state = (await fleet.state("t"))[0]
    assert (state.leader, state.leader_epoch, state.isr) == (1, 0, (1,))
    successor, to = await fleet.start_controller(2)
    await to.until(lambda: successor.is_active and to.metadata(1, "t", 0))
    assert (await fleet.state("t"))[0].leader_epoch == 1


async def test_a_controller_that_was_replaced_unseen_can_write_nothing(fleet):
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    # Another broker has raised the epoch; /controller still shows the old one.
    await fleet.tool.set("/controller_epoch", b"2")
    with pytest.raises(KafkaError) as refused:
        await controller.create_topics([NewTopic("u", 1, 1)], timeout_ms=WAIT_MS)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert not controller.is_active and not channels.open_brokers
    assert not await fleet.exists("/brokers/topics/u") and not await fleet.exists("/config/topics/u")


async def test_an_expired_session_ends_the_term_and_a_new_registration_begins_another(fleet):
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


async def test_an_unreadable_topic_harms_no_other_and_no_full_request_is_sent(fleet):
    await fleet.tool.create("/brokers/topics/broken", b"not json")
    controller, channels = await fleet_of(fleet)
    assert (await create(controller, "fine", {0: (1, 2)})).error is ErrorCode.NONE
    channels.forget()
    await fleet.bounce(1)
    await channels.until(lambda: channels.requests(1, ApiKey.LEADER_AND_ISR))
    assert all(request.type == 1 for request in channels.requests(1, ApiKey.LEADER_AND_ISR))
    assert all(request.type == 0 for request in channels.requests(1, ApiKey.UPDATE_METADATA))


async def test_two_runs_send_the_same_requests_in_the_same_order(tmp_path):
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


async def test_a_controller_that_stops_leaves_its_office_to_another_at_once(fleet):
    controller, channels = await fleet_of(fleet)
    second, to = await fleet.start_controller(1)
    await controller.stop()
    await to.until(lambda: second.is_active)
    assert second.epoch == 2 and not channels.open_brokers
    with pytest.raises(KafkaError) as refused:
        await controller.create_topics([NewTopic("t", 1, 1)], timeout_ms=WAIT_MS)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


async def test_an_unforeseen_error_costs_the_office_and_not_the_fleet(fleet):
    controller, channels = await fleet_of(fleet)
    second, to = await fleet.start_controller(1)
    await create(controller, "t", {0: (1, 2)})

    def broken(*_):
        raise RuntimeError("the wire has a bug")

    channels.send = broken
    with pytest.raises(KafkaError) as refused:
        await create(controller, "u", {0: (1, 2)})
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    await to.until(lambda: second.is_active and to.metadata(2, "u") and to.metadata(2, "u").leader == 1)
    assert not controller.is_active and (await fleet.state("u"))[0].leader == 1


@pytest.mark.parametrize(
    "error", [ConnectionLoss(), CoordinationError("/controller", "the store has a bug")], ids=["connection", "store"]
)
async def test_a_controller_that_failed_and_could_not_say_so_leaves_the_office_to_somebody(fleet, error):
    """Its session lives, and with it /controller: nobody else could ever be elected."""
    controller, channels = await fleet_of(fleet)
    session, send, lost = fleet.brokers[0].session, channels.send, []
    multi = session.multi

    def broken(*_):
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


async def test_an_address_that_changes_while_its_broker_lives_is_told_to_everybody(fleet):
    """As Apache Kafka's does in a mixed fleet, when its advertised.listeners are altered."""
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    path = znodes.BrokerRegistration.path(2)
    for port in (4711, 4712):
        channels.forget()
        data, _ = await fleet.tool.get(path)
        registration = znodes.BrokerRegistration.decode(2, data)
        moved = znodes.Endpoint("CLIENT", "127.0.0.1", port)
        changed = dataclasses.replace(registration, endpoints=(registration.endpoints[0], moved))
        await fleet.tool.set(path, changed.encode())
        await channels.until(lambda: {0, 1, 2} <= {broker for broker, _, _ in channels.sent})
        assert channels.requests(api_key=ApiKey.UPDATE_METADATA) == channels.requests()
        for request in channels.requests():
            assert [end.port for end in request.live_brokers[2].endpoints if end.listener == "CLIENT"] == [port]
    assert (await fleet.state("t"))[0].leader == 1 and set(channels.open_brokers) == {0, 1, 2}


async def reregister(fleet, broker, *endpoints):
    """Alters the registration of a broker that lives on."""
    path = znodes.BrokerRegistration.path(broker)
    data, _ = await fleet.tool.get(path)
    changed = dataclasses.replace(znodes.BrokerRegistration.decode(broker, data), endpoints=endpoints)
    await fleet.tool.set(path, changed.encode())


CLIENT_OF_2 = znodes.Endpoint("CLIENT", "127.0.0.1", 9094)


async def test_a_broker_that_changes_its_inter_broker_address_is_reached_there_and_told_everything_again(fleet):
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2), 1: (2, 1), 2: (0, 1)})
    await create(controller, "gone", {0: (2, 1)})
    channels.silent.add(2)  # nobody is there any more
    await controller.delete_topics(["gone"], timeout_ms=WAIT_MS)
    await create(controller, "u", {0: (2, 0)})
    channels.forget()
    channels.silent.clear()
    await reregister(fleet, 2, znodes.Endpoint(LISTENER, "127.0.0.1", 4711), CLIENT_OF_2)
    await fleet.until_gone("/brokers/topics/gone")
    assert channels.open_brokers[2].endpoint(LISTENER).port == 4711
    full = channels.requests(2, ApiKey.LEADER_AND_ISR)[0]
    assert full.type == 2 and {
        (topic.topic_name, state.partition_index) for topic in full.topic_states for state in topic.partition_states
    } == {("t", 0), ("t", 1), ("u", 0)}
    assert channels.metadata(2, "u").leader == 2
    # It never went: nothing was taken from it.
    assert [(await fleet.state("t", partition))[0].leader_epoch for partition in range(3)] == [0, 0, 0]


async def test_an_inter_broker_listener_may_come_and_go_while_its_broker_lives(fleet):
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    await reregister(fleet, 2, CLIENT_OF_2)
    await channels.until(lambda: 2 not in channels.open_brokers)
    await create(controller, "u", {0: (2, 1)})
    channels.forget()
    await reregister(fleet, 2, znodes.Endpoint(LISTENER, "127.0.0.1", 4711), CLIENT_OF_2)
    await channels.until(lambda: channels.leadership(2, "u"))
    assert channels.metadata(2, "t").leader == 1 and channels.open_brokers[2].endpoint(LISTENER).port == 4711
    assert controller.epoch == 1


async def test_a_controller_whose_own_inter_broker_address_changes_goes_on(fleet):
    controller, channels = await fleet_of(fleet)
    channels.silent.add(0)
    creating = asyncio.ensure_future(create(controller, "t", {0: (0, 1)}))
    await channels.until(lambda: channels.metadata(0, "t"))
    channels.silent.clear()
    await reregister(fleet, 0, znodes.Endpoint(LISTENER, "127.0.0.1", 4711))
    assert (await creating).error is ErrorCode.NONE
    assert (await create(controller, "u", {0: (0, 1)})).error is ErrorCode.NONE


async def test_a_broker_without_the_inter_broker_listener_harms_nobody(fleet):
    controller, channels = await fleet_of(fleet)
    await fleet.announce(fleet.tool, 9, listener="ELSEWHERE")
    await channels.until(lambda: channels.requests(0)[-1].live_brokers[-1].id == 9)
    assert (await create(controller, "t", {0: (1, 2)})).error is ErrorCode.NONE
    assert 9 not in channels.open_brokers

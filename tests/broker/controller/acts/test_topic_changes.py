"""Topics come and grow: what the store holds, and which requests the brokers get in which order."""

import asyncio

import pytest

from ottla_broker.controller.decisions.topic_plans import NewTopic, TopicGrowth
from ottla_broker.coordination import znodes
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from tests.broker.controller.fleet import WAIT_MS, AnswerLost, create, fleet_of

LONG_LIST = ",".join(f"{partition}:0" for partition in range(130_000))
"""More than a znode takes."""


async def test_creating_a_topic_writes_its_znodes_and_tells_leaders_before_metadata(fleet) -> None:
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


async def test_a_new_partition_is_told_as_new_also_when_the_answer_to_its_state_was_lost(fleet) -> None:
    """Else a broker with an offline directory would refuse it: the replica might be there."""
    for broker in range(3):
        await fleet.register(broker)
    coordination = AnswerLost(fleet.brokers[0].session)
    controller, channels = await fleet.start_controller(0, coordination)
    coordination.armed = True
    assert (await create(controller, "t", {0: (1,)})).error is ErrorCode.NONE
    assert not coordination.armed and channels.leadership(1, "t").is_new


@pytest.mark.parametrize("is_deletion", [False, True], ids=["created", "deleted"])
async def test_what_is_done_of_many_topics_is_not_refused_when_the_controller_moves_in_between(
    fleet, is_deletion, monkeypatch
) -> None:
    """A client that hears NOT_CONTROLLER asks the next controller for all of it, and was told that its own topics exist
    already, or exist no more."""
    controller, _ = await fleet_of(fleet)
    names = [f"t{number}" for number in range(30)]
    many = [NewTopic(name, assignment={0: (1, 2)}) for name in names]
    if is_deletion:
        await controller.create_topics(many, timeout_ms=WAIT_MS)
    request = controller._request

    async def request_and_go(*arguments):
        found = await request(*arguments)
        controller._resign("of the test")
        return found

    monkeypatch.setattr(controller, "_request", request_and_go)
    if is_deletion:
        results = await controller.delete_topics(names, timeout_ms=WAIT_MS)
    else:
        results = await controller.create_topics(many, timeout_ms=WAIT_MS)
    assert [result.name for result in results] == names
    assert {result.error for result in results} <= {ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT}
    assert {result.error for result in results[20:]} == {ErrorCode.REQUEST_TIMED_OUT}
    done = znodes.DELETE_TOPICS if is_deletion else znodes.TOPICS
    assert set(await fleet.tool.children(done)) == set(names[:20])


async def test_many_topics_are_told_of_together_and_hold_up_nobody(fleet) -> None:
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


async def test_names_that_collide_within_a_request_are_refused(fleet) -> None:
    controller, _ = await fleet_of(fleet)
    news = [NewTopic(name, assignment={0: (0,)}) for name in ("a.b", "c", "a_b")]
    first, second, third = await controller.create_topics(news, timeout_ms=WAIT_MS)
    assert (first.error, second.error) == (ErrorCode.NONE, ErrorCode.NONE)
    assert third.error is ErrorCode.INVALID_TOPIC_EXCEPTION and "a.b" in third.message


async def test_creation_waits_until_the_own_broker_has_the_metadata(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    channels.silent.add(0)
    (late,) = await controller.create_topics([NewTopic("late", 1, 1)], timeout_ms=20)
    assert late.error is ErrorCode.REQUEST_TIMED_OUT
    assert await fleet.exists("/brokers/topics/late")
    (at_once,) = await controller.create_topics([NewTopic("at-once", 1, 1)], timeout_ms=0)
    assert at_once.error is ErrorCode.REQUEST_TIMED_OUT
    channels.speak(0)
    assert (await create(controller, "soon", partitions=1, replication_factor=1)).error is ErrorCode.NONE


async def test_racks_are_respected(fleet) -> None:
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
async def test_what_cannot_be_created_is_refused_with_kafkas_code_and_leaves_no_trace(fleet, new, code) -> None:
    controller, _ = await fleet_of(fleet)
    await create(controller, "here", {0: (0,)})
    await create(controller, "dot.ted", {0: (0,)})
    (result,) = await controller.create_topics([new], timeout_ms=WAIT_MS)
    assert result.error is code and result.message
    assert sorted(await fleet.tool.children("/brokers/topics")) == ["dot.ted", "here"]
    assert controller.is_active and controller.epoch == 1


async def test_defaults_and_validate_only(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    channels.forget()
    (result,) = await controller.create_topics([NewTopic("t")], timeout_ms=WAIT_MS, validate_only=True)
    assert result.error is ErrorCode.NONE and len(result.plan.topic.partitions) == 1
    assert not await fleet.exists("/brokers/topics/t") and not channels.sent


async def test_a_topic_made_by_a_tool_gets_an_id_and_leaders(fleet) -> None:
    _controller, channels = await fleet_of(fleet)
    await fleet.tool.create("/brokers/topics/tool", b'{"version":1,"partitions":{"0":[1,2],"1":[2,0]}}')
    await channels.until(lambda: channels.metadata(0, "tool", 1))
    assert (await fleet.assignment("tool")).topic_id is not None
    assert (await fleet.state("tool", 1))[0].leader == 2


async def test_partitions_grow_by_request_and_by_tool(fleet) -> None:
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


async def test_a_topic_keeps_its_id_when_a_tool_older_than_topic_ids_rewrites_its_znode(fleet) -> None:
    """With another id its replicas would be stray, and its groups' offsets removed, after the next failover."""
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    topic_id = (await fleet.assignment("t")).topic_id
    await fleet.tool.set("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1,2],"1":[2,1]}}')
    await channels.until(lambda: channels.metadata(0, "t", 1))
    assert (await fleet.assignment("t")).topic_id == topic_id


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
async def test_what_cannot_grow_is_refused(fleet, growth, code) -> None:
    controller, _ = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2), 1: (2, 0)})
    (result,) = await controller.create_partitions([growth], timeout_ms=WAIT_MS)
    assert result.error is code and result.message
    assert len((await fleet.assignment("t")).partitions) == 2
    assert controller.is_active and controller.epoch == 1

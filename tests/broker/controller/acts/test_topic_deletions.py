"""Topics go, with brokers that are away, controllers that change and markers that tools make."""

import asyncio
import itertools

import pytest

from ottla_broker.controller.decisions.topic_plans import NewTopic
from ottla_broker.coordination import znodes
from ottla_broker.metadata.cache import MetadataCache
from ottla_broker.ports.coordination import Create
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from tests.broker.controller.fleet import WAIT_MS, Fleet, create, fleet_of


@pytest.mark.parametrize("by_tool", [False, True])
async def test_many_topics_are_deleted_together_and_hold_up_nobody(fleet, by_tool) -> None:
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


async def test_many_deletions_that_wait_for_one_broker_go_on_a_few_at_a_time(fleet) -> None:
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


async def _delete_behind(fleet, controller, names, name):
    """The result of the deletion of `name`, asked for when a tool has just marked all the others."""
    marked = asyncio.Event()
    await fleet.tool.children(znodes.DELETE_TOPICS, lambda _: marked.set())
    marking = fleet.tool.multi([Create(znodes.delete_topic_path(other)) for other in names])
    await marked.wait()
    (result,) = await controller.delete_topics([name], timeout_ms=WAIT_MS)
    await marking
    return result


async def test_a_deletion_behind_many_others_is_answered_once_the_topic_is_out_of_the_metadata(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    names = [f"t{number}" for number in range(60)]
    topics = [NewTopic(name, assignment={0: (1, 2)}) for name in [*names, "z"]]
    await controller.create_topics(topics, timeout_ms=WAIT_MS)
    assert (await _delete_behind(fleet, controller, names, "z")).error is ErrorCode.NONE
    assert channels.metadata(0, "z").leader == -2


async def test_a_deletion_behind_many_others_of_a_topic_that_no_broker_knows_is_answered(fleet) -> None:
    """None of its replicas was ever online: it is in no metadata, and the request that ends it does not name it."""
    await fleet.tool.create(znodes.topic_path("z"), znodes.TopicAssignment({0: (9,)}).encode())
    controller, _ = await fleet_of(fleet)
    names = [f"t{number}" for number in range(60)]
    await controller.create_topics([NewTopic(name, assignment={0: (1, 2)}) for name in names], timeout_ms=WAIT_MS)
    assert (await _delete_behind(fleet, controller, names, "z")).error is ErrorCode.NONE


async def test_the_deletion_of_a_topic_without_partitions_is_answered(fleet) -> None:
    await fleet.tool.create(znodes.topic_path("empty"), znodes.TopicAssignment({}).encode())
    controller, _ = await fleet_of(fleet)
    (result,) = await controller.delete_topics(["empty"], timeout_ms=WAIT_MS)
    assert result.error is ErrorCode.NONE
    assert not await fleet.exists(znodes.topic_path("empty"))


async def test_deleting_a_topic_removes_replicas_then_every_znode(fleet) -> None:
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


async def test_a_deletion_waits_for_a_dead_broker_and_ends_when_it_returns(fleet) -> None:
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


async def test_a_deletion_survives_the_controller(fleet) -> None:
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


async def test_a_broker_without_a_session_during_a_deletion_forgets_the_topic_when_it_is_back(fleet) -> None:
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


async def test_a_deletion_that_a_broker_did_not_hear_of_from_the_last_controller_it_hears_from_the_next(fleet) -> None:
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


async def test_a_marker_made_by_a_tool_deletes_and_one_without_topic_goes(fleet) -> None:
    controller, _channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    await fleet.tool.create("/admin/delete_topics/ghost")
    await fleet.until_gone("/admin/delete_topics/ghost")
    await fleet.tool.create("/admin/delete_topics/t")
    await fleet.until_gone("/brokers/topics/t")
    (result,) = await controller.delete_topics(["t"], timeout_ms=WAIT_MS)
    assert result.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_with_an_unreadable_state_can_be_deleted_and_created_again(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2), 1: (1, 2)})
    heard = list(channels.sent)
    await fleet.tool.set(znodes.PartitionStateZnode.path("t", 0), b"")
    await controller.stop()
    successor, to = await fleet.start_controller(1)
    await successor.delete_topics(["t"], timeout_ms=WAIT_MS)
    await fleet.until_gone("/admin/delete_topics/t")
    assert "t" not in metadata_of(2, heard, to.sent).topics
    asking = asyncio.ensure_future(create(successor, "t", {0: (1, 2)}))
    await to.until(lambda: to.leadership(2, "t"))
    assert (await asking).error is ErrorCode.NONE
    assert (await fleet.state("t"))[0].leader == 1
    to.forget()
    await fleet.bounce(2)
    await to.until(lambda: to.requests(2, ApiKey.LEADER_AND_ISR))
    assert [request.type for request in to.requests(2, ApiKey.LEADER_AND_ISR)] == [2], "what it holds besides is stray"


async def test_a_topic_made_after_one_that_was_removed_by_hand_is_not_deleted_in_its_place(fleet) -> None:
    """Its deletion waited for a dead broker: what administrators then do is to remove its znodes."""
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    await create(controller, "other", {0: (0, 2)})
    await fleet.kill(1)
    await channels.until(lambda: channels.metadata(2, "t").leader == 2)
    await controller.delete_topics(["t"], timeout_ms=WAIT_MS)
    partition = znodes.partition_path("t", 0)
    for path in (f"{partition}/state", partition, "/brokers/topics/t/partitions", "/brokers/topics/t"):
        await fleet.tool.delete(path)
    await fleet.until_gone("/admin/delete_topics/t")
    assert (await create(controller, "t", {0: (2, 0)})).error is ErrorCode.NONE
    channels.forget()
    await controller.delete_topics(["other"], timeout_ms=WAIT_MS)
    await fleet.until_gone("/admin/delete_topics/other")
    await create(controller, "fence", {0: (0,)})
    assert channels.deleted(0) == channels.deleted(2) == {("other", 0)}
    assert (await fleet.state("t"))[0].leader == 2


async def test_a_marker_is_taken_away_when_deletion_is_switched_off(tmp_path) -> None:
    async with Fleet(tmp_path, delete_topic_enable="false") as fleet:
        controller, channels = await fleet_of(fleet)
        await create(controller, "t", {0: (1, 2)})
        await fleet.tool.create("/admin/delete_topics/t")
        await fleet.until_gone("/admin/delete_topics/t")
        assert await fleet.exists("/brokers/topics/t") and not channels.deleted(1)


async def test_a_replica_that_cannot_be_deleted_keeps_the_topic_until_its_broker_restarts(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    channels.delete_errors.add((1, "t", 0))
    await controller.delete_topics(["t"], timeout_ms=WAIT_MS)
    await create(controller, "fence", {0: (0,)})  # everything queued before it has been handled
    assert await fleet.exists("/brokers/topics/t")
    channels.delete_errors.clear()
    await fleet.bounce(1)
    await fleet.until_gone("/brokers/topics/t")

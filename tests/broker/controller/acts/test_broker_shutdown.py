"""Controlled shutdown as the store and the other brokers see it; on the embedded store and on a real ZooKeeper."""

import asyncio
from types import SimpleNamespace

import pytest

from ottla_broker.controller.acts.isr_writes import TopicIsrChanges
from ottla_broker.controller.decisions.isr_changes import IsrChange
from ottla_broker.controller.decisions.topic_plans import NewTopic
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from tests.broker.controller.fleet import WAIT_MS, fleet_of


async def create(controller, name, assignment) -> None:
    (result,) = await controller.create_topics([NewTopic(name, assignment=assignment)], timeout_ms=WAIT_MS)
    assert result.error is ErrorCode.NONE, result.message


def stopped(channels, broker):
    return {
        (topic.topic_name, state.partition_index)
        for request in channels.requests(broker, ApiKey.STOP_REPLICA)
        for topic in request.topic_states
        for state in topic.partition_states
        if not state.delete_partition
    }


def epoch_of(controller, broker):
    return controller._active.context.brokers[broker].epoch


async def test_a_broker_that_shuts_down_leads_nothing_and_is_in_no_isr(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2, 0), 1: (2, 1, 0), 2: (0, 1, 2)})
    channels.forget()
    assert await controller.controlled_shutdown(1, epoch_of(controller, 1)) == []
    for partition, leader, isr in ((0, 2, {2, 0}), (1, 2, {2, 0}), (2, 0, {0, 2})):
        state, _ = await fleet.state("t", partition)
        assert (state.leader, set(state.isr), state.leader_epoch) == (leader, isr, 1)
        for broker in (0, 2):
            assert channels.metadata(broker, "t", partition).leader == leader
    # It follows nobody: new leaders would wait for it.
    assert stopped(channels, 1) == {("t", 0), ("t", 1), ("t", 2)}
    assert channels.metadata(1, "t", 0).leader == 2 and channels.leadership(1, "t", 0) is None


async def test_a_broker_that_shuts_down_gets_its_requests_after_the_others_have_answered(fleet, monkeypatch) -> None:
    monkeypatch.setattr("ottla_broker.controller.controller.ANSWER_WITHIN_S", 60.0)
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2, 0)})
    channels.forget()
    channels.silent.add(2)
    asking = asyncio.ensure_future(controller.controlled_shutdown(1, -1))
    await channels.until(lambda: channels.leadership(2, "t") is not None)
    await asyncio.sleep(0)
    assert not channels.requests(1)
    channels.speak(2)
    assert await asking == []
    assert [key for broker, key, _ in channels.sent if broker == 1] == [ApiKey.UPDATE_METADATA, ApiKey.STOP_REPLICA]


async def test_a_broker_that_does_not_answer_blocks_no_controlled_shutdown(fleet, monkeypatch) -> None:
    monkeypatch.setattr("ottla_broker.controller.controller.ANSWER_WITHIN_S", 0.05)
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2, 0)})
    channels.silent.add(2)
    assert await controller.controlled_shutdown(1, -1) == []
    assert stopped(channels, 1) == {("t", 0)}


async def refusal(asking):
    with pytest.raises(KafkaError) as raised:
        await asking
    return raised.value.code


async def test_a_handover_is_not_told_to_the_next_life_of_the_broker(fleet) -> None:
    """It would stop fetching, and no request would start it again."""
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    channels.silent.add(0)
    epoch = epoch_of(controller, 1)
    asking = asyncio.ensure_future(controller.controlled_shutdown(1, epoch))
    await channels.until(lambda: channels.leadership(2, "t").leader == 2)
    channels.forget()
    await fleet.bounce(1)
    await channels.until(lambda: channels.leadership(1, "t"))
    channels.speak(0)
    assert await refusal(asking) is ErrorCode.STALE_BROKER_EPOCH
    assert not channels.requests(1, ApiKey.STOP_REPLICA)


async def test_a_handover_is_not_told_in_the_next_term_which_does_not_know_who_leaves(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    channels.silent.add(2)
    asking = asyncio.ensure_future(controller.controlled_shutdown(1, epoch_of(controller, 1)))
    await channels.until(lambda: channels.leadership(2, "t").leader == 2)
    await fleet.expire(fleet.brokers[0].session)
    await fleet.announce(fleet.brokers[0].session, 0)
    channels.forget()
    controller.broker_registered()
    await channels.until(lambda: channels.leadership(1, "t"))
    assert controller.epoch == 2
    assert await refusal(asking) is ErrorCode.NOT_CONTROLLER
    assert not channels.requests(1, ApiKey.STOP_REPLICA)


async def test_one_replica_stays_where_it_is_and_is_not_waited_for(fleet) -> None:
    controller, _ = await fleet_of(fleet)
    await create(controller, "single", {0: (1,)})
    assert await controller.controlled_shutdown(1, -1) == []
    state, _ = await fleet.state("single")
    assert (state.leader, state.isr, state.leader_epoch) == (1, (1,), 0)


async def shrink(controller, broker, topic, isr):
    context = controller._active.context
    leadership = next(found for partition, found in context.leadership.items() if partition.topic == topic)
    change = IsrChange(broker, leadership.leader_epoch, leadership.partition_epoch, [(member, -1) for member in isr])
    ((answer,),) = [
        tuple(answers.values())
        for answers in await controller.alter_partitions(
            broker, epoch_of(controller, broker), [TopicIsrChanges(None, topic, {0: change})], 1
        )
    ]
    return answer.error


async def test_a_leader_alone_in_its_isr_goes_on_until_another_has_caught_up(fleet) -> None:
    controller, _ = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    assert await shrink(controller, 1, "t", (1,)) is ErrorCode.NONE
    remaining = await controller.controlled_shutdown(1, -1)
    assert [str(partition) for partition in remaining] == ["t-0"]
    assert (await fleet.state("t"))[0].leader == 1
    # Its follower catches up meanwhile, and the next try finds somebody to hand over to.
    assert await shrink(controller, 1, "t", (1, 2)) is ErrorCode.NONE
    assert await controller.controlled_shutdown(1, -1) == []
    state, _ = await fleet.state("t")
    assert (state.leader, state.isr) == (2, (2,))


async def test_who_has_left_an_isr_is_not_taken_back_before_it_has_restarted(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (0, 1, 2)})
    await controller.controlled_shutdown(1, -1)
    assert await shrink(controller, 0, "t", (0, 2, 1)) is ErrorCode.OPERATION_NOT_ATTEMPTED
    await fleet.bounce(1)
    await channels.until(lambda: not controller._active.context.shutting_down)
    assert await shrink(controller, 0, "t", (0, 2, 1)) is ErrorCode.NONE


async def test_a_whole_fleet_that_goes_waits_for_nobody(fleet) -> None:
    controller, _ = await fleet_of(fleet)
    await create(controller, "t", {0: (0, 1, 2)})
    for broker in (2, 1, 0):
        assert await controller.controlled_shutdown(broker, -1) == []
    state, _ = await fleet.state("t")
    assert (state.leader, state.isr) == (0, (0,))


async def test_a_broker_that_shuts_down_leads_on_where_nobody_else_is_in_sync_whatever_happens(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await create(controller, "alone", {0: (1, 2)})
    assert await shrink(controller, 1, "alone", (1,)) is ErrorCode.NONE
    await create(controller, "left", {0: (2, 1)})
    await controller.controlled_shutdown(1, -1)
    await fleet.kill(2)
    await channels.until(lambda: (channels.metadata(0, "left") or state_of(2)).leader == -1)
    assert (await fleet.state("alone"))[0].leader == 1
    assert (await fleet.state("left"))[0].isr == (2,)


def state_of(leader):
    return SimpleNamespace(leader=leader)


@pytest.mark.parametrize(("broker", "epoch", "code"), [(9, -1, 8), (1, 0, 77)])
async def test_who_is_not_the_living_broker_is_refused_and_nothing_changes(fleet, broker, epoch, code) -> None:
    controller, _ = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    with pytest.raises(KafkaError) as caught:
        await controller.controlled_shutdown(broker, epoch)
    assert caught.value.code == code
    assert (await fleet.state("t"))[0].leader_epoch == 0


async def test_a_controlled_shutdown_is_refused_by_a_broker_that_is_not_the_controller(fleet) -> None:
    await fleet_of(fleet)
    controller, _ = await fleet.start_controller(1)
    with pytest.raises(KafkaError) as caught:
        await controller.controlled_shutdown(1, -1)
    assert caught.value.code is ErrorCode.NOT_CONTROLLER


async def test_a_controller_that_withdraws_stays_active_and_is_never_elected_again(fleet) -> None:
    first, _ = await fleet_of(fleet)
    second, _ = await fleet.start_controller(1)
    first.withdraw()
    second.withdraw()
    assert (await create(first, "t", {0: (0, 1)})) is None and first.is_active
    await first.stop()
    await fleet.until_gone("/controller")
    third, _ = await fleet.start_controller(2)
    assert third.is_active and not second.is_active

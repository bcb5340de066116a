"""Log-directory events (KIP-112): the controller asks the broker, moves leaders away, and takes replicas back."""

import pytest

from ottla_broker.controller.decisions.topic_plans import NewTopic
from ottla_broker.coordination import znodes
from ottla_broker.protocol.api import ApiKey
from tests.broker.controller.fleet import WAIT_MS, Fleet, fleet_of


@pytest.fixture
async def fleet(tmp_path):
    async with Fleet(tmp_path, auto_leader_rebalance_enable="false") as fleet:
        yield fleet


async def create(controller, name, assignment) -> None:
    await controller.create_topics([NewTopic(name, assignment=assignment)], timeout_ms=WAIT_MS)


async def event(fleet, broker, content=None) -> None:
    data = znodes.encode_log_dir_event(broker) if content is None else content
    path = await fleet.tool.create(znodes.LOG_DIR_EVENT_PREFIX, data, sequence=True)
    await fleet.until_gone(path)


async def test_the_broker_is_asked_for_every_replica_and_the_event_goes(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2), 1: (2, 1), 2: (0, 2)})
    channels.forget()
    await event(fleet, 1)
    (asked,) = channels.requests(1, ApiKey.LEADER_AND_ISR)
    assert [state.partition_index for state in asked.topic_states[0].partition_states] == [0, 1]
    assert asked.type == 1 and not channels.requests(2) and not channels.requests(0)


async def test_replicas_of_a_failed_directory_lose_leadership_and_isr_and_get_it_back(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2), 1: (2, 1), 2: (1, 2)})
    await create(controller, "sole", {0: (1,)})
    channels.storage_errors = {(1, "t", 0), (1, "t", 1), (1, "sole", 0)}
    await event(fleet, 1)
    await channels.until(lambda: channels.metadata(0, "sole").leader == -1)
    states = {partition: (await fleet.state("t", partition))[0] for partition in range(3)}
    assert {partition: (state.leader, state.isr) for partition, state in states.items()} == {
        0: (2, (2,)),
        1: (2, (2,)),
        2: (1, (1, 2)),
    }
    assert channels.metadata(0, "t", 0).offline_replicas == [1]
    channels.storage_errors.clear()
    await event(fleet, 1)
    await channels.until(lambda: channels.metadata(0, "sole").leader == 1)
    assert channels.metadata(2, "t", 0).offline_replicas == []
    # The leader has changed while the replica was offline: the broker gets the new one.
    assert (channels.leadership(1, "t", 0).leader, channels.leadership(1, "t", 0).leader_epoch) == (2, 1)


async def test_an_event_written_without_a_controller_is_heeded_by_the_next(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    await fleet.kill(0)
    path = await fleet.tool.create(znodes.LOG_DIR_EVENT_PREFIX, znodes.encode_log_dir_event(1), sequence=True)
    _, channels = await fleet.start_controller(2)
    await fleet.until_gone(path)
    assert channels.requests(1, ApiKey.LEADER_AND_ISR)


async def test_events_of_dead_brokers_and_unreadable_ones_only_go(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    channels.forget()
    await event(fleet, 9)
    await event(fleet, 1, b"no json")
    assert not channels.requests(1)


async def test_a_deletion_that_waits_for_a_failed_directory_goes_on_when_it_is_back(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    channels.storage_errors = {(1, "t", 0)}
    channels.delete_errors = {(1, "t", 0)}
    await event(fleet, 1)
    await channels.until(lambda: channels.metadata(0, "t").leader == 2)
    await controller.delete_topics(["t"], timeout_ms=WAIT_MS)
    await event(fleet, 1)  # another of its directories: asked again, and still not possible
    await create(controller, "fence", {0: (0,)})
    assert await fleet.exists("/brokers/topics/t")
    channels.storage_errors.clear()
    channels.delete_errors.clear()
    await event(fleet, 1)
    await fleet.until_gone("/brokers/topics/t")


async def test_a_directory_that_is_back_before_its_late_answer_does_not_stop_a_deletion(fleet) -> None:
    """It is offline when StopReplica reaches it, and the answer leaves when all partitions are done. Meanwhile it
    is back, and the event has come and gone."""
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2), 1: (1, 2)})
    channels.silent.add(1)
    await controller.delete_topics(["t"], timeout_ms=WAIT_MS)
    assert channels.deleted(1) == {("t", 0), ("t", 1)}
    await event(fleet, 1)  # it is back
    channels.delete_errors = {(1, "t", 0)}
    channels.speak(1, 1)  # the metadata
    channels.speak(1, 1)  # what was answered before it was back
    channels.delete_errors.clear()
    channels.speak(1)
    await fleet.until_gone("/brokers/topics/t")


async def test_a_late_answer_to_leader_and_isr_does_not_stop_a_deletion(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    channels.silent.add(1)
    await event(fleet, 1)  # LeaderAndIsr is on its way
    await controller.delete_topics(["t"], timeout_ms=WAIT_MS)
    await event(fleet, 1)  # back again
    channels.storage_errors = {(1, "t", 0)}
    channels.speak(1)  # 56 for LeaderAndIsr, NONE for the StopReplica behind it
    await fleet.until_gone("/brokers/topics/t")


async def test_a_deletion_goes_on_when_a_late_answer_to_leader_and_isr_says_that_the_directory_is_back(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    await create(controller, "t", {0: (1, 2)})
    channels.storage_errors = {(1, "t", 0)}
    await event(fleet, 1)
    await channels.until(lambda: channels.metadata(0, "t").leader == 2)
    channels.silent.add(1)
    channels.storage_errors.clear()
    await event(fleet, 1)
    await controller.delete_topics(["t"], timeout_ms=WAIT_MS)
    assert not channels.deleted(1)
    channels.speak(1)
    await fleet.until_gone("/brokers/topics/t")

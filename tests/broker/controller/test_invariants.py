"""Random histories of a fleet: whatever dies, returns, is created or deleted, what the store says stays true."""

import random

import pytest

from ottla_broker.controller.acts.isr_writes import TopicIsrChanges
from ottla_broker.controller.decisions.isr_changes import IsrChange
from ottla_broker.controller.decisions.topic_plans import NewTopic, TopicGrowth
from ottla_broker.coordination import znodes
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from tests.broker.controller.fleet import Fleet, fleet_of

WAIT_MS = 60_000
BROKERS = (1, 2, 3, 4)
"""The controller, broker 0, holds no replica and lives."""


async def states_of(fleet):
    """{(topic, partition): (replicas, state, znode version)} of every topic that is not being deleted."""
    found = {}
    marked = set(await fleet.tool.children("/admin/delete_topics"))
    for topic in await fleet.tool.children("/brokers/topics"):
        if topic in marked:
            continue
        for partition, replicas in sorted((await fleet.assignment(topic)).partitions.items()):
            path = znodes.PartitionStateZnode.path(topic, partition)
            if await fleet.exists(path):
                state, stat = await fleet.state(topic, partition)
                found[topic, partition] = (replicas, state, stat.version)
            else:
                found[topic, partition] = (replicas, None, -1)
    return found


async def settled(fleet, controller, channels, alive) -> None:
    """Returns once the controller has seen who is alive and has handled everything before."""

    def has_seen():
        requests = channels.requests(0, ApiKey.UPDATE_METADATA)
        return requests and [broker.id for broker in requests[-1].live_brokers] == [0, *sorted(alive)]

    await channels.until(has_seen)
    await controller.create_topics([NewTopic("barrier", 1, 1)], timeout_ms=WAIT_MS, validate_only=True)


@pytest.mark.parametrize("loss_rate", [0.0, 0.1])
@pytest.mark.parametrize("seed", range(12))
async def test_leaders_are_alive_and_in_sync_and_everybody_was_told(tmp_path, seed, loss_rate) -> None:
    source = random.Random(seed)
    async with Fleet(tmp_path) as fleet:
        controller, channels = await fleet_of(fleet, 1, losing=random.Random(seed), rate=loss_rate)
        for broker in BROKERS:
            await fleet.register(broker)
        alive = set(BROKERS)
        await settled(fleet, controller, channels, alive)
        before = {}
        for step in range(25):
            action = source.choice(["kill", "kill", "return", "return", "bounce", "create", "grow", "delete"])
            topics = sorted({topic for topic, _ in before})
            if action == "kill" and alive:
                victim = source.choice(sorted(alive))
                alive.discard(victim)
                await fleet.kill(victim)
            elif action == "return" and len(alive) < len(BROKERS):
                arrival = source.choice(sorted(set(BROKERS) - alive))
                alive.add(arrival)
                await fleet.register(arrival)
            elif action == "bounce" and alive:
                bounced = source.choice(sorted(alive))
                channels.forget()
                await fleet.bounce(bounced)
                await channels.until(lambda b=bounced: channels.requests(b, ApiKey.UPDATE_METADATA))
            elif action == "create":
                replicas = source.sample(BROKERS, source.randint(1, 3))
                name = f"t{step}"
                await controller.create_topics([NewTopic(name, assignment={0: tuple(replicas)})], timeout_ms=1)
            elif action == "grow" and topics:
                name = source.choice(topics)
                await controller.create_partitions(
                    [TopicGrowth(name, 1 + sum(1 for topic, _ in before if topic == name))], timeout_ms=1
                )
            elif action == "delete" and topics:
                await controller.delete_topics([source.choice(topics)], timeout_ms=WAIT_MS)
            await settled(fleet, controller, channels, alive)
            now = await states_of(fleet)
            for key, (replicas, state, version) in now.items():
                usable = [broker for broker in replicas if broker in alive or broker == 0]
                if state is None:
                    assert not usable, f"{key} has live replicas {usable} and no state"
                    continue
                assert state.isr and set(state.isr) <= set(replicas)
                in_sync = [broker for broker in usable if broker in state.isr]
                if in_sync:
                    assert state.leader in in_sync, f"{key}: leader {state.leader}, in sync {in_sync}"
                    assert set(state.isr) <= set(usable)
                else:
                    assert state.leader == -1
                if key in before and before[key][1] is not None:
                    _, earlier, earlier_version = before[key]
                    assert version >= earlier_version and state.leader_epoch >= earlier.leader_epoch
                    if (state.leader, state.isr) != (earlier.leader, earlier.isr):
                        # No broker asks for ISR changes here: all are the controller's.
                        assert state.leader_epoch > earlier.leader_epoch
                for broker in usable:
                    if broker in alive:
                        told = channels.leadership(broker, *key)
                        if told is not None:
                            assert (told.leader, told.leader_epoch) == (state.leader, state.leader_epoch)
            before = now
            assert controller.is_active and controller.epoch == 1
        for broker in sorted(set(BROKERS) - alive):
            await fleet.register(broker)
        for name in await fleet.tool.children("/admin/delete_topics"):
            await fleet.until_gone(f"/admin/delete_topics/{name}")
        await settled(fleet, controller, channels, set(BROKERS))
        assert controller.offline_partitions() == 0
        assert all(state.leader >= 0 for _, state, _ in (await states_of(fleet)).values())


async def test_a_leader_whose_controller_loses_its_connection_still_gets_every_isr_change(tmp_path) -> None:
    async with Fleet(tmp_path) as fleet:
        controller, channels = await fleet_of(fleet, losing=random.Random(1), rate=0.3)
        await controller.create_topics([NewTopic("t", assignment={0: (1, 2)})], timeout_ms=WAIT_MS)
        epoch = channels.open_brokers[1].epoch
        for version in range(40):
            isr = ((1, -1), (2, -1)) if version % 2 else ((1, -1),)
            change = TopicIsrChanges(None, "t", {0: IsrChange(1, 0, version, isr)})
            ((answer,),) = [found.values() for found in await controller.alter_partitions(1, epoch, [change], 1)]
            assert answer.error is ErrorCode.NONE
            assert answer.leadership.partition_epoch == version + 1
        assert (await fleet.state("t"))[1].version == 40


async def test_the_controller_dies_at_any_moment_of_a_creation_and_nothing_is_half_done(tmp_path) -> None:
    """The successor finds a topic whole or not at all, and gives it leaders."""
    for moment in range(8):
        (tmp_path / str(moment)).mkdir()
        async with Fleet(tmp_path / str(moment)) as fleet:
            controller, _channels = await fleet_of(fleet)
            creation = fleet.brokers[1].clock.spawn(
                controller.create_topics([NewTopic("t", assignment={0: (1, 2), 1: (2, 1)})], timeout_ms=WAIT_MS),
                name="creation",
            )
            step = fleet.brokers[1].clock.call_soon
            for _ in range(moment):
                turn = fleet.brokers[1].clock.create_future()
                step(turn.set_result, None)
                await turn
            await fleet.kill(0)
            creation.cancel()
            successor, to = await fleet.start_controller(1)
            await to.until(lambda successor=successor: successor.is_active)
            if await fleet.exists("/brokers/topics/t"):
                await to.until(lambda to=to: to.metadata(2, "t", 1))
                assert await fleet.exists("/config/topics/t")
                assert [(await fleet.state("t", p))[0].leader for p in (0, 1)] == [1, 2]
            else:
                (result,) = await successor.create_topics([NewTopic("t", assignment={0: (1,)})], timeout_ms=WAIT_MS)
                assert result.error is ErrorCode.NONE

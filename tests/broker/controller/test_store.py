"""Many partition states share a transaction: a refusal, a lost connection or the fence is reported for each one."""

import random

import pytest

from ottla_broker.controller.store import STATES_PER_TRANSACTION, ControllerFenced, ControllerStore, StateConflict
from ottla_broker.controller.values import LeaderAndIsr
from ottla_broker.coordination import znodes
from ottla_broker.records.ids import TopicPartition
from tests.broker.controller.fleet import Fleet, ImpatientClock, LossyCoordination

PARTITIONS = [TopicPartition("t", number) for number in range(STATES_PER_TRANSACTION + 6)]
CONTROLLER_EPOCH = 7


def _state(leader, partition_epoch=0):
    return LeaderAndIsr(
        leader=leader, leader_epoch=3, isr=(leader, 9), partition_epoch=partition_epoch, controller_epoch=1
    )


async def _store(fleet, session=None):
    """A controller's writes, with a state of every partition, led by broker 1."""
    await fleet.tool.create(znodes.CONTROLLER_EPOCH, b"1")
    _, stat = await fleet.tool.get(znodes.CONTROLLER_EPOCH)
    await fleet.tool.create(znodes.topic_path("t"), znodes.TopicAssignment({}, None).encode())
    store = ControllerStore(session or fleet.tool, ImpatientClock(), stat.version)
    made = await ControllerStore(fleet.tool, ImpatientClock(), stat.version).write_leadership(
        {partition: _state(1) for partition in PARTITIONS}, CONTROLLER_EPOCH, new=frozenset(PARTITIONS)
    )
    assert {state.partition_epoch for state in made.values()} == {0}
    return store


async def test_the_others_of_a_refused_transaction_are_written(tmp_path) -> None:
    async with Fleet(tmp_path) as fleet:
        store = await _store(fleet)
        moved, gone = PARTITIONS[5], PARTITIONS[40]
        path = znodes.PartitionStateZnode.path(*moved)
        await fleet.tool.set(path, (await fleet.tool.get(path))[0])
        await fleet.tool.delete(znodes.PartitionStateZnode.path(*gone))
        outcome = await store.write_leadership(
            {partition: _state(2) for partition in PARTITIONS}, CONTROLLER_EPOCH, new=frozenset()
        )
        assert isinstance(outcome[moved], StateConflict) and not outcome[moved].is_gone
        assert isinstance(outcome[gone], StateConflict) and outcome[gone].is_gone
        written = await store.leadership(PARTITIONS)
        for partition in PARTITIONS:
            if partition not in (moved, gone):
                assert (outcome[partition].leader, outcome[partition].partition_epoch) == (2, 1)
                assert written[partition] == outcome[partition]
        assert (written[moved].leader, written[moved].partition_epoch) == (1, 1)
        assert gone not in written


async def test_one_that_exists_already_keeps_no_other_from_being_made(tmp_path) -> None:
    async with Fleet(tmp_path) as fleet:
        store = await _store(fleet)
        more = [*PARTITIONS[-1:], *(TopicPartition("t", 1000 + number) for number in range(5))]
        outcome = await store.write_leadership(
            {partition: _state(2) for partition in more}, CONTROLLER_EPOCH, new=frozenset(more)
        )
        assert isinstance(outcome[PARTITIONS[-1]], StateConflict)
        assert await store.leadership(more[1:]) == {partition: outcome[partition] for partition in more[1:]}


async def test_the_fence_stops_every_one(tmp_path) -> None:
    async with Fleet(tmp_path) as fleet:
        store = await _store(fleet)
        await fleet.tool.set(znodes.CONTROLLER_EPOCH, b"2")
        with pytest.raises(ControllerFenced):
            await store.write_leadership(
                {partition: _state(2) for partition in PARTITIONS}, CONTROLLER_EPOCH, new=frozenset()
            )
        assert {state.leader for state in (await store.leadership(PARTITIONS)).values()} == {1}


@pytest.mark.parametrize("seed", range(20))
async def test_what_a_lost_connection_leaves_open_is_a_conflict_or_written(tmp_path, seed) -> None:
    async with Fleet(tmp_path) as fleet:
        session = LossyCoordination(fleet.tool, random.Random(seed), 0.5)
        store = await _store(fleet, session)
        outcome = await store.write_leadership(
            {partition: _state(2) for partition in PARTITIONS}, CONTROLLER_EPOCH, new=frozenset()
        )
        assert set(outcome) == set(PARTITIONS)
        written = await store.leadership(PARTITIONS)
        assert {(state.leader, state.partition_epoch) for state in written.values()} == {(2, 1)}
        for partition, one in outcome.items():  # a conflict: read it again before deciding again
            assert isinstance(one, StateConflict) or one == written[partition]
        assert session.losses

"""Leader moves on a Kafka in memory: what is interrupted is put back, what is somebody else's is left alone."""

from __future__ import annotations

import pytest

from ottla_operator.concerns.roll.actions import migrate
from ottla_operator.facts.leader_move import LeaderMove
from ottla_operator.ports import KafkaUnavailable
from tests.operator.fleet import Fleet

MOVE = LeaderMove("t", 0, (1, 0, 2), 0)


async def _fleet(*replicas: int) -> Fleet:
    fleet = Fleet()
    await fleet.converge()
    fleet.kafka.partitions = [("t", 0, replicas)]
    fleet.kafka.leaders = {("t", 0): 1}
    return fleet


async def test_a_leadership_moves_and_the_order_stays() -> None:
    fleet = await _fleet(1, 0, 2)
    assert (await migrate(fleet.kafka, [MOVE], (1,), only_restore=False)).restored == (MOVE,)
    assert fleet.kafka.leads() == {0: 1} and fleet.kafka.partitions == [("t", 0, (1, 0, 2))]


async def test_an_assignment_that_somebody_else_has_made_is_left_alone() -> None:
    for replicas in ((2, 1, 0), (1, 2)):
        fleet = await _fleet(*replicas)
        before = list(fleet.kafka.partitions)
        for only_restore in (False, True):
            assert (await migrate(fleet.kafka, [MOVE], (1,), only_restore=only_restore)).restored == (MOVE,)
        assert fleet.kafka.partitions == before and fleet.kafka.reorders == [] and fleet.kafka.elections == []


async def test_an_order_that_is_not_put_back_is_not_over(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = await _fleet(1, 0, 2)

    async def away(*_: object) -> None:
        raise KafkaUnavailable("away")

    with monkeypatch.context() as broken, pytest.raises(KafkaUnavailable):
        broken.setattr(fleet.kafka, "elect_leaders", away)
        await migrate(fleet.kafka, [MOVE], (1,), only_restore=False)
    assert fleet.kafka.partitions == [("t", 0, (0, 1, 2))]
    assert (await migrate(fleet.kafka, [MOVE], (1,), only_restore=True)).restored == (MOVE,)
    assert fleet.kafka.partitions == [("t", 0, (1, 0, 2))]


async def test_a_refused_election_leaves_the_leader_and_the_order() -> None:
    fleet = await _fleet(1, 0, 2)
    fleet.kafka.elects = False
    done = await migrate(fleet.kafka, [MOVE], (1,), only_restore=False)
    assert list(done.refused) == [("t", 0)] and done.restored == (MOVE,)
    assert fleet.kafka.leads() == {1: 1} and fleet.kafka.partitions == [("t", 0, (1, 0, 2))]

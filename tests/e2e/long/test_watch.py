"""What is seen of a roll is cut into batches, and brokers of two racks that are down together are found."""

from __future__ import annotations

from e2e.long.watch import Observation, RestartedBatch, batches, unsafe

RACKS = {0: "a", 1: "b", 2: "c", 3: "a"}
NOBODY: frozenset[int] = frozenset()


def test_a_batch_lasts_from_its_choice_to_its_last_observation() -> None:
    seen = [
        Observation(1.0, "PickNext", (), NOBODY),
        Observation(2.0, "ApplyTemplate", (0, 3), NOBODY),
        Observation(3.0, "WaitReady", (0, 3), frozenset({0, 3})),
        Observation(4.0, "WaitInSync", (0, 3), NOBODY),
        Observation(5.0, "DeletePod", (1,), NOBODY),
        Observation(6.0, "WaitReady", (1,), frozenset({1})),
        Observation(7.0, "", (), NOBODY),
    ]
    assert batches(seen) == [RestartedBatch((0, 3), 2.0, 4.0), RestartedBatch((1,), 5.0, 6.0)]


def test_a_batch_that_is_given_up_before_its_pods_are_deleted_is_none() -> None:
    assert batches([Observation(1.0, "MoveLeaders", (0,), NOBODY), Observation(2.0, "PickNext", (), NOBODY)]) == []


def test_the_same_brokers_restarted_by_two_rolls_are_two_batches() -> None:
    steps = [("WaitReady", (0,)), ("", ()), ("WaitReady", (0,))]
    assert len(batches(Observation(float(at), step, batch, NOBODY) for at, (step, batch) in enumerate(steps))) == 2


def test_brokers_of_one_rack_may_be_down_together() -> None:
    assert unsafe([Observation(1.0, "WaitReady", (0, 3), frozenset({0, 3}))], RACKS) == []


def test_brokers_of_two_racks_that_are_down_in_a_roll_are_reported_once() -> None:
    seen = [Observation(at, "WaitReady", (0, 3), frozenset({0, 2})) for at in (1.0, 2.0)]
    [said] = unsafe(seen, RACKS)
    assert "brokers [0, 2] of racks ['a', 'c']" in said


def test_brokers_that_are_down_without_a_roll_are_not_the_rolls_doing() -> None:
    assert unsafe([Observation(1.0, "", (), frozenset({0, 2}))], RACKS) == []

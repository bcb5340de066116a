"""The seconds of a roll are those of its steps, and of its pods where the step waits for them."""

from __future__ import annotations

from e2e.long.timeline import FleetChange, phases

READY, ENDING, CREATED, RUNNING = ((0, "ready"), (3, "ready")), (0, "ending"), (0, "created"), (0, "running")


def _change(at: float, step: str, *pods: tuple[int, str]) -> FleetChange:
    return FleetChange(at, step, (0, 3), pods)


def test_a_batch_is_in_the_phase_of_its_slowest_member() -> None:
    changes = [
        FleetChange(0.0, "PickNext", (), READY),
        _change(1.0, "ApplyTemplate", *READY),
        _change(1.5, "MoveLeaders", *READY),
        _change(2.5, "DeletePod", *READY),
        _change(3.0, "DeletePod", ENDING, (3, "ending")),
        _change(8.0, "DeletePod", ENDING),
        _change(9.0, "DeletePod", (3, "created")),
        _change(10.0, "WaitReady", RUNNING, (3, "created")),
        _change(11.0, "WaitReady", RUNNING, (3, "running")),
        _change(13.0, "WaitReady", (0, "ready"), (3, "running")),
        _change(14.0, "WaitReady", *READY),
        _change(14.5, "WaitInSync", *READY),
        _change(15.0, "RestoreLeaders", *READY),
        FleetChange(17.0, "PickNext", (), READY),
        FleetChange(18.0, "", (), READY),
    ]
    assert phases(changes) == {
        "ApplyTemplate": 0.5,
        "MoveLeaders": 1.0,
        "DeletePod": 0.5,
        "pods end": 6.0,
        "pods are created and start": 2.0,
        "brokers start": 3.0,
        "WaitReady": 0.5,
        "WaitInSync": 0.5,
        "RestoreLeaders": 2.0,
    }


def test_what_lies_between_two_batches_counts_and_what_lies_outside_does_not() -> None:
    changes = [FleetChange(0.0, "PickNext", (), READY), FleetChange(4.0, "WaitReady", (0,), READY)]
    changes += [FleetChange(5.0, "PickNext", (), READY), FleetChange(6.5, "WaitReady", (3,), READY)]
    changes += [FleetChange(7.5, "PickNext", (), READY), FleetChange(9.0, "", (), READY)]
    assert phases(changes) == {"WaitReady": 2.0, "between batches": 1.5}
    assert phases(changes[:1]) == {}

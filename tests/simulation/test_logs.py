"""What a broker logs with its cause is a mistake, though the broker survives it."""

from __future__ import annotations

import logging

import pytest

from ottla_broker.ports.coordination import ConnectionLoss, SessionExpired
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from simulation.clock import SimulatedClock
from simulation.world import World

_logger = logging.getLogger("ottla.broker-0")


def _problems_of(error: Exception) -> list[str]:
    world = World(1)

    async def main() -> None:
        try:
            raise error
        except type(error):
            _logger.exception("fetching from broker %d failed", 1)

    world.run(main())
    return world.problems


def test_an_exception_that_a_broker_logs_fails_the_run() -> None:
    (problem,) = _problems_of(KeyError("t-0"))
    assert problem.endswith("ottla.broker-0: fetching from broker 1 failed: KeyError('t-0')")


@pytest.mark.parametrize(
    "error",
    [KafkaError(ErrorCode.NOT_CONTROLLER, ""), ConnectionLoss(), SessionExpired()],
    ids=lambda e: type(e).__name__,
)
def test_what_a_fault_explains_does_not(error: Exception) -> None:
    assert _problems_of(error) == []


def test_a_message_without_an_exception_does_not() -> None:
    world = World(1)

    async def main() -> None:
        _logger.error("log directory %s has failed", "/d0")

    world.run(main())
    assert world.problems == []


def test_a_task_that_ends_with_an_exception_fails_the_run() -> None:
    world = World(1)
    clock = SimulatedClock(world.machine("m", "10.0.0.1").start_process())

    async def fails() -> None:
        raise KeyError("t-0")

    async def main() -> None:
        clock.spawn(fails(), name="retention")
        await clock.sleep(1)

    world.run(main())
    assert len(world.problems) == 1
    assert "retention failed: KeyError('t-0')" in world.problems[0]


def test_after_a_run_nobody_listens() -> None:
    before = list(logging.getLogger().handlers)
    assert _problems_of(KeyError("t-0"))
    assert logging.getLogger().handlers == before

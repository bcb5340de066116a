"""The lifecycle of a broker: which states follow each other, and how the steps of a start and a stop run."""

from __future__ import annotations

import asyncio

import pytest

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.server import lifecycle
from ottla_broker.server.lifecycle import (
    ENDED,
    FAILURE_ACTIONS,
    NEXT_STATES,
    BrokerState,
    Failure,
    Lifecycle,
    LifecycleStep,
    StartRefused,
)

START = (BrokerState.STARTING, BrokerState.RECOVERING, BrokerState.JOINING)


class Steps:
    """Steps that record that they ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def step(self, state: BrokerState, name: str) -> LifecycleStep:
        async def run() -> None:
            self.ran.append(name)

        return LifecycleStep(state, name, run)


def test_every_state_has_its_next_ones_and_every_failure_its_action() -> None:
    assert set(NEXT_STATES) == set(BrokerState)
    assert set(FAILURE_ACTIONS) == set(Failure)


def test_a_broker_may_stop_and_halt_in_every_state_before_its_end() -> None:
    for state in set(BrokerState) - ENDED - {BrokerState.STOPPING}:
        assert {BrokerState.STOPPING, BrokerState.HALTED} <= NEXT_STATES[state]


@pytest.mark.parametrize("state", list(BrokerState))
def test_the_page_of_the_lifecycle_names_every_state(state: BrokerState) -> None:
    assert lifecycle.__doc__ is not None and state.value in lifecycle.__doc__


async def test_a_start_runs_its_steps_in_order_and_changes_the_state_with_them() -> None:
    one, steps = Lifecycle(LoopClock()), Steps()
    await one.start([steps.step(state, state.value) for state in START])
    assert steps.ran == ["starting", "recovering", "joining"]
    assert one.state is BrokerState.JOINING


async def test_a_start_leaves_off_when_the_broker_stops_meanwhile() -> None:
    one, steps = Lifecycle(LoopClock()), Steps()

    async def stop() -> None:
        one.enter(BrokerState.STOPPING)

    await one.start(
        [LifecycleStep(BrokerState.STARTING, "stop", stop), steps.step(BrokerState.RECOVERING, "load the logs")]
    )
    assert (one.state, steps.ran) == (BrokerState.STOPPING, [])


async def test_a_start_is_refused_when_the_broker_halts_meanwhile() -> None:
    one, steps = Lifecycle(LoopClock()), Steps()

    async def halt() -> None:
        one.end(BrokerState.HALTED, "no log directory is left")

    with pytest.raises(StartRefused, match="no log directory is left"):
        await one.start(
            [LifecycleStep(BrokerState.STARTING, "halt", halt), steps.step(BrokerState.RECOVERING, "load the logs")]
        )
    assert steps.ran == []


async def test_a_stop_leaves_off_when_the_broker_halts_meanwhile() -> None:
    one, steps = Lifecycle(LoopClock()), Steps()
    one.enter(BrokerState.STOPPING)

    async def halt() -> None:
        one.end(BrokerState.HALTED, "the disk is gone")

    await one.stop(
        [LifecycleStep(BrokerState.STOPPING, "halt", halt), steps.step(BrokerState.STOPPING, "end the session")]
    )
    assert (one.state, steps.ran) == (BrokerState.HALTED, [])


async def test_ready_returns_when_the_broker_runs_and_raises_the_first_reason_of_its_end() -> None:
    running, refused = Lifecycle(LoopClock()), Lifecycle(LoopClock())
    waiting = asyncio.ensure_future(running.ready())
    for state in (BrokerState.RECOVERING, BrokerState.JOINING, BrokerState.RUNNING):
        running.enter(state)
    await waiting
    refused.end(BrokerState.HALTED, "the first reason")
    refused.end(BrokerState.REFUSED, "another reason")
    with pytest.raises(StartRefused, match="the first reason"):
        await refused.ready()


def test_a_stopped_broker_becomes_nothing_else() -> None:
    one = Lifecycle.__new__(Lifecycle)
    one._state = BrokerState.STOPPED
    with pytest.raises(RuntimeError, match="a broker that is stopped cannot become running"):
        one.enter(BrokerState.RUNNING)

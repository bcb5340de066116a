"""The lifecycle of a broker: its states, what each failure does, and how the steps of a start and a stop run.

    state        what the broker does                                         next
    starting     locks its log directories, opens its session with the        recovering
                 coordination store, agrees on cluster id and broker id
    recovering   loads its logs; those not closed cleanly are scanned         joining
    joining      opens its listeners, registers, stands for controller,       running
                 waits for metadata
    running      is ready
    stopping     moves leadership, flushes, marks its directories clean,      stopped
                 resigns as controller, ends its session
    stopped, halted, refused   has ended: it holds nothing any more

A broker may stop or halt in every state before its end, and refuse until its start has succeeded.

    failure                                          does
    a step of the start fails                        refuse: `start` raises StartRefused with what to change
    a log directory fails, another one is left       continue: its replicas are offline
    the last log directory fails                     halt, once that is recorded (`log_dir_recovery.failed_directories`)
    the session with the coordination store expires  continue: the broker registers again once it is connected
    it may not register again (broker id in use,     halt
    another cluster)
    the cluster finalizes a feature that it does     halt
    not support
    the coordination store is lost while it          continue: the next connection tries again
    registers again
    a stop takes longer than                         halt
    ottla.shutdown.timeout.ms
    a background task fails                          continue: the failure is logged

A halt ends the broker as a crash would, and never the process: its timers, tasks, connections and files end, nothing is
flushed, its session expires by itself. The order of the steps is `Broker._start_steps` and `Broker._stop_steps`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla_broker.ports import Clock


class BrokerState(StrEnum):
    """See the module."""

    STARTING = "starting"
    RECOVERING = "recovering"
    JOINING = "joining"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    HALTED = "halted"
    REFUSED = "refused"


_STARTING, _RECOVERING, _JOINING, _RUNNING, _STOPPING, _STOPPED, _HALTED, _REFUSED = BrokerState

ENDED: Final = frozenset({_STOPPED, _HALTED, _REFUSED})

NEXT_STATES: Final[Mapping[BrokerState, frozenset[BrokerState]]] = MappingProxyType(
    {
        _STARTING: frozenset({_RECOVERING, _STOPPING, _HALTED, _REFUSED}),
        _RECOVERING: frozenset({_JOINING, _STOPPING, _HALTED, _REFUSED}),
        _JOINING: frozenset({_RUNNING, _STOPPING, _HALTED, _REFUSED}),
        # The last step of the start may fail after the first metadata has come.
        _RUNNING: frozenset({_STOPPING, _HALTED, _REFUSED}),
        _STOPPING: frozenset({_STOPPED, _HALTED, _REFUSED}),
        _STOPPED: frozenset(),
        # It halts during its start: `start` raises StartRefused all the same.
        _HALTED: frozenset({_REFUSED}),
        _REFUSED: frozenset(),
    }
)


class Failure(Enum):
    """What may end a broker; the value says it in a sentence."""

    START_STEP = "a step of the start fails"
    LOG_DIR = "a log directory fails, another one is left"
    LAST_LOG_DIR = "the last log directory fails"
    REGISTRATION_REFUSED = "it may not register again"
    UNSUPPORTED_FEATURE = "the cluster finalizes a feature that it does not support"
    STOP_OVERDUE = "a stop takes longer than ottla.shutdown.timeout.ms"


class FailureAction(Enum):
    """What a failure does to the broker."""

    REFUSE = "refuse"
    HALT = "halt"
    CONTINUE = "continue"


FAILURE_ACTIONS: Final[Mapping[Failure, FailureAction]] = MappingProxyType(
    {
        Failure.START_STEP: FailureAction.REFUSE,
        Failure.LOG_DIR: FailureAction.CONTINUE,
        Failure.LAST_LOG_DIR: FailureAction.HALT,
        Failure.REGISTRATION_REFUSED: FailureAction.HALT,
        Failure.UNSUPPORTED_FEATURE: FailureAction.HALT,
        Failure.STOP_OVERDUE: FailureAction.HALT,
    }
)


class StartRefused(Exception):
    """The broker cannot start; the message says what prevents it and what to do."""


class LifecycleStep(NamedTuple):
    """One step of a start or a stop, and the state in which it runs."""

    state: BrokerState
    name: str
    run: Callable[[], Awaitable[None]]


class Lifecycle:
    """The state of one broker."""

    def __init__(self, clock: Clock) -> None:
        self._state = BrokerState.STARTING
        self._end_reason: asyncio.Future[str] = clock.create_future()
        self._is_settled = asyncio.Event()
        """The broker is ready, or has ended."""

    @property
    def state(self) -> BrokerState:
        return self._state

    @property
    def is_serving(self) -> bool:
        """The broker is registered, or about to be, and does not stop."""
        return self._state in (BrokerState.JOINING, BrokerState.RUNNING)

    @property
    def has_ended(self) -> bool:
        return self._state in ENDED

    def enter(self, state: BrokerState) -> None:
        """Changes the state; RuntimeError when `NEXT_STATES` does not allow it. Nothing happens in that state."""
        if state is self._state:
            return
        if state not in NEXT_STATES[self._state]:
            raise RuntimeError(f"a broker that is {self._state} cannot become {state}")
        self._state = state
        if state is BrokerState.RUNNING:
            self._is_settled.set()

    def end(self, state: BrokerState, reason: str) -> None:
        """The broker has ended; the first reason counts."""
        self.enter(state)
        if not self._end_reason.done():
            self._end_reason.set_result(reason)
        self._is_settled.set()

    async def start(self, steps: Iterable[LifecycleStep]) -> None:
        """Runs the steps in order; leaves off when a stop has begun. Raises StartRefused when the broker has ended."""
        for step in steps:
            if self._state is BrokerState.STOPPING:
                return
            if self.has_ended:
                raise StartRefused(self._end_reason.result())
            if self._state is not BrokerState.RUNNING:
                self.enter(step.state)
            await step.run()

    async def stop(self, steps: Iterable[LifecycleStep]) -> None:
        """Runs the steps in order, for as long as the broker is in their state: it may halt meanwhile."""
        for step in steps:
            if self._state is not step.state:
                return
            await step.run()

    async def ready(self) -> None:
        """Returns when the broker is ready. Raises StartRefused when it ends before."""
        await self._is_settled.wait()
        if self._end_reason.done():
            raise StartRefused(self._end_reason.result())

    @property
    def ended(self) -> asyncio.Future[str]:
        """Gives the reason once the broker has ended."""
        return self._end_reason

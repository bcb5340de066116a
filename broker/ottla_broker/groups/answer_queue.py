"""AnswerQueue: what follows for each member from the end of a rebalance, for a few members in an iteration of the loop.

When a rebalance of a large group ends, all members are answered, and their session timers start. Each answer wakes the
request that waits for it, which writes and sends a response. What the group has become is not here: it has happened
before the first answer. So a group may change again meanwhile: an answer belongs to a request, whatever comes later,
and a session timer that starts for a member which has gone finds no member when it runs out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ottla_broker.ports.clock import Clock

STEPS_PER_TURN: Final = 40
"""An answer with its response takes 0.1 ms, and each has a timer beside it."""


class AnswerQueue:
    """The answers of all groups of a broker, on its loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steps: deque[Callable[[], None]] = deque()

    def put(self, step: Callable[[], None]) -> None:
        """`step` is called in a later iteration of the loop, behind those that were put before. It does not raise."""
        if not self._steps:
            self._clock.call_soon(self._run)
        self._steps.append(step)

    def _run(self) -> None:
        for _ in range(min(STEPS_PER_TURN, len(self._steps))):
            self._steps.popleft()()
        if self._steps:
            self._clock.call_soon(self._run)

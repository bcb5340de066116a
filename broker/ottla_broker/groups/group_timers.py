"""The timers of one group. Port used: Clock.

Every heartbeat moves a deadline. The clock's timer stays where it is and, when it fires, is armed again for the rest:
one timer per session timeout instead of one per heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from ottla_broker.ports.clock import Clock, Timer

_TIMER_SLACK_S = 0.0005
"""A timer that fires this much early is not armed again."""

Key = TypeVar("Key", bound=Hashable)


class _ArmedTimer:
    """A deadline and the clock's timer towards it, which may be an earlier one."""

    __slots__ = ("deadline", "fires_at", "timer")

    def __init__(self, timer: Timer, deadline: float) -> None:
        self.timer = timer
        self.fires_at = deadline
        self.deadline = deadline


class GroupTimers(Generic[Key]):
    """At most one timer for each key; `on_expiry` is called with the key of one that has run out."""

    def __init__(self, clock: Clock, on_expiry: Callable[[Key], None]) -> None:
        self._clock = clock
        self._on_expiry = on_expiry
        self._timers: dict[Key, _ArmedTimer] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._timers

    def arm(self, key: Key, delay_s: float) -> None:
        """Starts the timer, or moves the deadline of one that runs."""
        deadline = self._clock.monotonic() + delay_s
        armed = self._timers.get(key)
        if armed is not None:
            if armed.fires_at <= deadline:
                armed.deadline = deadline
                return
            armed.timer.cancel()
        self._timers[key] = _ArmedTimer(self._clock.call_later(delay_s, self._fire, key), deadline)

    def cancel(self, key: Key) -> None:
        armed = self._timers.pop(key, None)
        if armed is not None:
            armed.timer.cancel()

    def cancel_all(self) -> None:
        for key in list(self._timers):
            self.cancel(key)

    def _fire(self, key: Key) -> None:
        armed = self._timers.get(key)
        if armed is None:
            return
        rest_s = armed.deadline - self._clock.monotonic()
        if rest_s > _TIMER_SLACK_S:
            armed.fires_at = armed.deadline
            armed.timer = self._clock.call_later(rest_s, self._fire, key)
            return
        del self._timers[key]
        self._on_expiry(key)

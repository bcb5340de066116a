"""The state of the session with the coordination store, for /status.

What the broker does about it is `server.broker`.
"""

from __future__ import annotations

from typing import Any

from ottla_broker.ports import Clock
from ottla_broker.ports.coordination import SessionEvent


class CoordinationSessionState:
    """A listener of session events that records the last state and its time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._state = "connecting"
        self._since_ms = clock.now_ms()
        self._since_s = clock.monotonic()

    def on_event(self, event: SessionEvent) -> None:
        """SUSPENDED and EXPIRED follow each other while no server answers: the loss began with the first."""
        was_lost = self._state in (SessionEvent.SUSPENDED.value, SessionEvent.EXPIRED.value)
        self._state = event.value
        if event is SessionEvent.CONNECTED or not was_lost:
            self._since_ms, self._since_s = self._clock.now_ms(), self._clock.monotonic()

    def status(self) -> dict[str, Any]:
        """`state` is connecting, connected, suspended or expired; since `since_ms` (wall clock), so for `for_ms`."""
        return {
            "state": self._state,
            "since_ms": self._since_ms,
            "for_ms": round((self._clock.monotonic() - self._since_s) * 1000),
        }

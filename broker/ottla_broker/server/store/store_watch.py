"""StoreWatch: has nodes of the coordination store read again when they change. Uses the ports Coordination and Clock.

Not here: which nodes, and what they mean (`read`, which sets its watches again each time).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ottla_broker.ports import Clock, Coordination
from ottla_broker.ports.coordination import CoordinationError, SessionEvent, WatchEvent

_RETRY_S = 1.0


class StoreWatch:
    """Watches for one reader: `listen` before its first read, `follow` after it. It runs on the broker's loop."""

    def __init__(self, coordination: Coordination, clock: Clock) -> None:
        self._coordination = coordination
        self._clock = clock
        self._wake = asyncio.Event()

    def listen(self) -> None:
        """From here on a new session counts as a change: it may have lost its watches."""
        self._coordination.add_session_listener(self._on_session)

    def on_watch(self, event: WatchEvent) -> None:
        """The watcher to give to Coordination."""
        self._wake.set()

    async def follow(self, read: Callable[[], Awaitable[object]]) -> None:
        """Calls `read` after each change, and again a second after a CoordinationError of it. Ends when cancelled.

        The next session reads everything again; a lost answer is asked for again.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await read()
            except CoordinationError:
                self._clock.call_later(_RETRY_S, self._wake.set)

    def _on_session(self, event: SessionEvent) -> None:
        if event is SessionEvent.CONNECTED:
            self._wake.set()

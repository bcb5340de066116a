"""WakeQueue: has delayed fetches check their partitions, all of them in one later turn of the loop.

A fetch that is answered at once for each append would read too little, and no append may run inside another's
bookkeeping. Not here: who waits for what (`partition`), deadlines (`delayed`).
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla_broker.ports import Clock
from ottla_broker.replication.partition import Logger, Waiter


class WakeQueue:
    """The queue of one broker, on its loop."""

    def __init__(self, clock: Clock, logger: Logger) -> None:
        self._clock = clock
        self._logger = logger
        self._woken: list[Waiter] = []
        self._is_scheduled = False

    def wake(self, waiters: Iterable[Waiter]) -> None:
        """Each checks its partitions once. One that is woken by a woken one comes behind all of them."""
        woken = self._woken
        for waiter in waiters:
            if not waiter.is_woken:
                waiter.is_woken = True
                woken.append(waiter)
        if woken and not self._is_scheduled:
            self._is_scheduled = True
            self._clock.call_soon(self.run)

    def run(self) -> None:
        """Has all that are woken check now."""
        for waiter in self._woken:  # which grows meanwhile
            waiter.is_woken = False
            try:
                waiter.on_progress()
            except Exception:
                self._logger.exception("a waiting fetch failed")
        self._woken = []
        self._is_scheduled = False

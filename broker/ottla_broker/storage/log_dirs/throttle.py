"""Limits the rate at which replicas are copied: future replicas by replica.alter.log.dirs.io.max.bytes.per.second,
recreated replicas by ottla.replica.recreate.max.bytes.per.second."""

from __future__ import annotations

from collections.abc import Callable

from ottla_broker.ports.clock import Clock

_MAX_WAIT_S = 0.5
"""A changed rate applies after this time at most, whatever the wait was before."""

NO_LIMIT = 2**63 - 1


class CopyThrottle:
    """Copied bytes are a debt that the rate pays off; nothing is copied while there is a debt.

    Worked example: 1 MiB copied at a rate of 512 KiB/s is paid off after 2 s; if the rate is raised to 1 MiB/s after
    the first of them, half a second later.
    """

    def __init__(self, clock: Clock, rate: Callable[[], int]) -> None:
        """`rate` returns the bytes per second now; 0 stops copying, `NO_LIMIT` never waits."""
        self._clock = clock
        self._rate = rate
        self._debt_bytes = 0.0
        self._paid_at = clock.monotonic()

    def chunk_bytes(self, largest: int) -> int:
        """How much to copy at a time: a second's worth, at most `largest`."""
        return max(1, min(largest, self._rate()))

    def spend(self, size: int) -> None:
        """`size` bytes have been copied."""
        if self._rate() < NO_LIMIT:
            self._pay()
            self._debt_bytes += size

    async def wait(self) -> None:
        """Returns when there is no debt."""
        while pause_s := self.pause_s():
            await self._clock.sleep(pause_s)

    def pause_s(self) -> float:
        """Seconds to wait before the next call, 0 when there is no debt."""
        self._pay()
        rate = self._rate()
        if rate >= NO_LIMIT or (rate > 0 and self._debt_bytes <= 0):
            return 0.0
        due_s = self._debt_bytes / rate if rate else _MAX_WAIT_S
        # At least a millisecond: a remainder of one byte must not make the caller spin.
        return min(_MAX_WAIT_S, max(due_s, 0.001))

    def _pay(self) -> None:
        now = self._clock.monotonic()
        self._debt_bytes = max(0.0, self._debt_bytes - (now - self._paid_at) * min(self._rate(), NO_LIMIT))
        self._paid_at = now

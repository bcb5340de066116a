"""How fast all copies of one kind together may be made: replica.alter.log.dirs.io.max.bytes.per.second for moves
between directories, ottla.replica.recreate.max.bytes.per.second for replicas that are made anew."""

from __future__ import annotations

from collections.abc import Callable

from ottla_broker.ports.clock import Clock

_LONGEST_WAIT_S = 0.5
"""A changed rate is in force after this long, whatever was waited for before."""

NO_LIMIT = 2**63 - 1


class MoveThrottle:
    """Bytes that were copied are a debt, paid off at the rate; nobody copies while there is one.

    Worked example: 1 MiB copied at a rate of 512 KiB/s is paid off after 2 s; raised to 1 MiB/s after the first of
    them, half a second later.
    """

    def __init__(self, clock: Clock, rate: Callable[[], int]) -> None:
        """`rate` gives the bytes per second in force now; 0 stands still, `NO_LIMIT` does not wait."""
        self._clock = clock
        self._rate = rate
        self._debt_bytes = 0.0
        self._seen_at = clock.monotonic()

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
        """Seconds after which to ask again, 0 when there is no debt."""
        self._pay()
        rate = self._rate()
        if rate >= NO_LIMIT or (rate > 0 and self._debt_bytes <= 0):
            return 0.0
        due_s = self._debt_bytes / rate if rate else _LONGEST_WAIT_S
        # Not below a millisecond: a rest of a byte must not make it turn round and round.
        return min(_LONGEST_WAIT_S, max(due_s, 0.001))

    def _pay(self) -> None:
        now = self._clock.monotonic()
        self._debt_bytes = max(0.0, self._debt_bytes - (now - self._seen_at) * min(self._rate(), NO_LIMIT))
        self._seen_at = now

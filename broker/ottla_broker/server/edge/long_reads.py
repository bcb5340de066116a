"""Which long requests are read now: the others wait, and hold their frames alone.

The elements of a request take several times the memory of its frame. All long requests take turns (`server.turns`), so
without a limit the elements of all of them would be there at once. A request that is read competes for turns with those
that are being read, so few are handled at a time as well: as many as end in the time in which others are read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from ottla_broker.ports.clock import Clock
from ottla_broker.protocol.api import ApiKey

MOST_BYTES: Final = 2 << 20
"""Of the frames that are read at a time; a larger one is read alone."""

SMALL_BYTES: Final = 64 << 10
"""Requests of less have a queue of their own: they do not wait for large ones."""

BETWEEN_BROKERS: Final = frozenset(
    int(key)
    for key in (
        ApiKey.FETCH,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    )
)
"""What brokers send each other, each in a queue of its own: replication and transactions wait for no other requests of
clients. Who sends a Fetch is known only once it is read."""


class LongReadQueues:
    """The queues of one broker."""

    def __init__(self, clock: Clock) -> None:
        self._small, self._large = LongReads(clock), LongReads(clock)
        self._between_brokers = {api_key: LongReads(clock) for api_key in BETWEEN_BROKERS}

    def of(self, api_key: int, size: int) -> LongReads:
        """The queue of a request whose frame has `size` bytes."""
        found = self._between_brokers.get(api_key)
        return found if found is not None else self._small if size < SMALL_BYTES else self._large


class LongReads:
    """One queue of long requests, in the order in which they came."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def begin(self, size: int) -> None:
        """Returns when the request may be read; `end` is called in any case behind it.

        Args:
            size: bytes of the frame.
        """
        if not self._waiting and self._has_room(size):
            self._bytes += size
            return
        may_begin: asyncio.Future[None] = self._clock.create_future()
        self._waiting.append((size, may_begin))
        try:
            await may_begin
        except asyncio.CancelledError:
            if may_begin.done() and not may_begin.cancelled():
                self.end(size)
            raise

    def end(self, size: int) -> None:
        """The request is read, or its client is gone."""
        self._bytes -= size
        while self._waiting:
            following, may_begin = self._waiting[0]
            if not may_begin.done():
                if not self._has_room(following):
                    return
                self._bytes += following
                may_begin.set_result(None)
            self._waiting.popleft()

    def _has_room(self, size: int) -> bool:
        return self._bytes == 0 or self._bytes + size <= MOST_BYTES

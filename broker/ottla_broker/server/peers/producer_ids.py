"""Producer ids of idempotent producers: this broker's block of them (`coordination.producer_id_blocks`), one by one."""

from __future__ import annotations

import asyncio

from ottla_broker.coordination.producer_id_blocks import take_block
from ottla_broker.ports.coordination import Coordination


class ProducerIds:
    """Gives out the ids of this broker's current block, and takes the next block when it is used up."""

    def __init__(self, broker_id: int, coordination: Coordination) -> None:
        self._broker_id = broker_id
        self._coordination = coordination
        self._next = 0
        self._last = -1
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        """An id that nobody else has. ConnectionLoss, SessionExpired, ProducerIdsExhausted, ZnodeError."""
        if self._next > self._last:
            async with self._lock:
                if self._next > self._last:  # not filled by whoever held the lock before
                    block = await take_block(self._coordination, self._broker_id)
                    self._next, self._last = block.first, block.last
        producer_id = self._next
        self._next += 1
        return producer_id

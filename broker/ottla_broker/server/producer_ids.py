"""Producer ids of idempotent producers: blocks of 1000 taken from `/latest_producer_id_block`.

Every broker takes blocks by a conditional set on the one znode, so that no id is given out twice in a cluster's life.
Port used: Coordination. What is in the znode is `coordination.znodes`' matter.

A write whose outcome is unknown (the connection broke) is not looked into: the next try reads what is there now and
takes the block behind it. That may leave a block unused, never used twice.
"""

from __future__ import annotations

import asyncio
import logging

from ottla_broker.coordination.znodes import PRODUCER_ID_BLOCK, ProducerIdBlock
from ottla_broker.ports.coordination import BadVersion, ConnectionLoss, Coordination, NodeExists, NoNode

logger = logging.getLogger("ottla.server")

BLOCK_SIZE = 1000
MAX_PRODUCER_ID = 2**63 - 1
_ATTEMPTS = 20


class ProducerIdsExhausted(Exception):
    """There is no id left in 63 bits."""


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
                    block = await self._take_block()
                    self._next, self._last = block.first, block.last
        producer_id = self._next
        self._next += 1
        return producer_id

    async def _take_block(self) -> ProducerIdBlock:
        lost: ConnectionLoss | None = None
        for _ in range(_ATTEMPTS):
            try:
                block = await self._try_to_take()
            except ConnectionLoss as error:
                lost = error
                continue
            if block is not None:
                logger.info("broker %d has producer ids %d to %d", self._broker_id, block.first, block.last)
                return block
        raise lost or ConnectionLoss(PRODUCER_ID_BLOCK, "other brokers were always faster")

    async def _try_to_take(self) -> ProducerIdBlock | None:
        """None when another broker was faster."""
        try:
            data, stat = await self._coordination.get(PRODUCER_ID_BLOCK)
        except NoNode:
            first_block = ProducerIdBlock(self._broker_id, 0, BLOCK_SIZE - 1)
            try:
                await self._coordination.create(PRODUCER_ID_BLOCK, first_block.encode())
            except NodeExists:
                return None
            return first_block
        first = ProducerIdBlock.decode(data).last + 1 if data else 0
        if first > MAX_PRODUCER_ID - BLOCK_SIZE + 1:
            raise ProducerIdsExhausted(f"{PRODUCER_ID_BLOCK} ends at {first - 1}")
        block = ProducerIdBlock(self._broker_id, first, first + BLOCK_SIZE - 1)
        try:
            await self._coordination.set(PRODUCER_ID_BLOCK, block.encode(), stat.version)
        except BadVersion:
            return None
        return block

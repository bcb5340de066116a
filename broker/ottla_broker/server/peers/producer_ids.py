"""Allocates producer ids from this broker's block of them (`coordination.producer_id_blocks`).

Source: kafka.server.ProducerIdManager in ZooKeeper mode.
"""

from __future__ import annotations

import asyncio
import logging

from ottla_broker.coordination.producer_id_blocks import ProducerIdsExhausted, take_block
from ottla_broker.coordination.znodes import ZnodeError
from ottla_broker.ports.coordination import Coordination, CoordinationError
from ottla_broker.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("ottla.server")


class ProducerIds:
    """Allocates the ids of this broker's current block, and claims the next block when it is used up."""

    def __init__(self, broker_id: int, coordination: Coordination) -> None:
        self._broker_id = broker_id
        self._coordination = coordination
        self._next = 0
        self._last = -1
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        """An id that no other producer has.

        Raises:
            ConnectionLoss, SessionExpired, ProducerIdsExhausted, ZnodeError: no block can be claimed.
        """
        if self._next > self._last:
            async with self._lock:
                if self._next > self._last:  # the former holder of the lock has not claimed one
                    block = await take_block(self._coordination, self._broker_id)
                    self._next, self._last = block.first, block.last
        producer_id = self._next
        self._next += 1
        return producer_id

    async def next_for_producer(self) -> int:
        """`next` with the error that a producer gets.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS while the coordination store is away: producers try again;
                UNKNOWN_SERVER_ERROR when there are no ids.
        """
        try:
            return await self.next()
        except CoordinationError as error:
            logger.warning("no producer id: %s", error)
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from error
        except (ZnodeError, ProducerIdsExhausted) as error:
            logger.error("no producer id: %s", error)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from error

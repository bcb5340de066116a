"""Blocks of 1000 producer ids, allocated in `/latest_producer_id_block`.

A conditional set of the znode allocates a block, so that no id is allocated twice in a cluster. Each broker allocates
its own blocks; the controller also does so for brokers that send AllocateProducerIds (KIP-730). On the calling side of
the Coordination port. Not here: the assignment of ids to producers (`server.peers.producer_ids`).

After a write with an unknown outcome (ConnectionLoss) the next attempt reads the znode again and allocates the block
after it. A block may stay unused, but none is used twice.

Source: kafka.coordinator.transaction.ZkProducerIdManager.
"""

from __future__ import annotations

import logging
from typing import Final

from ottla_broker.coordination.znodes import PRODUCER_ID_BLOCK, ProducerIdBlock
from ottla_broker.ports.coordination import BadVersion, ConnectionLoss, Coordination, NodeExists, NoNode

logger = logging.getLogger("ottla.server")

BLOCK_SIZE: Final = 1000
MAX_PRODUCER_ID: Final = 2**63 - 1
_ATTEMPTS: Final = 20


class ProducerIdsExhausted(Exception):
    """All producer ids are allocated."""


async def take_block(coordination: Coordination, broker_id: int) -> ProducerIdBlock:
    """Allocates the next block to the broker.

    Raises:
        ConnectionLoss, SessionExpired: the coordination store is not available, or other brokers were always faster.
        ProducerIdsExhausted: no block is left.
        ZnodeError: the znode cannot be decoded.
    """
    lost: ConnectionLoss | None = None
    for _ in range(_ATTEMPTS):
        try:
            block = await _try_to_take(coordination, broker_id)
        except ConnectionLoss as error:
            lost = error
            continue
        if block is not None:
            logger.info("broker %d allocates producer ids %d to %d", broker_id, block.first, block.last)
            return block
    raise lost or ConnectionLoss(PRODUCER_ID_BLOCK, f"{PRODUCER_ID_BLOCK} changed at each of {_ATTEMPTS} attempts")


async def _try_to_take(coordination: Coordination, broker_id: int) -> ProducerIdBlock | None:
    """None when another broker allocated the block first."""
    try:
        data, stat = await coordination.get(PRODUCER_ID_BLOCK)
    except NoNode:
        first_block = ProducerIdBlock(broker_id, 0, BLOCK_SIZE - 1)
        try:
            await coordination.create(PRODUCER_ID_BLOCK, first_block.encode())
        except NodeExists:
            return None
        return first_block
    first = ProducerIdBlock.decode(data).last + 1 if data else 0
    if first > MAX_PRODUCER_ID - BLOCK_SIZE + 1:
        raise ProducerIdsExhausted(f"{PRODUCER_ID_BLOCK} ends at {first - 1}")
    block = ProducerIdBlock(broker_id, first, first + BLOCK_SIZE - 1)
    try:
        await coordination.set(PRODUCER_ID_BLOCK, block.encode(), stat.version)
    except BadVersion:
        return None
    return block

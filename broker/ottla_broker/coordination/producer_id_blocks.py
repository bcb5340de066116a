"""Blocks of 1000 producer ids, taken from `/latest_producer_id_block`.

Brokers take blocks by a conditional set on the one znode, so that no id is given out twice in a cluster's life: each of
ours for itself, and the controller for the brokers that ask it (AllocateProducerIds, KIP-730). On the calling side of
the Coordination port. Not here: giving the ids of a block out (`server.producer_ids`).

A write whose outcome is unknown (the connection broke) is not looked into: the next try reads what is there now and
takes the block behind it. That may leave a block unused, never used twice.
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
    """There is no id left in 63 bits."""


async def take_block(coordination: Coordination, broker_id: int) -> ProducerIdBlock:
    """The next block, which is this broker's from now on. ConnectionLoss, SessionExpired, ProducerIdsExhausted,
    ZnodeError."""
    lost: ConnectionLoss | None = None
    for _ in range(_ATTEMPTS):
        try:
            block = await _try_to_take(coordination, broker_id)
        except ConnectionLoss as error:
            lost = error
            continue
        if block is not None:
            logger.info("broker %d has producer ids %d to %d", broker_id, block.first, block.last)
            return block
    raise lost or ConnectionLoss(PRODUCER_ID_BLOCK, "other brokers were always faster")


async def _try_to_take(coordination: Coordination, broker_id: int) -> ProducerIdBlock | None:
    """None when another broker was faster."""
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

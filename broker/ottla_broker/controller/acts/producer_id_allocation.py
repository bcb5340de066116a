"""Allocates a block of producer ids for a broker that asks: AllocateProducerIds (KIP-730).

Our brokers take their blocks from the coordination store themselves; those of Apache Kafka 3.0 and later ask the
controller. Both use the same conditional write (`coordination.producer_id_blocks`), which needs no fence: a controller
that has been replaced without noticing still allocates ids that no other broker has. Not here: the request on the wire.
"""

from __future__ import annotations

import logging

from ottla_broker.controller.context import ControllerContext
from ottla_broker.controller.store import ControllerStore
from ottla_broker.coordination.producer_id_blocks import ProducerIdsExhausted
from ottla_broker.coordination.znodes import ProducerIdBlock, ZnodeError
from ottla_broker.ports.coordination import ConnectionLoss
from ottla_broker.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("ottla.controller")


async def allocate_producer_ids(
    context: ControllerContext, store: ControllerStore, broker: int, broker_epoch: int
) -> ProducerIdBlock:
    """A new block for this broker.

    Raises:
        KafkaError: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH, UNKNOWN_SERVER_ERROR (the store gives no block).
    """
    living = context.brokers.get(broker)
    if living is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker} is not alive")
    if living.epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH, f"broker {broker} has the epoch {living.epoch}, not {broker_epoch}"
        )
    try:
        return await store.take_producer_ids(broker)
    except (ConnectionLoss, ZnodeError, ProducerIdsExhausted) as error:
        logger.error("no producer ids for broker %d: %s", broker, error)
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error

"""AllocateProducerIds: the controller takes a block of producer ids for a broker that asks (KIP-730).

Our brokers take their blocks from the store themselves; those of Apache Kafka from 3.0 on ask the controller, whoever
it is. Both take them by the same conditional write (`coordination.producer_id_blocks`), which needs no fence: a
controller that has been replaced without knowing it still gives out ids that nobody else has. Not here: the request on
the wire.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla_broker.coordination.producer_id_blocks import ProducerIdsExhausted
from ottla_broker.coordination.znodes import ProducerIdBlock, ZnodeError
from ottla_broker.ports.coordination import ConnectionLoss
from ottla_broker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla_broker.controller.active import ActiveController

logger = logging.getLogger("ottla.controller")


async def allocate_producer_ids(active: ActiveController, broker: int, broker_epoch: int) -> ProducerIdBlock:
    """The block. KafkaError: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH, UNKNOWN_SERVER_ERROR (none can be had)."""
    living = active.context.brokers.get(broker)
    if living is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker} is not alive")
    if living.epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH, f"broker {broker} has the epoch {living.epoch}, not {broker_epoch}"
        )
    try:
        return await active.store.take_producer_ids(broker)
    except (ConnectionLoss, ZnodeError, ProducerIdsExhausted) as error:
        logger.error("no producer ids for broker %d: %s", broker, error)
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error

"""AllocateProducerIds (key 67, broker to controller; KIP-730): a block of producer ids for the broker that asks.

Behaviour
    Takes the next 1000 ids from `/latest_producer_id_block`, for the sender alone.
Errors, in this order
    NOT_CONTROLLER, BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH, UNKNOWN_SERVER_ERROR (no block can be had; the broker
    asks again).
Versions
    0.
"""

from __future__ import annotations

from ottla_broker.protocol.errors import KafkaError
from ottla_broker.protocol.generated.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services


async def handle(
    services: Services, context: RequestContext, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    """Answers when the block stands in the store."""
    try:
        block = await services.controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
    except KafkaError as error:
        return AllocateProducerIdsResponse(error_code=int(error.code))
    return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.last - block.first + 1)

"""InitProducerId (key 22).

Behaviour
    Gives an idempotent producer a new id, with epoch 0, on any broker; also one that names its former id (KIP-360).
    Transactions are not served: a transactional id is refused with an error that every client takes as final.
Errors, in this order
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED, INVALID_REQUEST (producer id without epoch, or the other way round),
    COORDINATOR_LOAD_IN_PROGRESS (no ids can be allocated from ZooKeeper at the moment: clients retry).
Versions
    1: throttling before the response. 2: flexible. 3: producer id and epoch (KIP-360). 4: PRODUCER_FENCED (KIP-588).
    5: TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

import logging

from ottla_broker.coordination.producer_id_blocks import ProducerIdsExhausted
from ottla_broker.coordination.znodes import ZnodeError
from ottla_broker.ports.coordination import CoordinationError
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services

logger = logging.getLogger("ottla.server")

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


async def handle(services: Services, context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return _failed(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _failed(ErrorCode.INVALID_REQUEST)
    try:
        producer_id = await services.producer_ids.next()
    except CoordinationError as error:
        logger.warning("no producer id for %s: %s", context.client_id, error)
        return _failed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    except (ZnodeError, ProducerIdsExhausted) as error:
        logger.error("no producer id for %s: %s", context.client_id, error)
        return _failed(ErrorCode.UNKNOWN_SERVER_ERROR)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _failed(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=int(error), producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)

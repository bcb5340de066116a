"""EndTxn (key 26), at the transaction coordinator: commits or aborts a transaction.

Behaviour
    Answers when the outcome is committed in `__transaction_state`; the markers follow. Until they are all written the
    next request of the producer gets CONCURRENT_TRANSACTIONS. A request that is sent again after the transaction has
    ended the same way succeeds.
    From v5 on each end raises the producer epoch, and the response has the next one, with the next producer id when the
    epochs are used up. A request that is sent again names the epoch before. A producer may abort without having added a
    partition.
Rights, in this order
    Write:TransactionalId (the transactional id): the error of the whole answer.
Errors, in this order
    INVALID_REQUEST, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
    CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE, COORDINATOR_NOT_AVAILABLE (the record is not committed).
Versions
    1: throttling before the response. 2: PRODUCER_FENCED, which is INVALID_PRODUCER_EPOCH before (KIP-588).
    3: flexible. 4: TRANSACTION_ABORTABLE. 5: raised epochs, ProducerId and ProducerEpoch (both KIP-890).
"""

from __future__ import annotations

from ottla_broker.protocol.generated.end_txn import EndTxnRequest, EndTxnResponse
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.transaction_errors import error_code

_FIRST_VERSION_WITH_EPOCHS = 5


async def handle(services: Services, context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    """Waits until the record is committed."""
    coordinator, version = services.transaction_coordinator, context.api_version
    producer = (request.transactional_id, request.producer_id, request.producer_epoch)
    if version < _FIRST_VERSION_WITH_EPOCHS:
        error = await coordinator.end(*producer, is_commit=request.committed)
        return EndTxnResponse(error_code=error_code(error, version))
    answer = await coordinator.end_with_next_epoch(*producer, is_commit=request.committed)
    return EndTxnResponse(
        error_code=error_code(answer.error, version),
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
    )

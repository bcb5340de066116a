"""EndTxn (key 26), at the transaction coordinator: commits or aborts a transaction.

Behaviour
    Answers when the outcome is committed in `__transaction_state`; the markers follow. Until they are all written the
    next request of the producer gets CONCURRENT_TRANSACTIONS. A request that is sent again after the transaction has
    ended the same way succeeds.
Errors, in this order
    INVALID_REQUEST, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
    CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE, COORDINATOR_NOT_AVAILABLE (the record is not committed).
Versions
    1: throttling before the response. 2: PRODUCER_FENCED, which is INVALID_PRODUCER_EPOCH before (KIP-588).
    3: flexible. 4: TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from ottla_broker.protocol.generated.end_txn import EndTxnRequest, EndTxnResponse
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.transaction_errors import error_code


async def handle(services: Services, context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    """Waits until the record is committed."""
    error = await services.transaction_coordinator.end(
        request.transactional_id, request.producer_id, request.producer_epoch, is_commit=request.committed
    )
    return EndTxnResponse(error_code=error_code(error, context.api_version))

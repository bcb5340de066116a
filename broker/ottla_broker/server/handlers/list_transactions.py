"""ListTransactions (key 66, KIP-664): the transactional ids that this broker coordinates.

Behaviour
    The filters are joined by "and". States that are unknown are named in the response, and match nothing. The
    transactional id has to match the expression as a whole; null and empty match every one.
Rights, in this order
    Describe:TransactionalId (each transaction): left out of the answer.
Errors, in this order
    COORDINATOR_NOT_AVAILABLE (the broker is stopping), COORDINATOR_LOAD_IN_PROGRESS, INVALID_REGULAR_EXPRESSION.
Versions
    0: flexible. 1: DurationFilter (KIP-994). 2: TransactionalIdPattern (KIP-1152), an expression of RE2.
"""

from __future__ import annotations

from typing import Final

from ottla_broker.authorization.resources import AclOperation, ResourceType
from ottla_broker.groups.consumer.topic_expressions import InvalidExpression, compiled
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.transactions.states import STATE_NAMES

_STATES: Final = {name: state for state, name in STATE_NAMES.items()}


async def handle(
    services: Services, context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """Answers at once."""
    names = {name async for name in context.each(request.state_filters)}
    states = {state for name, state in _STATES.items() if name in names} if names else None
    producer_ids = {producer_id async for producer_id in context.each(request.producer_id_filters)}
    error, found = services.transaction_coordinator.list(producer_ids, states, request.duration_filter)
    if error is not ErrorCode.NONE:
        return ListTransactionsResponse(error_code=int(error))
    if request.transactional_id_pattern:
        try:
            pattern = compiled(request.transactional_id_pattern)
        except InvalidExpression:
            return ListTransactionsResponse(error_code=int(ErrorCode.INVALID_REGULAR_EXPRESSION))
        found = [one async for one in context.each(found, 2) if pattern.fullmatch(one.transactional_id) is not None]
    hidden = await context.denied_of_many(
        AclOperation.DESCRIBE,
        ResourceType.TRANSACTIONAL_ID,
        (one.transactional_id for one in found),
        logs=False,
    )
    return ListTransactionsResponse(
        unknown_state_filters=await context.sorted([name async for name in context.each(names) if name not in _STATES]),
        transaction_states=[
            TransactionState(
                transactional_id=one.transactional_id,
                producer_id=one.producer_id,
                transaction_state=STATE_NAMES[one.state],
            )
            async for one in context.each(found)
            if one.transactional_id not in hidden
        ],
    )

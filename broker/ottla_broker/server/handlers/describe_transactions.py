"""DescribeTransactions (key 65, at the coordinators; KIP-664): describes transactions by transactional id.

Behaviour
    No broker of this release coordinates transactions (FindCoordinator refuses every transactional id), so it is not
    the coordinator of any id.
Errors, in this order, for each id
    INVALID_REQUEST (an empty one), NOT_COORDINATOR.
Versions
    0 is the only one, and flexible.
"""

from __future__ import annotations

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ottla_broker.server.handler_api import RequestContext, Services


async def handle(
    services: Services, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Answers at once."""
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(
                transactional_id=name,
                error_code=int(ErrorCode.NOT_COORDINATOR if name else ErrorCode.INVALID_REQUEST),
            )
            for name in request.transactional_ids
        ]
    )

"""ListTransactions (key 66, KIP-664): the transactions that this broker coordinates.

Behaviour
    No broker of this release coordinates transactions: there are none, whatever the filters say. Unknown states
    are named in the response.
Errors, in this order
    None.
Versions
    0: flexible. 1: DurationFilter (KIP-994).
"""

from __future__ import annotations

from typing import Final

from ottla_broker.protocol.generated.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla_broker.server.handler_api import RequestContext, Services

STATES: Final = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
)


async def handle(
    services: Services, context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """Answers at once."""
    return ListTransactionsResponse(unknown_state_filters=sorted(set(request.state_filters) - STATES))

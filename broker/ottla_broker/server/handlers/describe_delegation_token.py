"""DescribeDelegationToken (key 41): the tokens of owners (KIP-48).

Behaviour
    Only an authenticated client may have tokens, and they are not served yet.
Rights, in this order
    DescribeTokens:User (each owner of tokens of others): the next right decides.
    Describe:DelegationToken (each token of others): left out of the answer.
Errors, in this order
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (not authenticated), DELEGATION_TOKEN_AUTH_DISABLED.
Versions
    0: KIP-48. 1: throttle time counts at the client (KIP-219). 2: flexible. 3: requesters (KIP-373).
"""

from __future__ import annotations

from ottla_broker.protocol.generated.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.delegation_tokens import refusal


async def handle(
    services: Services, context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """Answers at once."""
    return DescribeDelegationTokenResponse(error_code=int(refusal(context)))

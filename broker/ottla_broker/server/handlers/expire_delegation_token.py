"""ExpireDelegationToken (key 40): expires a token, now or at a time (KIP-48).

Behaviour
    Only an authenticated client may have tokens, and they are not served yet.
Errors, in this order
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (not authenticated), DELEGATION_TOKEN_AUTH_DISABLED.
Versions
    0: KIP-48. 1: throttle time counts at the client (KIP-219). 2: flexible.
"""

from __future__ import annotations

from ottla_broker.protocol.generated.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.delegation_tokens import refusal

_NEVER = -1


async def handle(
    services: Services, context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Answers at once."""
    return ExpireDelegationTokenResponse(error_code=int(refusal(context)), expiry_timestamp_ms=_NEVER)

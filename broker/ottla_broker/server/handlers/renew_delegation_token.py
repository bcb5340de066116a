"""RenewDelegationToken (key 39): postpones the expiry of a token (KIP-48).

Behaviour
    The token then expires after the period that is asked for, delegation.token.expiry.time.ms for a negative one, and
    not behind its longest lifetime. Owner, requester and renewers may do it; no ACL gives the right. Any broker serves
    it.
Errors, in this order
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (not authenticated, or only by a token), DELEGATION_TOKEN_AUTH_DISABLED (no
    delegation.token.secret.key), DELEGATION_TOKEN_NOT_FOUND (no token has this hmac, or this broker has not read of it
    yet), DELEGATION_TOKEN_OWNER_MISMATCH, DELEGATION_TOKEN_EXPIRED.
Versions
    0: KIP-48. 1: throttle time counts at the client (KIP-219). 2: flexible.
"""

from __future__ import annotations

from ottla_broker.protocol.errors import KafkaError
from ottla_broker.protocol.generated.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from ottla_broker.security.delegation_tokens import renewed
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.delegation_tokens import tokens_of

_NEVER = -1


async def handle(
    services: Services, context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Raises CoordinationError when the store cannot be reached; the token may have been renewed."""
    try:
        tokens = tokens_of(services, context)
        now_ms, periods = services.clock.now_ms(), tokens.periods
        token = await tokens.change(
            bytes(request.hmac),
            lambda token: renewed(token, context.principal, request.renew_period_ms, now_ms, periods),
        )
    except KafkaError as error:
        return RenewDelegationTokenResponse(error_code=int(error.code), expiry_timestamp_ms=_NEVER)
    assert token is not None
    return RenewDelegationTokenResponse(expiry_timestamp_ms=token.expiry_timestamp_ms)

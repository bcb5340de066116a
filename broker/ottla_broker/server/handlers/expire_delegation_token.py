"""ExpireDelegationToken (key 40): expires a token, now or at a time (KIP-48).

Behaviour
    A negative period removes the token, also one that has expired. Any other is when it expires, counted from now, and
    not behind its longest lifetime. Owner, requester and renewers may do it; no ACL gives the right. Who has
    authenticated by the token stays connected until its session ends. Any broker serves it.
Errors, in this order
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (not authenticated, or only by a token), DELEGATION_TOKEN_AUTH_DISABLED (no
    delegation.token.secret.key), DELEGATION_TOKEN_NOT_FOUND (no token has this hmac, or this broker has not read of it
    yet), DELEGATION_TOKEN_OWNER_MISMATCH, DELEGATION_TOKEN_EXPIRED.
Versions
    0: KIP-48. 1: throttle time counts at the client (KIP-219). 2: flexible.
"""

from __future__ import annotations

from ottla_broker.protocol.errors import KafkaError
from ottla_broker.protocol.generated.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from ottla_broker.security.delegation_tokens import expired
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.delegation_tokens import tokens_of

_NEVER = -1


async def handle(
    services: Services, context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Raises CoordinationError when the store cannot be reached; the token may have been expired."""
    now_ms = services.clock.now_ms()
    try:
        token = await tokens_of(services, context).change(
            bytes(request.hmac),
            lambda token: expired(token, context.principal, request.expiry_time_period_ms, now_ms),
        )
    except KafkaError as error:
        return ExpireDelegationTokenResponse(error_code=int(error.code), expiry_timestamp_ms=_NEVER)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms if token is None else token.expiry_timestamp_ms)

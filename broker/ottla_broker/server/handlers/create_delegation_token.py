"""CreateDelegationToken (key 38): a token by which its holder authenticates as its owner (KIP-48).

Behaviour
    Only an authenticated client may have tokens, and they are not served yet. The response names the requested owner,
    and who asks for it.
Rights, in this order
    CreateTokens:User (another owner than the requester): the error of the whole answer.
Errors, in this order
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (not authenticated), DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    DELEGATION_TOKEN_AUTH_DISABLED.
Versions
    0: KIP-48. 1: throttle time counts at the client (KIP-219). 2: flexible. 3: owner and requester (KIP-373).
"""

from __future__ import annotations

from ottla_broker.authorization.resources import AclOperation, ResourceType
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla_broker.security.principals import ANONYMOUS
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.delegation_tokens import refusal

_NEVER = -1


async def handle(
    services: Services, context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Answers at once."""
    requester_type, requester = owner_type, owner = context.principal.type, context.principal.name
    if request.owner_principal_name:
        owner = request.owner_principal_name
        owner_type = owner_type if request.owner_principal_type is None else request.owner_principal_type
    error = refusal(context)
    is_other = (owner_type, owner) != (requester_type, requester)
    if is_other and context.principal != ANONYMOUS:
        name = f"{owner_type}:{owner}"
        if not context.may(AclOperation.CREATE_TOKENS, ResourceType.USER, name):
            error = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    response = CreateDelegationTokenResponse(
        error_code=int(error),
        principal_type=owner_type,
        principal_name=owner,
        issue_timestamp_ms=_NEVER,
        expiry_timestamp_ms=_NEVER,
        max_timestamp_ms=_NEVER,
    )
    if context.api_version >= 3:
        response.token_requester_principal_type, response.token_requester_principal_name = requester_type, requester
    return response

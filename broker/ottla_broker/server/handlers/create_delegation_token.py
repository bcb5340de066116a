"""CreateDelegationToken (key 38): a token by which its holder authenticates as its owner (KIP-48).

Behaviour
    The owner is the requester when none is named. The response names both. The token expires after
    delegation.token.expiry.time.ms and can be renewed until the lifetime that is asked for is over,
    delegation.token.max.lifetime.ms at most. It is in force on this broker when it answers, on the others when they
    have read the notification. Any broker serves it.
Rights, in this order
    CreateTokens:User (another owner than the requester): the error of the whole answer.
Errors, in this order
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (not authenticated, or only by a token), DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    INVALID_PRINCIPAL_TYPE (a renewer is no User; unlike in Apache Kafka, an owner without a type),
    DELEGATION_TOKEN_AUTH_DISABLED (no delegation.token.secret.key), INVALID_REQUEST (more renewers than a znode holds).
Versions
    0: KIP-48. 1: throttle time counts at the client (KIP-219). 2: flexible. 3: owner and requester (KIP-373).
"""

from __future__ import annotations

from ottla_broker.authorization.resources import AclOperation, ResourceType
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla_broker.security.delegation_tokens import DelegationToken
from ottla_broker.security.principals import USER, Principal
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.delegation_tokens import enabled, may_ask

_NEVER = -1


async def handle(
    services: Services, context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Raises CoordinationError when the store cannot be reached; the token may have been created."""
    requester = owner = Principal(context.principal.type, context.principal.name)
    if request.owner_principal_name:
        owner_type = request.owner_principal_type
        owner = Principal(requester.type if owner_type is None else owner_type, request.owner_principal_name)
    response = CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        issue_timestamp_ms=_NEVER,
        expiry_timestamp_ms=_NEVER,
        max_timestamp_ms=_NEVER,
    )
    if context.api_version >= 3:
        response.token_requester_principal_type, response.token_requester_principal_name = (
            requester.type,
            requester.name,
        )
    try:
        token = await _create(services, context, request, owner, requester)
    except KafkaError as error:
        response.error_code = int(error.code)
        return response
    response.issue_timestamp_ms = token.issue_timestamp_ms
    response.expiry_timestamp_ms = token.expiry_timestamp_ms
    response.max_timestamp_ms = token.max_timestamp_ms
    response.token_id = token.token_id
    response.hmac = enabled(services).hmac(token)
    return response


async def _create(
    services: Services,
    context: RequestContext,
    request: CreateDelegationTokenRequest,
    owner: Principal,
    requester: Principal,
) -> DelegationToken:
    """Raises KafkaError."""
    if not may_ask(context):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if owner != requester and not context.may(AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    renewers: dict[Principal, None] = {}
    async for one in context.each(request.renewers):
        if one.principal_type != USER:
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
        renewers[Principal(one.principal_type, one.principal_name)] = None
    if not owner.type or ":" in owner.type:  # as text it would be another one
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    return await enabled(services).create(owner, requester, tuple(renewers), request.max_lifetime_ms)

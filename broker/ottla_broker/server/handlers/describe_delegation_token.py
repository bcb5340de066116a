"""DescribeDelegationToken (key 41): the tokens of owners (KIP-48).

Behaviour
    Null asks for every token; a list for those that one of these users owns, has asked for or may renew; an empty one
    for none. One's own tokens are shown, and those that one may renew. Who sees a token is told its hmac: whoever may
    describe tokens may log in by them. Any broker serves it.
Rights, in this order
    DescribeTokens:User (each owner of tokens of others): the next right decides.
    Describe:DelegationToken (each token of others): left out of the answer.
Errors, in this order
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (not authenticated, or only by a token), DELEGATION_TOKEN_AUTH_DISABLED (no
    delegation.token.secret.key).
Versions
    0: KIP-48. 1: throttle time counts at the client (KIP-219). 2: flexible. 3: requesters (KIP-373).
"""

from __future__ import annotations

from ottla_broker.authorization.resources import AclOperation, ResourceType
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.protocol.generated.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla_broker.security.delegation_tokens import DelegationToken, is_described
from ottla_broker.security.principals import Principal
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.delegation_tokens import tokens_of

_COST_OF_A_TOKEN = 4


async def handle(
    services: Services, context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """In no order that means anything."""
    try:
        tokens = tokens_of(services, context)
    except KafkaError as error:
        return DescribeDelegationTokenResponse(error_code=int(error.code))
    owners: set[Principal] | None = None
    if request.owners is not None:
        owners = {Principal(one.principal_type, one.principal_name) async for one in context.each(request.owners)}

    def may_see(token: DelegationToken) -> bool:
        return context.may(
            AclOperation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner), logs=False
        ) or context.may(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id, logs=False)

    response = DescribeDelegationTokenResponse()
    if owners == set():
        return response
    async for token in context.each(list(tokens.known), _COST_OF_A_TOKEN):
        if is_described(token, context.principal, owners, may_see):
            response.tokens.append(_described(token, tokens.hmac(token), has_requester=context.api_version >= 3))
    return response


def _described(token: DelegationToken, hmac: bytes, *, has_requester: bool) -> DescribedDelegationToken:
    found = DescribedDelegationToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        issue_timestamp=token.issue_timestamp_ms,
        expiry_timestamp=token.expiry_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        token_id=token.token_id,
        hmac=hmac,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=one.type, principal_name=one.name) for one in token.renewers
        ],
    )
    if has_requester:
        found.token_requester_principal_type = token.requester.type
        found.token_requester_principal_name = token.requester.name
    return found

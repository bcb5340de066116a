"""Shared by the four APIs of delegation tokens: whom they serve at all."""

from __future__ import annotations

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.security.principals import ANONYMOUS
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.store.stored_tokens import StoredTokens


def may_ask(context: RequestContext) -> bool:
    """False for whoever is not authenticated, or only by a token (DELEGATION_TOKEN_REQUEST_NOT_ALLOWED).

    Source: KafkaApis.allowTokenRequests.
    """
    return context.principal != ANONYMOUS and not context.principal.by_token


def tokens_of(services: Services, context: RequestContext) -> StoredTokens:
    """The delegation tokens of the cluster.

    Raises:
        KafkaError: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED; DELEGATION_TOKEN_AUTH_DISABLED without a secret key.
    """
    if not may_ask(context):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    return enabled(services)


def enabled(services: Services) -> StoredTokens:
    """Raises KafkaError: DELEGATION_TOKEN_AUTH_DISABLED without a secret key."""
    if services.delegation_tokens is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return services.delegation_tokens

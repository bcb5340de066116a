"""Shared by the four APIs of delegation tokens, which are not served yet: their one error."""

from __future__ import annotations

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.security.principals import ANONYMOUS
from ottla_broker.server.handler_api import RequestContext


def refusal(context: RequestContext) -> ErrorCode:
    """DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for whoever is not authenticated, else DELEGATION_TOKEN_AUTH_DISABLED.

    Source: KafkaApis.allowTokenRequests and DelegationTokenManager.
    """
    if context.principal == ANONYMOUS:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED

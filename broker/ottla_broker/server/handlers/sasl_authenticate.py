"""SaslAuthenticate (key 36): carries the tokens of a SASL exchange (KIP-152).

Behaviour
    Every listener is a plain one, without authentication. The connection stays open.
Errors, in this order
    ILLEGAL_SASL_STATE.
Versions
    0: KIP-152. 1: session lifetime (KIP-368). 2: flexible.
"""

from __future__ import annotations

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla_broker.server.handler_api import RequestContext, Services

_MESSAGE = "SaslAuthenticate request received after successful authentication"


async def handle(
    services: Services, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Answers at once."""
    return SaslAuthenticateResponse(error_code=int(ErrorCode.ILLEGAL_SASL_STATE), error_message=_MESSAGE)

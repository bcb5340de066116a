"""SaslHandshake (key 17): picks the SASL mechanism of a connection.

Behaviour
    Every listener is a plain one: a client that wants to authenticate gets the error at once, and the connection stays
    open.
Errors, in this order
    ILLEGAL_SASL_STATE.
Versions
    0: bare tokens follow. 1: SaslAuthenticate follows (KIP-152).
"""

from __future__ import annotations

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla_broker.server.handler_api import RequestContext, Services


async def handle(services: Services, context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Answers at once."""
    return SaslHandshakeResponse(error_code=int(ErrorCode.ILLEGAL_SASL_STATE))

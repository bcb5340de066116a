"""Shared by the three APIs of ACLs while there is no authorizer:

their one error, and how they refuse invalid requests.
"""

from __future__ import annotations

from typing import Final

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.server.handler_api import RequestContext

ERROR: Final = ErrorCode.SECURITY_DISABLED
NO_AUTHORIZER: Final = "No Authorizer is configured."
UNKNOWN: Final = 0
"""Code of a resource type, pattern type, operation or permission that the sender itself does not know."""


def close_if_unknown(context: RequestContext, *codes: int) -> None:
    """Closes the connection for a request with such a code, as Apache Kafka does."""
    if UNKNOWN in codes:
        context.close_connection("malformed request about ACLs: 0 is no type, operation or permission")

"""ApiVersions (key 18).

Behaviour
    Lists the APIs of `server.edge.dispatch.LISTED` with their versions. The response header is always version 0,
    because the client does not know the broker's versions yet. No feature is supported or finalised (KIP-584), so that
    a cluster shared with Apache Kafka 3.9 stays possible.
Errors
    UNSUPPORTED_VERSION, for an unknown version: answered as version 0 by `server.edge.dispatch` (KIP-511).
    INVALID_REQUEST, when the client's software name or version is not of the form that KIP-511 allows (from v3).
Versions
    1: throttle time. 3: flexible, client software name and version, features (KIP-482, KIP-511, KIP-584).
    4: features with lowest version 0 are allowed.
"""

from __future__ import annotations

import re

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def handle(services: Services, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Lists every served API."""
    error = ErrorCode.NONE
    if context.api_version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        error = ErrorCode.INVALID_REQUEST
    return ApiVersionsResponse(
        error_code=int(error),
        api_keys=[]
        if error
        else [
            ApiVersion(api_key=key, min_version=lowest, max_version=highest)
            for key, lowest, highest in services.listed_apis()
        ],
    )

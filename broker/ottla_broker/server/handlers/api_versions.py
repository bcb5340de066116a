"""ApiVersions (key 18).

Behaviour
    Lists the APIs of `server.edge.dispatch.listed` with their versions, the features that this broker supports and the
    levels that the cluster has finalized (KIP-584). The response header is always version 0, because the client does
    not know the broker's versions yet. The connection keeps the client's software name and version.
Errors
    UNSUPPORTED_VERSION, for an unknown version: answered as version 0 by `server.edge.dispatch` (KIP-511).
    INVALID_REQUEST, when the client's software name or version is not of the form that KIP-511 allows (from v3).
Versions
    1: throttle time. 3: flexible, client software name and version, features (KIP-482, KIP-511, KIP-584).
    4: features with lowest version 0 are listed; older clients cannot read them (KAFKA-17011).
"""

from __future__ import annotations

import re

from ottla_broker.config import features
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla_broker.server.handler_api import RequestContext, Services

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def handle(services: Services, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Lists every served API, and the features."""
    version = context.api_version
    if version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=int(ErrorCode.INVALID_REQUEST), api_keys=[])
    if version >= 3:
        context.connection.client_software = (request.client_software_name, request.client_software_version)
    view = services.fleet_features.view
    return ApiVersionsResponse(
        error_code=int(ErrorCode.NONE),
        api_keys=[
            ApiVersion(api_key=key, min_version=lowest, max_version=highest)
            for key, lowest, highest in services.listed_apis()
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, (lowest, highest) in sorted(features.SUPPORTED.items())
            if lowest > 0 or version >= 4
        ],
        finalized_features_epoch=view.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(view.finalized.items())
        ],
    )

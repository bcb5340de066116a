"""DescribeClientQuotas (key 48, KIP-546): describes the quotas of the entities that match a filter.

Behaviour
    No quota of a client is in force here, so nothing matches: what Apache Kafka has stored at
    /config/users, /config/clients and /config/ips is not read.
Errors, in this order
    For each component: INVALID_REQUEST (a match type that does not exist, or an exact match without a name).
    For each component: INVALID_REQUEST (an empty entity type), UNSUPPORTED_VERSION (one that does not exist),
    INVALID_REQUEST (one that is named twice). INVALID_REQUEST (ip beside user or client-id).
Versions
    0: KIP-546. 1: flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services

EXACT, DEFAULT, ANY = 0, 1, 2
_TYPES = {"user": "user", "client-id": "client", "ip": "ip"}
"""Entity types, and their names in messages."""


async def handle(
    services: Services, context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Answers at once."""
    try:
        check_filter(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=int(error.code), error_message=error.message, entries=None)
    return DescribeClientQuotasResponse(entries=[])


def check_filter(components: Sequence[ComponentData]) -> None:
    """Raises KafkaError for an invalid filter.

    The messages of the second half are those of Apache Kafka's ZkAdminManager.
    """
    for component in components:
        if component.match_type not in (EXACT, DEFAULT, ANY):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Match type {component.match_type} does not exist")
        if component.match_type == EXACT and component.match is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"The exact match of entity type '{component.entity_type}' has no name"
            )
    seen: set[str] = set()
    for component in components:
        entity_type = component.entity_type
        if not entity_type:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unexpected empty filter component entity type")
        if entity_type not in _TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{entity_type}' not supported")
        if entity_type in seen:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate {_TYPES[entity_type]} filter component entity type")
        seen.add(entity_type)
    if "ip" in seen and len(seen) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination, IP filter component should not be used with user or clientId "
            "filter component.",
        )

"""DescribeClientQuotas (key 48, KIP-546): describes the quotas of the entities that match a filter.

Behaviour
    What is stored at /config/users, /config/clients and /config/ips is read for each request. A filter without
    components matches every entity, and none when it is strict. SCRAM credentials, which users have there too, are left
    out.
Rights, in this order
    DescribeConfigs:Cluster (the cluster): the error of the whole answer.
Errors, in this order
    For each component: INVALID_REQUEST (a match type that does not exist, or an exact match without a name).
    For each component: INVALID_REQUEST (an empty entity type), UNSUPPORTED_VERSION (one that does not exist),
    INVALID_REQUEST (one that is named twice). INVALID_REQUEST (ip beside user or client-id).
Versions
    0: KIP-546. 1: flexible.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla_broker.authorization.resources import CLUSTER_NAME, AclOperation, ResourceType
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from ottla_broker.quotas.alterations import parse_bounds
from ottla_broker.quotas.entities import DEFAULT, QuotaEntity
from ottla_broker.quotas.filters import parse_filter
from ottla_broker.server.handler_api import RequestContext, Services


async def handle(
    services: Services, context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """One entry for each entity that has a quota and matches."""
    if not context.may(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        denial = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return DescribeClientQuotasResponse(error_code=denial, error_message=None, entries=None)
    try:
        wanted = parse_filter(
            ((one.entity_type, one.match_type, one.match) for one in request.components), request.strict
        )
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=int(error.code), error_message=error.message, entries=None)
    entries = []
    async for entity, stored in context.each((await services.dynamic_config.quotas.all()).items()):
        bounds, _ = parse_bounds(entity, stored)
        if bounds and wanted.accepts(entity):
            entries.append(_entry(entity, bounds))
    return DescribeClientQuotasResponse(entries=entries)


def _entry(entity: QuotaEntity, bounds: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=[
            EntityData(entity_type=str(entity_type), entity_name=None if name is DEFAULT else str(name))
            for entity_type, name in entity.names.items()
        ],
        values=[ValueData(key=key, value=bound) for key, bound in bounds.items()],
    )

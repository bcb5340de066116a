"""ListClientMetricsResources (key 74, KIP-1000).

Behaviour
    Names the client-metrics resources that have a configuration, in the order of their names.
Rights, in this order
    DescribeConfigs:Cluster (the cluster): the error of the whole answer.
Errors, in this order
    None.
Versions
    0 alone.
"""

from __future__ import annotations

from ottla_broker.protocol.generated.list_client_metrics_resources import (
    ClientMetricsResource,
    ListClientMetricsResourcesRequest,
    ListClientMetricsResourcesResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services


async def handle(
    services: Services, context: RequestContext, request: ListClientMetricsResourcesRequest
) -> ListClientMetricsResourcesResponse:
    """Answers at once."""
    return ListClientMetricsResourcesResponse(
        client_metrics_resources=[ClientMetricsResource(name=name) for name in services.client_metrics_configs.names]
    )

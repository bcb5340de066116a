"""DescribeCluster (key 60, KIP-700).

Behaviour
    The live brokers with their endpoints on the listener of the request, the controller and the cluster's id.
    AuthorizedOperations are computed when requested (KIP-430).
Rights, in this order
    Describe:Cluster (the authorized operations of the cluster): no operation.
Errors, in this order
    UNSUPPORTED_ENDPOINT_TYPE (v1: neither 1 nor 2), MISMATCHED_ENDPOINT_TYPE (v1: 2, the controllers of KRaft).
Versions
    1: endpoint type (KIP-919). 2: fenced brokers (KIP-1073): a broker that is registered in ZooKeeper is not fenced.
"""

from __future__ import annotations

from ottla_broker.authorization.resources import CLUSTER_NAME, NOT_ASKED, ResourceType
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services

_BROKERS = 1
_CONTROLLERS = 2


async def handle(
    services: Services, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Answers from the metadata cache."""
    if request.endpoint_type != _BROKERS:
        known = request.endpoint_type == _CONTROLLERS
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        return DescribeClusterResponse(error_code=int(code), error_message=code.message)
    return DescribeClusterResponse(
        cluster_id=services.cluster_id,
        controller_id=services.metadata.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker, endpoint in services.metadata.brokers_with(context.listener)
        ],
        cluster_authorized_operations=context.authorized_operations(ResourceType.CLUSTER, CLUSTER_NAME)
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )

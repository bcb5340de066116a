"""DescribeAcls (key 29): describes the ACLs that match a filter.

Behaviour
    There is no authorizer, so there is nothing to match, whatever the filter says.
Rights, in this order
    Describe:Cluster (the cluster): the error of the whole answer.
Errors, in this order
    The connection is closed when a type, operation or permission of the filter is 0. SECURITY_DISABLED.
Versions
    0: KIP-140. 1: pattern types (KIP-290). 2: flexible. 3: user resources.
"""

from __future__ import annotations

from ottla_broker.protocol.generated.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.acl_requests import ERROR, close_if_unknown

_MESSAGE = "No Authorizer is configured on the broker"


async def handle(services: Services, context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Answers at once."""
    close_if_unknown(
        context,
        request.resource_type_filter,
        request.pattern_type_filter,
        request.operation,
        request.permission_type,
    )
    return DescribeAclsResponse(error_code=int(ERROR), error_message=_MESSAGE)

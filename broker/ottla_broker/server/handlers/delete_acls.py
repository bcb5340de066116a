"""DeleteAcls (key 31): removes the ACLs that match filters.

Behaviour
    There is no authorizer, so there are none. One result for each filter.
Rights, in this order
    Alter:Cluster (the cluster): the error of each filter.
Errors, in this order
    The connection is closed when a type, operation or permission is 0. SECURITY_DISABLED for each.
Versions
    0: KIP-140. 1: pattern types (KIP-290). 2: flexible. 3: user resources.
"""

from __future__ import annotations

from ottla_broker.protocol.generated.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.acl_requests import ERROR, NO_AUTHORIZER, close_if_unknown


async def handle(services: Services, context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Answers at once."""
    async for wanted in context.each(request.filters):
        close_if_unknown(
            context,
            wanted.resource_type_filter,
            wanted.pattern_type_filter,
            wanted.operation,
            wanted.permission_type,
        )
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=int(ERROR), error_message=NO_AUTHORIZER)
            async for _ in context.each(request.filters)
        ]
    )

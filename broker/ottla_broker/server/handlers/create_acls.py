"""CreateAcls (key 30): adds ACLs.

Behaviour
    There is no authorizer to store them. One result for each ACL.
Rights, in this order
    Alter:Cluster (the cluster): the error of each creation.
Errors, in this order
    The connection is closed when a type, operation or permission is 0. SECURITY_DISABLED for each.
Versions
    0: KIP-140. 1: pattern types (KIP-290). 2: flexible. 3: user resources.
"""

from __future__ import annotations

from ottla_broker.protocol.generated.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.acl_requests import ERROR, NO_AUTHORIZER, close_if_unknown


async def handle(services: Services, context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Answers at once."""
    async for acl in context.each(request.creations):
        close_if_unknown(context, acl.resource_type, acl.resource_pattern_type, acl.operation, acl.permission_type)
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=int(ERROR), error_message=NO_AUTHORIZER)
            async for _ in context.each(request.creations)
        ]
    )

"""DescribeAcls (key 29): describes the ACLs that match a filter.

Behaviour
    Those in force on this broker, by resource pattern. A code of a type, operation or permission that is not known here
    matches nothing. Pattern type MATCH finds what a resource of the name is subject to: its own ACLs, those of `*`, and
    those of its prefixes.
Rights, in this order
    Describe:Cluster (the cluster): the error of the whole answer.
Errors, in this order
    The connection is closed when a type, operation or permission of the filter is 0. CLUSTER_AUTHORIZATION_FAILED
    without Describe on the cluster. SECURITY_DISABLED without an authorizer.
Versions
    0: KIP-140. 1: pattern types (KIP-290); before, literal patterns alone. 2: flexible. 3: user resources.
"""

from __future__ import annotations

from ottla_broker.authorization.resources import AclOperation
from ottla_broker.protocol.generated.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.acl_requests import (
    DENIED,
    DENIED_MESSAGE,
    ERROR,
    acl_filter,
    is_closed_for_filter,
    may,
)

_MESSAGE = "No Authorizer is configured on the broker"


async def handle(services: Services, context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """The patterns in the order of type, name and pattern type."""
    if is_closed_for_filter(context, request):
        return DescribeAclsResponse()
    if not may(context, AclOperation.DESCRIBE):
        return DescribeAclsResponse(error_code=DENIED, error_message=DENIED_MESSAGE)
    if services.acls is None:
        return DescribeAclsResponse(error_code=int(ERROR), error_message=_MESSAGE)
    wanted = acl_filter(request)
    resources = []
    known = services.acls.known
    async for pattern in context.each(sorted(known)):
        if not wanted.matches_pattern(pattern):
            continue
        acls = [
            AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=int(entry.operation),
                permission_type=int(entry.permission),
            )
            async for entry in context.each(sorted(known.get(pattern, ())))
            if wanted.matches_entry(entry)
        ]
        if acls:
            resources.append(
                DescribeAclsResource(
                    resource_type=int(pattern.resource_type),
                    resource_name=pattern.name,
                    pattern_type=int(pattern.pattern_type),
                    acls=acls,
                )
            )
    return DescribeAclsResponse(error_message="", resources=resources)

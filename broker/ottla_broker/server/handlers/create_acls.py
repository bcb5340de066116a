"""CreateAcls (key 30): adds ACLs.

Behaviour
    One result for each ACL, in their order. Those of one resource pattern are written at once; an ACL that exists is no
    error. They are in force on this broker when it answers, and on the others within a second.
Rights, in this order
    Alter:Cluster (the cluster): the error of each creation.
Errors, in this order
    The connection is closed when a type, operation or permission is 0. CLUSTER_AUTHORIZATION_FAILED for each without
    Alter on the cluster. SECURITY_DISABLED for each without an authorizer. INVALID_REQUEST for an ACL with a field that
    is wrong, which the message names; the others are added. Apache Kafka adds none of the request, and answers
    UNKNOWN_SERVER_ERROR, for codes that only filters have.
Versions
    0: KIP-140. 1: pattern types (KIP-290). 2: flexible. 3: user resources.
"""

from __future__ import annotations

from ottla_broker.authorization.acls import AccessControlEntry, InvalidAcl, ResourcePattern, valid_acl
from ottla_broker.authorization.resources import AclOperation
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.acl_requests import (
    DENIED,
    DENIED_MESSAGE,
    ERROR,
    NO_AUTHORIZER,
    is_closed_for_unknown,
    may,
)

_COST_OF_A_WRITE = 20


async def handle(services: Services, context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Raises CoordinationError when the store cannot be reached; some may have been added."""
    creations = request.creations
    async for acl in context.each(creations):
        codes = acl.resource_type, acl.resource_pattern_type, acl.operation, acl.permission_type
        if is_closed_for_unknown(context, *codes):
            return CreateAclsResponse()
    if not may(context, AclOperation.ALTER):
        return await _refused(context, creations, DENIED, DENIED_MESSAGE)
    if services.acls is None:
        return await _refused(context, creations, int(ERROR), NO_AUTHORIZER)
    results: list[AclCreationResult] = []
    entries: dict[ResourcePattern, set[AccessControlEntry]] = {}
    results_of: dict[ResourcePattern, list[AclCreationResult]] = {}
    async for acl in context.each(creations):
        result = AclCreationResult(error_message="")
        results.append(result)
        try:
            pattern, entry = valid_acl(
                acl.resource_type,
                acl.resource_name,
                acl.resource_pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
        except InvalidAcl as error:
            result.error_code, result.error_message = int(ErrorCode.INVALID_REQUEST), str(error)
            continue
        entries.setdefault(pattern, set()).add(entry)
        results_of.setdefault(pattern, []).append(result)
    async for pattern in context.each(entries, _COST_OF_A_WRITE):
        try:
            await services.acls.add(pattern, frozenset(entries[pattern]))
        except KafkaError as error:
            for result in results_of[pattern]:
                result.error_code, result.error_message = int(error.code), error.message
    return CreateAclsResponse(results=results)


async def _refused(
    context: RequestContext, creations: list[AclCreation], code: int, message: str
) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=code, error_message=message) async for _ in context.each(creations)]
    )

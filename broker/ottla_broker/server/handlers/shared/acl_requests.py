"""Shared by the three APIs of ACLs: their errors, filters as values, and how they refuse invalid requests."""

from __future__ import annotations

from typing import Final, Protocol

from ottla_broker.authorization.acls import AclFilter
from ottla_broker.authorization.resources import CLUSTER_NAME, AclOperation, ResourceType
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.server.handler_api import RequestContext

ERROR: Final = ErrorCode.SECURITY_DISABLED
NO_AUTHORIZER: Final = "No Authorizer is configured."
DENIED: Final = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
DENIED_MESSAGE: Final = "Cluster authorization failed."
UNKNOWN: Final = 0
"""Code of a resource type, pattern type, operation or permission that the sender itself does not know."""


def may(context: RequestContext, operation: AclOperation) -> bool:
    """Whether the client may do this with the cluster."""
    return context.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)


def is_closed_for_unknown(context: RequestContext, *codes: int) -> bool:
    """Closes the connection for a request with such a code, as Apache Kafka does; whether it did."""
    if UNKNOWN not in codes:
        return False
    context.close_connection("malformed request about ACLs: 0 is no type, operation or permission")
    return True


class FilterFields(Protocol):
    """The fields of a filter in a request."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def is_closed_for_filter(context: RequestContext, fields: FilterFields) -> bool:
    """As `is_closed_for_unknown`."""
    return is_closed_for_unknown(
        context,
        fields.resource_type_filter,
        fields.pattern_type_filter,
        fields.operation,
        fields.permission_type,
    )


def acl_filter(fields: FilterFields) -> AclFilter:
    """The filter of a request. Version 0 knows literal patterns alone: its pattern type has the default, LITERAL."""
    return AclFilter(
        fields.resource_type_filter,
        fields.resource_name_filter,
        fields.pattern_type_filter,
        fields.principal_filter,
        fields.host_filter,
        fields.operation,
        fields.permission_type,
    )

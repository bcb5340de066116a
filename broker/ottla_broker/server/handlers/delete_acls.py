"""DeleteAcls (key 31): removes the ACLs that match filters.

Behaviour
    One result for each filter, in their order. An ACL that several filters match is a result of the first one. The ACLs
    of one resource pattern are removed in one write. They are out of force on this broker when it answers, and on the
    others within a second. A filter that names one resource finds what other brokers have just added there; any other
    filter finds what this broker knows.
Rights, in this order
    Alter:Cluster (the cluster): the error of each filter.
Errors, in this order
    The connection is closed when a type, operation or permission is 0. CLUSTER_AUTHORIZATION_FAILED for each without
    Alter on the cluster. SECURITY_DISABLED for each without an authorizer. UNKNOWN_SERVER_ERROR for a filter whose
    resource has a znode that cannot be read.
Versions
    0: KIP-140. 1: pattern types (KIP-290); before, literal patterns alone. 2: flexible. 3: user resources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ottla_broker.authorization.acls import AccessControlEntry, AclFilter, Acls, ResourcePattern
from ottla_broker.authorization.resources import AclOperation, PermissionType
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.protocol.generated.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.acl_requests import (
    DENIED,
    DENIED_MESSAGE,
    ERROR,
    NO_AUTHORIZER,
    acl_filter,
    is_closed_for_filter,
    may,
)

_COST_OF_A_WRITE = 20
_MOST_AT_ONCE = 20_000
"""Comparisons of an ACL with a filter in one step."""


async def handle(services: Services, context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Raises CoordinationError when the store cannot be reached; some may have been removed."""
    async for fields in context.each(request.filters):
        if is_closed_for_filter(context, fields):
            return DeleteAclsResponse()
    if not may(context, AclOperation.ALTER):
        return await _refused(context, request.filters, DENIED, DENIED_MESSAGE)
    if services.acls is None:
        return await _refused(context, request.filters, int(ERROR), NO_AUTHORIZER)
    filters = [acl_filter(fields) async for fields in context.each(request.filters)]
    results = [DeleteAclsFilterResult(error_message=None) async for _ in context.each(filters)]
    matching = await _matching(context, services.acls, filters)
    async for pattern in context.each(sorted(matching), _COST_OF_A_WRITE):
        meant = _Meant(filters, matching[pattern])
        try:
            for is_meant in meant.parts(len(services.acls.known.get(pattern, ()))):
                async for entry in context.each(sorted(await services.acls.remove(pattern, is_meant)), meant.cost):
                    results[meant.first(entry)].matching_acls.append(_matching_acl(pattern, entry))
        except KafkaError as error:
            for index in matching[pattern]:
                results[index].error_code, results[index].error_message = int(error.code), error.message
    return DeleteAclsResponse(filter_results=results)


async def _matching(context: RequestContext, acls: Acls, filters: list[AclFilter]) -> dict[ResourcePattern, list[int]]:
    """The patterns that may have ACLs to be removed, and the filters that match each, in their order."""
    found: dict[ResourcePattern, list[int]] = {}
    known = [pattern async for pattern in context.each(list(acls.known))]
    async for index, wanted in context.each(list(enumerate(filters))):
        named = wanted.named_patterns()
        if named is not None:
            for pattern in named:
                found.setdefault(pattern, []).append(index)
            continue
        async for pattern in context.each(known):
            if wanted.matches_pattern(pattern) and any(map(wanted.matches_entry, acls.known.get(pattern, ()))):
                found.setdefault(pattern, []).append(index)
    return found


class _Meant:
    """The filters that mean ACLs of one pattern.

    Args:
        indexes: of those among all filters, in their order.
    """

    def __init__(self, filters: list[AclFilter], indexes: list[int]) -> None:
        self._exact: dict[tuple[object, ...], int] = {}
        """Filters that name each field of an entry, by that entry: a request may have thousands."""
        self._others: list[tuple[int, AclFilter]] = []
        for index in indexes:
            one = filters[index]
            fields = (one.principal, one.host, one.operation, one.permission)
            if None in fields or one.operation == AclOperation.ANY or one.permission == PermissionType.ANY:
                self._others.append((index, one))
            else:
                self._exact.setdefault(fields, index)
        self.cost = 1 + len(self._others) // 5
        """Of `first`."""

    def parts(self, count: int) -> Iterator[Callable[[AccessControlEntry], bool]]:
        """Whether an entry is meant, by so many filters at once that a pattern with `count` ACLs holds nobody up."""
        size = max(1, _MOST_AT_ONCE // max(1, count))
        for start in range(0, max(1, len(self._others)), size):
            others = [one for _, one in self._others[start : start + size]]
            yield (
                lambda entry, others=others: (
                    entry in self._exact
                    or any(  # type: ignore[misc]
                        one.matches_entry(entry) for one in others
                    )
                )
            )

    def first(self, entry: AccessControlEntry) -> int:
        """The index of the first filter that means an entry that one of them means."""
        found = (index for index, one in self._others if one.matches_entry(entry))
        exact = self._exact.get(entry)
        return next(found) if exact is None else min(next(found, exact), exact)


def _matching_acl(pattern: ResourcePattern, entry: AccessControlEntry) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=int(pattern.resource_type),
        resource_name=pattern.name,
        pattern_type=int(pattern.pattern_type),
        principal=entry.principal,
        host=entry.host,
        operation=int(entry.operation),
        permission_type=int(entry.permission),
    )


async def _refused(
    context: RequestContext, filters: list[DeleteAclsFilter], code: int, message: str
) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=code, error_message=message) async for _ in context.each(filters)
        ]
    )

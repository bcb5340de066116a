"""DeleteGroups (key 42).

Behaviour
    Deletes groups without members and all their offsets; responds once the tombstones are stored. A name that is given
    twice has one result.
Rights, in this order
    Delete:Group (each group): the error of the group.
Errors, per group, in this order
    COORDINATOR_NOT_AVAILABLE (shutting down), COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, GROUP_ID_NOT_FOUND,
    NON_EMPTY_GROUP, and the errors of appending the tombstones.
Versions
    1: throttling before the response. 2: flexible.
"""

from __future__ import annotations

from ottla_broker.protocol.generated.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services


async def handle(services: Services, context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    results = []
    deleted: set[str] = set()
    async for group_id in context.each(request.groups_names, 5):
        if group_id in deleted:
            continue
        deleted.add(group_id)
        error = await services.group_coordinator.delete(group_id)
        results.append(DeletableGroupResult(group_id=group_id, error_code=int(error)))
    return DeleteGroupsResponse(results=results)

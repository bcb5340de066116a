"""ListGroups (key 16).

Behaviour
    The groups that this broker coordinates; clients send it to every broker. Filters by state and type ignore upper and
    lower case; types are "classic" and "consumer".
Rights, in this order
    Describe:Cluster (all groups): the next right decides.
    Describe:Group (each group): left out of the answer.
Errors
    COORDINATOR_NOT_AVAILABLE (shutting down), COORDINATOR_LOAD_IN_PROGRESS (the list is incomplete).
Versions
    1: throttle time. 3: flexible. 4: states (KIP-518). 5: types (KIP-848).
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from ottla_broker.authorization.access import NOTHING
from ottla_broker.authorization.resources import CLUSTER_NAME, AclOperation, ResourceType
from ottla_broker.protocol.generated.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services


async def _hidden(context: RequestContext, groups: Sequence[str]) -> Set[str]:
    """The groups that the principal may not describe."""
    if context.connection.access is None or context.may(
        AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME, logs=False
    ):
        return NOTHING
    return await context.denied_of_many(AclOperation.DESCRIBE, ResourceType.GROUP, groups, logs=False)


async def handle(services: Services, context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    error, groups = services.group_coordinator.list()
    states = frozenset(state.lower() for state in request.states_filter or ())
    types = frozenset(kind.lower() for kind in request.types_filter or ())
    listed = [
        group
        async for group in context.each(groups)
        if (not states or group.state.lower() in states) and (not types or group.group_type in types)
    ]
    hidden = await _hidden(context, [group.group_id for group in listed])
    return ListGroupsResponse(
        error_code=int(error),
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.group_type,
            )
            async for group in context.each(listed)
            if group.group_id not in hidden
        ],
    )

"""DescribeGroups (key 15).

Behaviour
    State, protocol and members of each requested group. An unknown group is described as Dead, before v6 without an
    error.
    Metadata and assignments only while the group is Stable. AuthorizedOperations are computed when requested (KIP-430).
Rights, in this order
    Describe:Group (each group): the error of the group, without its members.
Errors, per group, in this order
    COORDINATOR_NOT_AVAILABLE (shutting down), COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, GROUP_ID_NOT_FOUND (v6).
Versions
    1: throttle time. 3: authorized operations. 4: group instance ids (KIP-345). 5: flexible. 6: GROUP_ID_NOT_FOUND,
    error message (KIP-1043).
"""

from __future__ import annotations

from ottla_broker.authorization.resources import NOT_ASKED, ResourceType
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services

_FIRST_VERSION_WITH_UNKNOWN_GROUPS = 6


async def handle(services: Services, context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    wants_operations = context.api_version >= 3 and request.include_authorized_operations
    wanted = await context.distinct(request.groups)
    return DescribeGroupsResponse(
        groups=[
            await _describe(services, context, group_id, wants_operations=wants_operations)
            async for group_id in context.each(wanted)
        ]
    )


async def _describe(
    services: Services, context: RequestContext, group_id: str, *, wants_operations: bool
) -> DescribedGroup:
    error, state, snapshot = services.group_coordinator.describe(group_id)
    message = None
    if context.api_version >= _FIRST_VERSION_WITH_UNKNOWN_GROUPS and error is ErrorCode.NONE and snapshot is None:
        error, message = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found."
    return DescribedGroup(
        error_code=int(error),
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type="" if snapshot is None else snapshot.protocol_type,
        protocol_data="" if snapshot is None else snapshot.protocol_name or "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.subscription,
                member_assignment=member.assignment,
            )
            async for member in context.each(() if snapshot is None else snapshot.members)
        ],
        authorized_operations=context.authorized_operations(ResourceType.GROUP, group_id)
        if wants_operations and error is ErrorCode.NONE
        else NOT_ASKED,
    )

"""LeaveGroup (key 13).

Behaviour
    Removes members at once instead of after their session timeout. From version 3 on several, also by instance id
    alone (an administrator's tool); static members do not send it when they close.
Rights, in this order
    Read:Group (the group): the error of the whole answer.
Errors, in this order
    whole request: INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE (shutting down), COORDINATOR_LOAD_IN_PROGRESS,
    NOT_COORDINATOR. Member: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID; before version 3 it is the error of the request.
Versions
    1: throttle time. 3: several members, group instance ids (KIP-345). 4: flexible. 5: reason (KIP-800).
"""

from __future__ import annotations

from typing import Final

from ottla_broker.groups.decisions import LeavingMember
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services

MEMBERS_AT_ONCE: Final = 50
"""As if the others came in the next request: each leaves by itself."""

_COST: Final = 2


async def handle(services: Services, context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    if context.api_version < 3:
        leaving = [LeavingMember(request.member_id)]
    else:
        leaving = [
            LeavingMember(each.member_id, each.group_instance_id, each.reason)
            async for each in context.each(request.members)
        ]
    error = ErrorCode.NONE
    errors: list[ErrorCode] = []
    cost = min(MEMBERS_AT_ONCE, len(leaving)) * _COST
    async for start in context.each(range(0, len(leaving) or 1, MEMBERS_AT_ONCE), cost):
        some = leaving[start : start + MEMBERS_AT_ONCE]
        error, more = await services.group_coordinator.leave(request.group_id, some)
        if error is not ErrorCode.NONE:
            errors = []  # no member errors beside one of the request
            break
        errors += more
    if context.api_version < 3:
        return LeaveGroupResponse(error_code=int(errors[0] if error is ErrorCode.NONE else error))
    return LeaveGroupResponse(
        error_code=int(error),
        members=[
            MemberResponse(
                member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=int(member_error)
            )
            async for member, member_error in context.each(zip(leaving, errors, strict=False))
        ],
    )

"""SyncGroup (key 14).

Behaviour
    The leader sends all assignments; each member gets its own once the generation is stored in `__consumer_offsets`. A
    member that the leader left out gets an empty assignment. The broker does not read assignments.
Rights, in this order
    Read:Group (the group): the error of the whole answer.
Errors, in this order
    INCONSISTENT_GROUP_PROTOCOL (v5+ without type and name), INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE (closing),
    REBALANCE_IN_PROGRESS (loading), NOT_COORDINATOR, UNKNOWN_MEMBER_ID (no such group), FENCED_INSTANCE_ID,
    UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS, and the errors
    of the append: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, UNKNOWN_SERVER_ERROR (record too large).
Versions
    1: throttle time. 3: group instance id (KIP-345). 4: flexible. 5: protocol type and name (KIP-559).
"""

from __future__ import annotations

from typing import Final

from ottla_broker.groups.decisions import SyncRequest
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.sync_group import (
    SyncGroupRequest,
    SyncGroupResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services

COPY_COST: Final = 4
"""Assignments may have 20 KB and more."""


async def handle(services: Services, context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    if context.api_version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=int(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    result = await services.group_coordinator.sync(
        request.group_id,
        SyncRequest(
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            # A copy: the frame is reused.
            assignments={
                each.member_id: bytes(each.assignment) async for each in context.each(request.assignments, COPY_COST)
            },
        ),
    )
    return SyncGroupResponse(
        error_code=int(result.error),
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )

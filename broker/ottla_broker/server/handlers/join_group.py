"""JoinGroup (key 11).

Behaviour
    Adds the client as a member and waits until the group has a new generation: the response has it, and for the leader
    the members with their metadata. See `groups.machine` for the rules.
Rights, in this order
    Read:Group (the group): the error of the whole answer.
Errors, in this order
    INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE (shutting down), COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR,
    INVALID_SESSION_TIMEOUT, UNKNOWN_MEMBER_ID (no such group), GROUP_MAX_SIZE_REACHED, INCONSISTENT_GROUP_PROTOCOL,
    MEMBER_ID_REQUIRED, FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS (a newer request replaced it).
Versions
    1: rebalance timeout (KIP-62; before, the session timeout). 2: throttle time. 4: MEMBER_ID_REQUIRED for dynamic
    members (KIP-394). 5: group instance id (KIP-345). 6: flexible. 7: protocol type (KIP-559). 8: reason (KIP-800).
    9: SkipAssignment (KIP-814).
"""

from __future__ import annotations

from ottla_broker.groups.decisions import JoinRequest
from ottla_broker.protocol.generated.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.client_host import client_host

MEMBER_ID_DELIMITER = "-"
MAX_PREFIX_LENGTH = 8_000
"""Characters of the client's part of a member id: with the rest it still fits a string of the wire."""


async def handle(services: Services, context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    version = context.api_version
    instance_id: str | None = request.group_instance_id
    result = await services.group_coordinator.join(
        request.group_id,
        JoinRequest(
            member_id=request.member_id,
            new_member_id="" if request.member_id else _new_member_id(services, context, instance_id),
            group_instance_id=instance_id,
            client_id=context.client_id or "",
            client_host=client_host(context),
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms,
            protocol_type=request.protocol_type,
            # A copy: the frame is reused.
            protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
            requires_known_member_id=version >= 4 and instance_id is None,
            supports_skipping_assignment=version >= 9,
            reason=request.reason,
        ),
    )
    return JoinGroupResponse(
        error_code=int(result.error),
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        # Null only since version 7.
        protocol_name=result.protocol_name if version >= 7 else result.protocol_name or "",
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata
            )
            async for member in context.each(result.members)
        ],
    )


def _new_member_id(services: Services, context: RequestContext, instance_id: str | None) -> str:
    prefix = ((context.client_id or "") if instance_id is None else instance_id)[:MAX_PREFIX_LENGTH]
    return f"{prefix}{MEMBER_ID_DELIMITER}{services.clock.uuid4()}"

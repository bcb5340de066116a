"""Heartbeat (key 12).

Behaviour
    Keeps the member alive, and says whether the group rebalances.
Rights, in this order
    Read:Group (the group): the error of the whole answer.
Errors, in this order
    INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE (shutting down), NOT_COORDINATOR, UNKNOWN_MEMBER_ID (no such group),
    FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS. NONE while loading.
Versions
    1: throttle time. 3: group instance id (KIP-345). 4: flexible.
"""

from __future__ import annotations

from ottla_broker.protocol.generated.heartbeat import (
    HeartbeatRequest,
    HeartbeatResponse,
)
from ottla_broker.server.handler_api import RequestContext, Respond, Services


def handle(
    services: Services, context: RequestContext, request: HeartbeatRequest, respond: Respond[HeartbeatResponse]
) -> None:
    """Responds at once: with many members it is most of what a coordinator does, and a task would cost more than it."""
    error = services.group_coordinator.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    respond(HeartbeatResponse(error_code=int(error)))

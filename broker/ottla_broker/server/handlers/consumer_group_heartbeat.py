"""ConsumerGroupHeartbeat (key 68): membership of a group of the new consumer protocol (KIP-848).

Behaviour
    The coordinator has groups of the classic protocol alone, as that of Apache Kafka 3.9 in ZooKeeper mode. A consumer
    with group.protocol=consumer gets the error with its first request.
Errors, in this order
    UNSUPPORTED_VERSION.
Versions
    0 is the only one, and flexible.
"""

from __future__ import annotations

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services


async def handle(
    services: Services, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Answers at once."""
    return ConsumerGroupHeartbeatResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION))

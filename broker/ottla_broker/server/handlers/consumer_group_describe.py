"""ConsumerGroupDescribe (key 69): groups of the new consumer protocol (KIP-848).

Behaviour
    The coordinator has groups of the classic protocol alone, as that of Apache Kafka 3.9 in ZooKeeper mode. One result
    for each id, as often as it is named; clients then use DescribeGroups.
Errors, in this order, for each group
    UNSUPPORTED_VERSION.
Versions
    0 is the only one, and flexible.
"""

from __future__ import annotations

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from ottla_broker.server.handler_api import RequestContext, Services


async def handle(
    services: Services, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Answers at once."""
    return ConsumerGroupDescribeResponse(
        groups=[
            DescribedGroup(group_id=group_id, error_code=int(ErrorCode.UNSUPPORTED_VERSION))
            for group_id in request.group_ids
        ]
    )

"""ControlledShutdown (key 7, broker to controller): a broker is about to stop.

Behaviour
    Moves leadership: every partition with another in-sync replica gets another leader and an ISR without the broker,
    which all other brokers learn before the broker itself. The response names the partitions that it still leads, for
    which it should retry: none with a single replica, and none when every live broker shuts down.
Rights, in this order
    ClusterAction:Cluster (the cluster): the error of the whole answer.
Errors, in this order
    STALE_CONTROLLER_EPOCH (this broker is not the controller; the code that Apache Kafka gives here),
    BROKER_NOT_AVAILABLE (it is not registered), STALE_BROKER_EPOCH (v2+: of an earlier incarnation).
Versions
    0: the request header has no client id. 2: broker epoch (KIP-380). 3: flexible.
"""

from __future__ import annotations

from ottla_broker.controller.acts.broker_shutdown import UNKNOWN_BROKER_EPOCH
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from ottla_broker.server.handler_api import RequestContext, Services


async def handle(
    services: Services, context: RequestContext, request: ControlledShutdownRequest
) -> ControlledShutdownResponse:
    """Responds when first the others and then the broker have the new leaders."""
    epoch = request.broker_epoch if context.api_version >= 2 else UNKNOWN_BROKER_EPOCH
    try:
        remaining = await services.controller.controlled_shutdown(request.broker_id, epoch)
    except KafkaError as error:
        code = ErrorCode.STALE_CONTROLLER_EPOCH if error.code is ErrorCode.NOT_CONTROLLER else error.code
        return ControlledShutdownResponse(error_code=int(code))
    return ControlledShutdownResponse(
        remaining_partitions=[
            RemainingPartition(topic_name=partition.topic, partition_index=partition.partition)
            for partition in remaining
        ]
    )

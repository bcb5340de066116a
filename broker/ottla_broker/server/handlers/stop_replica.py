"""StopReplica (key 5, controller to broker): stops replicas, and deletes those that it says.

Behaviour
    Stops the fetchers of the partitions, fails delayed requests for them, and deletes the logs of those to delete: they
    are out of use when the response is sent, their files are deleted later.
Rights, in this order
    ClusterAction:Cluster (the cluster): the error of the whole answer.
Errors, in this order
    whole request: STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH (also over a connection that the controller has closed).
    partition: KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH (v3+: the command is older than what the broker knows).
Versions
    1: broker epoch, grouped by topic (KIP-380). 2: flexible. 3: leader epoch and deletion per partition (KIP-570).
    4: isKRaftController (KIP-866).
"""

from __future__ import annotations

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.replica_states.commands import StopCommand
from ottla_broker.replication.replica_states.local_replica import NO_EPOCH
from ottla_broker.server.handler_api import RequestContext, Services


async def handle(services: Services, context: RequestContext, request: StopReplicaRequest) -> StopReplicaResponse:
    """Responds when the request has been carried out."""
    manager = services.replica_manager
    if await manager.fence.is_stale_broker_epoch(request.broker_epoch):
        return StopReplicaResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
    commands = await _commands(request, context)
    errors = await manager.stop_replicas(request.controller_epoch, commands, connection=context.connection_number)
    if isinstance(errors, ErrorCode):
        return StopReplicaResponse(error_code=int(errors))
    return StopReplicaResponse(
        partition_errors=[
            StopReplicaPartitionError(topic_name=tp.topic, partition_index=tp.partition, error_code=int(error))
            async for tp, error in context.each(errors.items())
        ]
    )


async def _commands(request: StopReplicaRequest, context: RequestContext) -> list[StopCommand]:
    version = context.api_version
    if version >= 3:
        return [
            StopCommand(
                TopicPartition(topic.topic_name, state.partition_index), state.leader_epoch, state.delete_partition
            )
            async for topic in context.each(request.topic_states)
            async for state in context.each(topic.partition_states)
        ]
    delete = request.delete_partitions
    if version >= 1:
        return [
            StopCommand(TopicPartition(topic.name, index), NO_EPOCH, delete)
            async for topic in context.each(request.topics)
            async for index in context.each(topic.partition_indexes)
        ]
    return [
        StopCommand(TopicPartition(named.topic_name, named.partition_index), NO_EPOCH, delete)
        async for named in context.each(request.ungrouped_partitions)
    ]

"""LeaderAndIsr (key 4, controller to broker): leaders, ISRs and replicas of this broker's partitions.

Behaviour
    Creates missing logs, makes this broker leader or follower of each partition, and responds when that is done: to the
    controller NONE means that the replica is online. Type 2 (full) names every partition of this broker; others are
    stray and deleted. Logs of a topic that it names with another id are strays.
Rights, in this order
    ClusterAction:Cluster (the cluster): the error of the whole answer.
Errors, in this order
    whole request: STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH (also over a connection that the controller has closed).
    partition: INVALID_PARTITIONS, INVALID_TOPIC_EXCEPTION (no valid directory name), KAFKA_STORAGE_ERROR,
    INCONSISTENT_TOPIC_ID (not to a full request), STALE_CONTROLLER_EPOCH (the leader epoch is not greater),
    UNKNOWN_TOPIC_OR_PARTITION (this broker is no replica).
Versions
    1: IsNew. 2: grouped by topic, broker epoch (KIP-380). 3: adding and removing replicas (KIP-455). 4: flexible.
    5: topic ids and type (KIP-516). 6: leader recovery state (KIP-704). 7: isKRaftController (KIP-866).
"""

from __future__ import annotations

from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.replica_states.commands import LeadershipCommand
from ottla_broker.server.handler_api import RequestContext, Services

FULL = 2
"""Type of a request that names every partition of the broker."""


async def handle(services: Services, context: RequestContext, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    """Responds when the request has been carried out."""
    manager = services.replica_manager
    version = context.api_version
    if await manager.fence.is_stale_broker_epoch(request.broker_epoch):
        return LeaderAndIsrResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
    commands: list[LeadershipCommand] = []
    if version >= 2:
        async for topic in context.each(request.topic_states):
            async for state in context.each(topic.partition_states):
                commands.append(_command(topic.topic_name, topic.topic_id, state))
    else:
        async for state in context.each(request.ungrouped_partition_states):
            commands.append(_command(state.topic_name, ZERO_UUID, state))
    errors = await manager.apply_leadership(
        request.controller_epoch,
        commands,
        is_full=version >= 5 and request.type == FULL,
        # A new topic's overrides come without a notification: its first log must not miss them.
        load_topic=services.dynamic_config.load_topic,
        connection=context.connection_number,
    )
    if isinstance(errors, ErrorCode):
        return LeaderAndIsrResponse(error_code=int(errors))
    if version < 5:
        return LeaderAndIsrResponse(
            partition_errors=[
                LeaderAndIsrPartitionError(topic_name=tp.topic, partition_index=tp.partition, error_code=int(error))
                async for tp, error in context.each(errors.items())
            ]
        )
    return LeaderAndIsrResponse(
        topics=[
            LeaderAndIsrTopicError(
                topic_id=topic.topic_id,
                partition_errors=[
                    LeaderAndIsrPartitionError(
                        partition_index=state.partition_index,
                        error_code=int(errors[TopicPartition(topic.topic_name, state.partition_index)]),
                    )
                    async for state in context.each(topic.partition_states)
                ],
            )
            async for topic in context.each(request.topic_states)
        ]
    )


def _command(topic: str, topic_id: bytes, state: LeaderAndIsrPartitionState) -> LeadershipCommand:
    return LeadershipCommand(
        TopicPartition(topic, state.partition_index),
        topic_id,
        state.leader,
        state.leader_epoch,
        state.partition_epoch,
        state.controller_epoch,
        tuple(state.isr),
        tuple(state.replicas),
        state.is_new,
        tuple(state.adding_replicas),
        tuple(state.removing_replicas),
    )

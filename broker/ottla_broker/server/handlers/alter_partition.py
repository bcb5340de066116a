"""AlterPartition (key 56, leader to controller; KIP-497): a leader changes the ISR of its partitions.

Behaviour
    Each partition by itself. An accepted ISR is in the state znode before the response is sent, and every broker gets
    it by UpdateMetadata. The response has the state of each accepted partition, also of one that did not change. The
    leader epoch does not change.
Rights, in this order
    ClusterAction:Cluster (the cluster): the error of the whole answer.
Errors, in this order
    whole request: NOT_CONTROLLER, STALE_BROKER_EPOCH.
    partition: UNKNOWN_TOPIC_ID (v2+), then those of `controller.decisions.isr_changes`: UNKNOWN_TOPIC_OR_PARTITION,
    NOT_CONTROLLER, FENCED_LEADER_EPOCH, INVALID_REQUEST, INVALID_UPDATE_VERSION, INELIGIBLE_REPLICA (v0 and 1:
    OPERATION_NOT_ATTEMPTED). INVALID_UPDATE_VERSION also when the znode was written by another client meanwhile.
Versions
    1: leader recovery state (KIP-704). 2: topic ids. 3: broker epochs of the ISR's members (KIP-903).
"""

from __future__ import annotations

from ottla_broker.controller.acts.isr_writes import IsrResult, TopicIsrChanges
from ottla_broker.controller.decisions.isr_changes import UNKNOWN_BROKER_EPOCH, IsrChange
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.protocol.generated.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    ResponsePartitionData,
    ResponseTopicData,
    TopicData,
)
from ottla_broker.server.handler_api import RequestContext, Services


async def handle(services: Services, context: RequestContext, request: AlterPartitionRequest) -> AlterPartitionResponse:
    """Answers for every partition, in the order of the request."""
    version = context.api_version
    changes = [
        TopicIsrChanges(
            bytes(topic.topic_id) if version >= 2 else None,
            topic.topic_name if version < 2 else None,
            {entry.partition_index: _change(request.broker_id, entry, version) for entry in topic.partitions},
        )
        for topic in request.topics
    ]
    try:
        results = await services.controller.alter_partitions(request.broker_id, request.broker_epoch, changes, version)
    except KafkaError as error:
        return AlterPartitionResponse(error_code=int(error.code))
    return AlterPartitionResponse(
        topics=[_topic(topic, result) for topic, result in zip(request.topics, results, strict=True)]
    )


def _change(broker: int, entry: PartitionData, version: int) -> IsrChange:
    return IsrChange(
        broker,
        entry.leader_epoch,
        entry.partition_epoch,
        [(member.broker_id, member.broker_epoch) for member in entry.new_isr_with_epochs]
        if version >= 3
        else [(member, UNKNOWN_BROKER_EPOCH) for member in entry.new_isr],
        entry.leader_recovery_state,
    )


def _topic(topic: TopicData, results: dict[int, IsrResult]) -> ResponseTopicData:
    return ResponseTopicData(
        topic_name=topic.topic_name,
        topic_id=topic.topic_id,
        partitions=[_partition(index, result) for index, result in results.items()],
    )


def _partition(index: int, result: IsrResult) -> ResponsePartitionData:
    state = result.leadership
    if state is None:
        return ResponsePartitionData(partition_index=index, error_code=int(result.error))
    return ResponsePartitionData(
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        leader_recovery_state=int(state.recovery_state),
        partition_epoch=state.partition_epoch,
    )

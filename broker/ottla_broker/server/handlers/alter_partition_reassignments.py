"""AlterPartitionReassignments (key 45, at the controller; KIP-455).

Behaviour
    Gives partitions other replicas, or with null takes back what is under way. A new list replaces one that is still
    being worked on. The answer leaves when the change has begun; ListPartitionReassignments tells how it goes on. A
    partition named twice gets its last list.
Errors, in this order
    whole request: NOT_CONTROLLER.
    partition: those of `controller.reassignment.plan`: INVALID_REPLICA_ASSIGNMENT (empty, a broker twice, a negative
    id, one to add that is not alive), NO_REASSIGNMENT_IN_PROGRESS (nothing to take back), INVALID_REPLICA_ASSIGNMENT
    (nobody in the ISR would stay). Then UNKNOWN_TOPIC_OR_PARTITION, also of a topic that is being deleted.
Versions
    0 alone.
"""

from __future__ import annotations

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla_broker.records.ids import TopicPartition
from ottla_broker.server.handler_api import RequestContext, Services


async def handle(
    services: Services, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Answers for every partition, topics in the order of the request."""
    wanted: dict[TopicPartition, tuple[int, ...] | None] = {
        TopicPartition(topic.name, partition.partition_index): (
            None if partition.replicas is None else tuple(partition.replicas)
        )
        for topic in request.topics
        for partition in topic.partitions
    }
    try:
        answers = await services.controller.alter_reassignments(wanted)
    except KafkaError as error:
        return AlterPartitionReassignmentsResponse(
            error_code=int(error.code), error_message=error.message, responses=[]
        )
    topics = {topic.name: ReassignableTopicResponse(name=topic.name, partitions=[]) for topic in request.topics}
    for partition in wanted:
        refusal = answers[partition]
        topics[partition.topic].partitions.append(
            ReassignablePartitionResponse(
                partition_index=partition.partition,
                error_code=int(ErrorCode.NONE if refusal is None else refusal.code),
                error_message=None if refusal is None else refusal.message,
            )
        )
    return AlterPartitionReassignmentsResponse(responses=list(topics.values()))

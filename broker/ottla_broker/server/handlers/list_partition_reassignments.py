"""ListPartitionReassignments (key 46, at the controller; KIP-455).

Behaviour
    Lists the partitions that are being reassigned, all or the requested ones: their current replicas, the adding and
    the removing ones. Others are left out, also unknown ones.
Errors, in this order
    whole request: NOT_CONTROLLER.
Versions
    0 alone.
"""

from __future__ import annotations

from ottla_broker.protocol.errors import KafkaError
from ottla_broker.protocol.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ottla_broker.records.ids import TopicPartition
from ottla_broker.server.handler_api import RequestContext, Services


async def handle(
    services: Services, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Topics and partitions in ascending order."""
    requested = None
    if request.topics is not None:
        requested = [TopicPartition(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    try:
        ongoing = await services.controller.list_reassignments(requested)
    except KafkaError as error:
        return ListPartitionReassignmentsResponse(error_code=int(error.code), error_message=error.message, topics=[])
    topics: dict[str, OngoingTopicReassignment] = {}
    for partition, assignment in sorted(ongoing.items()):
        topics.setdefault(
            partition.topic, OngoingTopicReassignment(name=partition.topic, partitions=[])
        ).partitions.append(
            OngoingPartitionReassignment(
                partition_index=partition.partition,
                replicas=list(assignment.replicas),
                adding_replicas=list(assignment.adding),
                removing_replicas=list(assignment.removing),
            )
        )
    return ListPartitionReassignmentsResponse(topics=list(topics.values()))

"""ListPartitionReassignments (key 46, at the controller; KIP-455).

Behaviour
    Lists the partitions that are being reassigned, all or the requested ones: their current replicas, the adding and
    the removing ones. Others are left out, also unknown ones.
Rights, in this order
    Describe:Cluster (the cluster): the error of the whole answer.
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

_TOGETHER = 200
"""So many partitions are looked up at once."""


async def handle(
    services: Services, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Topics and partitions in ascending order."""
    requested = None
    if request.topics is not None:
        requested = [
            TopicPartition(topic.name, index)
            async for topic in context.each(request.topics)
            async for index in context.each(topic.partition_indexes)
        ]
    try:
        if requested is None:
            ongoing = await services.controller.list_reassignments()
        else:
            ongoing = {}
            async for first in context.each(range(0, len(requested) or 1, _TOGETHER), _TOGETHER):
                ongoing.update(await services.controller.list_reassignments(requested[first : first + _TOGETHER]))
    except KafkaError as error:
        return ListPartitionReassignmentsResponse(error_code=int(error.code), error_message=error.message, topics=[])
    topics: dict[str, OngoingTopicReassignment] = {}
    async for partition, assignment in context.each(sorted(ongoing.items())):
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

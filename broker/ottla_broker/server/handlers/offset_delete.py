"""OffsetDelete (key 47, KIP-496).

Behaviour
    Deletes offsets of a group: all of a group without members, and of a consumer group with members those of topics
    that no member subscribes to. Responds once the tombstones are stored.
Rights, in this order
    Delete:Group (the group): the error of the whole answer.
    Read:Topic (each topic): the error in each of its partitions.
Errors, in this order
    whole request: INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE (shutting down), COORDINATOR_LOAD_IN_PROGRESS,
    NOT_COORDINATOR, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP. Partition: UNKNOWN_TOPIC_OR_PARTITION,
    GROUP_SUBSCRIBED_TO_TOPIC, and the errors of appending the tombstones.
Versions
    0 is the only one.
"""

from __future__ import annotations

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla_broker.records.ids import TopicPartition
from ottla_broker.server.handler_api import RequestContext, Services


async def handle(services: Services, context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    requested = {
        TopicPartition(topic.name, partition.partition_index): None
        async for topic in context.each(request.topics)
        async for partition in context.each(topic.partitions)
    }
    known = [
        partition async for partition in context.each(requested) if services.metadata.partition(*partition) is not None
    ]
    error, errors = await services.group_coordinator.delete_offsets(request.group_id, known)
    if error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=int(error))
    topics: dict[str, list[OffsetDeleteResponsePartition]] = {}
    async for partition in context.each(requested):
        partition_error = errors.get(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        topics.setdefault(partition.topic, []).append(
            OffsetDeleteResponsePartition(partition_index=partition.partition, error_code=int(partition_error))
        )
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(name=name, partitions=partitions)
            async for name, partitions in context.each(topics.items())
        ]
    )

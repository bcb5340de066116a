"""DescribeProducers (key 61): describes the producer state of partitions (KIP-664).

Behaviour
    The state of each replica on this broker, leader or follower: every producer that has not expired
    (producer.id.expiration.ms), with the first offset of its open transaction, if any.
Rights, in this order
    Read:Topic (each topic): the error in each of its partitions.
Errors, in this order, per partition
    INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER (no replica here).
Versions
    0 is the only one, and flexible.
"""

from __future__ import annotations

from ottla_broker.controller.decisions import topic_rules
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla_broker.replication.partition import Partition
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.turns import ELEMENTS_PER_TURN


async def handle(
    services: Services, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    topics: list[TopicResponse] = []
    answered: set[tuple[str, int]] = set()
    count = 0
    async for topic in context.each(request.topics):
        partitions: list[PartitionResponse] = []
        async for index in context.each(topic.partition_indexes):
            count += 1
            # One partition may have thousands of producers: see `RequestContext.distinct`.
            if count > ELEMENTS_PER_TURN and (topic.name, index) in answered:
                continue
            answered.add((topic.name, index))
            partitions.append(await _describe(services, context, topic.name, index))
        topics.append(TopicResponse(name=topic.name, partitions=partitions))
    return DescribeProducersResponse(topics=topics)


async def _describe(services: Services, context: RequestContext, topic: str, index: int) -> PartitionResponse:
    try:
        topic_rules.check_name(topic)
    except KafkaError as error:
        return PartitionResponse(
            partition_index=index, error_code=int(error.code), error_message=error.message, active_producers=[]
        )
    if topic not in services.metadata.topics:
        found: Partition | ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        found = services.replica_manager.partition_or_error(topic, index)
    if isinstance(found, ErrorCode):
        return PartitionResponse(partition_index=index, error_code=int(found), active_producers=[])
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.current_txn_first_offset,
            )
            # A copy: batches may be appended between two turns.
            async for entry in context.each(tuple(found.log.state.producers.entries))
        ],
    )

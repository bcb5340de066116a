"""OffsetForLeaderEpoch (key 23): the end offset of a leader epoch (KIP-101, KIP-279, KIP-320).

Behaviour
    The largest epoch in the leader's log at or below the requested one, and its end offset: the log end offset for the
    latest epoch, (-1, -1) when it is unknown. Only the leader responds.
Rights, in this order
    ClusterAction:Cluster (all topics): the next right decides.
    Describe:Topic (each topic): the error in each of its partitions.
Errors, in this order, per partition
    KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER (not here), UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH,
    UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER (not the leader).
Versions
    1: leader epoch in the response. 2: current leader epoch, throttle time. 3: replica id. 4: flexible.
"""

from __future__ import annotations

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ottla_broker.server.handler_api import RequestContext, Services


async def handle(
    services: Services, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Answers from memory."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _result(services, topic.topic, requested) async for requested in context.each(topic.partitions)
                ],
            )
            async for topic in context.each(request.topics)
        ]
    )


def _result(services: Services, topic: str, requested: OffsetForLeaderPartition) -> EpochEndOffset:
    found = services.replica_manager.leader_or_error(topic, requested.partition, requested.current_leader_epoch)
    if isinstance(found, ErrorCode):
        return EpochEndOffset(error_code=int(found), partition=requested.partition)
    epoch, end_offset = found.log.end_of_epoch(requested.leader_epoch)
    return EpochEndOffset(partition=requested.partition, leader_epoch=epoch, end_offset=end_offset)

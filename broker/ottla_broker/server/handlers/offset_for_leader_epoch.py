"""OffsetForLeaderEpoch (key 23): where an epoch ended in the leader's log (KIP-101, KIP-279, KIP-320).

Behaviour
    Gives the largest epoch that the leader knows at or below the asked one, and the offset behind its last record:
    the log end offset for the latest epoch, (-1, -1) when it cannot tell. Only the leader answers.
Errors, in this order, per partition
    KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER (not here), UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH,
    UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER (not the leader).
Versions
    1: leader epoch in the answer. 2: current leader epoch, throttle time. 3: replica id. 4: flexible.
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
                partitions=[_answer(services, topic.topic, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _answer(services: Services, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    found = services.replica_manager.leader_or_error(topic, asked.partition, asked.current_leader_epoch)
    if isinstance(found, ErrorCode):
        return EpochEndOffset(error_code=int(found), partition=asked.partition)
    epoch, end_offset = found.log.end_of_epoch(asked.leader_epoch)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)

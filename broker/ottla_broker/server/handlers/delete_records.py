"""DeleteRecords (key 21, at the partitions' leaders, KIP-107).

Behaviour
    Advances the leader's log start offset (-1: to the high watermark), and writes log-start-offset-checkpoint before it
    responds; the next retention run deletes whole segments below it. The response has the low watermark, the lowest
    log start offset of the live replicas, once that has reached the offset, at most TimeoutMs later. An offset below
    the log start changes nothing and succeeds. Of a partition named twice the last offset counts.
Rights, in this order
    Delete:Topic (each topic): the error in each of its partitions.
Errors, in this order, per partition
    UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER (no replica here), KAFKA_STORAGE_ERROR, INVALID_TOPIC_EXCEPTION
    (an internal topic), NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION (cleanup.policy without delete), OFFSET_OUT_OF_RANGE
    (beyond the high watermark, or negative and not -1), REQUEST_TIMED_OUT (a live replica has not advanced its
    log start in time: with the low watermark of then). With any other error the low watermark is -1.
Versions
    1: throttle time counts at the client (KIP-219). 2: flexible.
"""

from __future__ import annotations

import asyncio

from ottla_broker.config import INTERNAL_TOPICS
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.deletion import NO_LOW_WATERMARK, DelayedDeleteRecords
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.replica_states.local_replica import NO_EPOCH
from ottla_broker.server.handler_api import RequestContext, Services

_BEGUN_TOGETHER = 50


async def handle(services: Services, context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Responds when every partition is done, or the time is up."""
    requested = {
        TopicPartition(topic.name, partition.partition_index): partition.offset
        async for topic in context.each(request.topics)
        async for partition in context.each(topic.partitions)
    }
    entries = {tp: DeleteRecordsPartitionResult(partition_index=tp.partition) async for tp in context.each(requested)}
    begun: list[tuple[Partition, int] | BaseException] = []
    # Together, as many as fit in a turn: each waits for its write.
    wanted = list(requested.items())
    async for first in context.each(range(0, len(wanted), _BEGUN_TOGETHER), _BEGUN_TOGETHER):
        some = wanted[first : first + _BEGUN_TOGETHER]
        begun += await asyncio.gather(*(_begin(services, tp, offset) for tp, offset in some), return_exceptions=True)
    done: asyncio.Future[None] = services.clock.create_future()
    waiting = DelayedDeleteRecords(lambda: done.set_result(None))
    async for (tp, entry), result in context.each(zip(entries.items(), begun, strict=True)):
        if isinstance(result, KafkaError):
            entry.error_code = int(result.code)
            entry.low_watermark = NO_LOW_WATERMARK
        elif isinstance(result, BaseException):
            raise result
        else:
            _wait_for(*result, waiting, entry, services.replica_manager.partition(*tp))
    if waiting.pending and not waiting.is_done:
        services.replica_manager.wheel.arm(waiting, max(0, request.timeout_ms) / 1000)
        await done
    topics: dict[str, list[DeleteRecordsPartitionResult]] = {}
    async for tp, entry in context.each(entries.items()):
        topics.setdefault(tp.topic, []).append(entry)
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(name=name, partitions=results)
            async for name, results in context.each(topics.items())
        ]
    )


async def _begin(services: Services, tp: TopicPartition, offset: int) -> tuple[Partition, int]:
    """Advances the leader's log start offset; returns the partition and the offset that its replicas have to reach."""
    found = services.replica_manager.partition_or_error(*tp)
    if isinstance(found, ErrorCode):
        raise KafkaError(found)
    if tp.topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"records of the internal topic {tp.topic} stay")
    found = services.replica_manager.leader_or_error(*tp, NO_EPOCH)
    if isinstance(found, ErrorCode):
        raise KafkaError(found)
    return found, await found.delete_records(offset)


def _wait_for(
    partition: Partition,
    offset: int,
    waiting: DelayedDeleteRecords,
    entry: DeleteRecordsPartitionResult,
    current: Partition | None,
) -> None:
    """Puts the entry into the partition's queue when its replicas are not there yet."""
    if partition is not current or not partition.is_leader:
        # Removed, or recreated, while another partition of the request was written.
        entry.error_code, entry.low_watermark = int(ErrorCode.NOT_LEADER_OR_FOLLOWER), NO_LOW_WATERMARK
        return
    entry.low_watermark = partition.low_watermark
    if entry.low_watermark < offset:
        partition.deletions.add(offset, waiting, entry)

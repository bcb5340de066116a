"""ListOffsets (key 2): offsets by timestamp, earliest and latest offsets.

Behaviour
    Timestamps: -1 latest (what the client may read: for consumers the high watermark, or the last stable offset with
    isolation level read_committed; for followers the log end),
    -2 earliest, -3 the record with the largest timestamp (v7+, KIP-734), -4 earliest local (v8+, KIP-405; nothing is
    tiered here, so the same as -2), -5 latest tiered (v9+, KIP-1005) and -6 earliest that waits for tiering (v11+,
    KIP-1023; there is neither: offset -1), otherwise the first record with that timestamp or a later one. Nothing
    found: offset -1, timestamp -1.
    Version 0 gives up to MaxNumOffsets offsets, newest first: the base offsets of segments, and the log end. With a
    time, those of segments that are not younger.
Rights, in this order
    Describe:Topic (each topic): the error in each of its partitions.
Errors, in this order, per partition
    INVALID_REQUEST (named twice), UNSUPPORTED_VERSION (a special timestamp before its version), KAFKA_STORAGE_ERROR,
    NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
    NOT_LEADER_OR_FOLLOWER (not the leader), OFFSET_NOT_AVAILABLE (LEADER_NOT_AVAILABLE before v5): a new leader whose
    high watermark has not reached the start of its epoch, so that the latest offset could seem to go back.
Versions
    0: a list of offsets. 1: one offset, and its timestamp. 2: isolation level, throttle time.
    4: leader epochs (KIP-320). 5: OFFSET_NOT_AVAILABLE. 6: flexible. 7: -3. 8: -4. 9: -5.
    10: a timeout for tiered storage, which is not used (KIP-1075). 11: -6.
"""

from __future__ import annotations

from collections import Counter

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla_broker.replication.partition import Partition
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.storage.log.record_search import RecordSearch

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

READ_COMMITTED = 1

CONSUMER = -1
DEBUGGING_CONSUMER = -2

_SINCE_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_UNKNOWN = -1


async def handle(services: Services, context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Waits where an offset has to be searched in a segment."""
    named: Counter[tuple[str, int]] = Counter()
    async for topic in context.each(request.topics):
        async for wanted in context.each(topic.partitions):
            named[topic.name, wanted.partition_index] += 1
    topics = []
    async for topic in context.each(request.topics):
        results = []
        async for wanted in context.each(topic.partitions):
            if named[topic.name, wanted.partition_index] > 1:
                results.append(_failed(wanted, ErrorCode.INVALID_REQUEST))
            else:
                results.append(await _result(services, context, request, topic.name, wanted))
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=results))
    return ListOffsetsResponse(topics=topics)


async def _result(
    services: Services,
    context: RequestContext,
    request: ListOffsetsRequest,
    topic: str,
    wanted: ListOffsetsPartition,
) -> ListOffsetsPartitionResponse:
    version = context.api_version
    timestamp = wanted.timestamp
    if timestamp < EARLIEST_PENDING_UPLOAD or version < _SINCE_VERSION.get(timestamp, 0):
        return _failed(wanted, ErrorCode.UNSUPPORTED_VERSION)
    manager = services.replica_manager
    if request.replica_id == DEBUGGING_CONSUMER:
        found = manager.partition_or_error(topic, wanted.partition_index)
    else:
        found = manager.leader_or_error(topic, wanted.partition_index, wanted.current_leader_epoch)
    if isinstance(found, ErrorCode):
        return _failed(wanted, found)
    if version == 0:
        return await _old_style(found, wanted, is_client=request.replica_id == CONSUMER)
    try:
        offset, at, epoch = await _look_up(
            found,
            timestamp,
            services.record_search,
            is_client=request.replica_id == CONSUMER,
            is_read_committed=request.isolation_level == READ_COMMITTED,
        )
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.OFFSET_NOT_AVAILABLE and version < 5:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return _failed(wanted, code)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        timestamp=at,
        offset=offset,
        leader_epoch=epoch if version >= 4 else _UNKNOWN,
    )


async def _old_style(
    partition: Partition, wanted: ListOffsetsPartition, *, is_client: bool
) -> ListOffsetsPartitionResponse:
    log = partition.log
    if wanted.timestamp == EARLIEST:
        offsets = [log.state.log_start_offset][: max(wanted.max_num_offsets, 0)]
    else:
        timestamp = None if wanted.timestamp == LATEST else wanted.timestamp
        try:
            offsets = await log.timestamps.segment_offsets(timestamp, wanted.max_num_offsets)
        except KafkaError as error:
            return _failed(wanted, error.code)
    upper = log.state.high_watermark
    if is_client and any(offset > upper for offset in offsets):
        # As in every version, no offset that a consumer may not read yet.
        offsets = [upper, *(offset for offset in offsets if offset < upper)][: wanted.max_num_offsets]
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, old_style_offsets=offsets)


async def _look_up(
    partition: Partition, timestamp: int, search: RecordSearch, *, is_client: bool, is_read_committed: bool
) -> tuple[int, int, int]:
    """(offset, timestamp, leader epoch), each -1 where there is none."""
    log = partition.log
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.state.log_start_offset, _UNKNOWN, log.state.epochs.epoch_at(log.state.log_start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _UNKNOWN, _UNKNOWN, _UNKNOWN
    visible = log.state.last_stable_offset if is_read_committed else log.state.high_watermark
    upper = visible if is_client else log.state.log_end_offset
    is_behind = is_client and partition.leader_epoch_start_offset > log.state.high_watermark
    if timestamp == LATEST:
        if is_behind:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return upper, _UNKNOWN, partition.leader_epoch
    if timestamp == MAX_TIMESTAMP:
        result = await log.timestamps.max_timestamp(upper, search)
    else:
        result = await log.timestamps.offset_for_timestamp(timestamp, upper, search)
    if result is None or result.offset >= upper:
        if is_behind:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return _UNKNOWN, _UNKNOWN, _UNKNOWN
    return result.offset, result.timestamp, result.leader_epoch


def _failed(wanted: ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=int(error))

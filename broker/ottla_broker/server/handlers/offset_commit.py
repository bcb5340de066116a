"""OffsetCommit (key 8).

Behaviour
    Stores offsets in `__consumer_offsets` and responds once `offsets.commit.required.acks` is met. Version 0 stores
    them in ZooKeeper (/consumers/<group>/offsets/<topic>/<partition>), as 0.8 clients expect. A null metadata becomes
    an empty one. The request's retention (v2 to v4) becomes an expiry timestamp that is stored with the offset; one
    that is too large for a timestamp becomes the largest.
Rights, in this order
    Read:Group (the group): the error in every partition.
    Read:Topic (each topic): the error in each of its partitions.
Errors, per partition, in this order
    UNKNOWN_TOPIC_ID (v10), UNKNOWN_TOPIC_OR_PARTITION (for these alone; the others are committed), INVALID_GROUP_ID,
    COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, ILLEGAL_GENERATION (a generation of an
    unknown group), UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS,
    UNSUPPORTED_VERSION (before v9) and STALE_MEMBER_EPOCH (a group of the consumer protocol),
    OFFSET_METADATA_TOO_LARGE, and the errors of the append: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
    INVALID_COMMIT_OFFSET_SIZE, REQUEST_TIMED_OUT.
    Version 0: UNKNOWN_TOPIC_OR_PARTITION, INVALID_GROUP_ID (no part of a path), OFFSET_METADATA_TOO_LARGE,
    COORDINATOR_NOT_AVAILABLE (no ZooKeeper).
Versions
    1: generation, member, commit time; kept in `__consumer_offsets`. 2: retention, no time. 3: throttle time.
    5: no retention (KIP-211). 6: leader epoch (KIP-320). 7: group instance id (KIP-345). 8: flexible. 9: members
    of groups of the consumer protocol (KIP-848), with their member epoch. 10: topic ids.
"""

from __future__ import annotations

from ottla_broker.groups.offsets import NO_EXPIRE_TIMESTAMP, CommittedOffset
from ottla_broker.groups.zookeeper_offsets import is_storable, store_offset
from ottla_broker.ports.coordination import CoordinationError
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla_broker.records.ids import TopicPartition
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.topic_ids import with_names

DEFAULT_TIMESTAMP = -1
DEFAULT_RETENTION_TIME = -1
_FIRST_VERSION_WITH_TOPIC_IDS = 10
_LARGEST_TIMESTAMP = 2**63 - 1


async def handle(services: Services, context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    metadata = services.metadata
    unknown: list[OffsetCommitRequestTopic] = []
    if context.api_version >= _FIRST_VERSION_WITH_TOPIC_IDS:
        request.topics, unknown = await with_names(context, request.topics, metadata.topic_name)
    results: dict[TopicPartition, ErrorCode] = {}
    commits: dict[TopicPartition, CommittedOffset] = {}
    now_ms = services.clock.now_ms()
    retention_ms = request.retention_time_ms
    expiry_ms = NO_EXPIRE_TIMESTAMP
    if retention_ms != DEFAULT_RETENTION_TIME:
        expiry_ms = min(now_ms + retention_ms, _LARGEST_TIMESTAMP)
    async for topic in context.each(request.topics):
        async for partition in context.each(topic.partitions):
            name = TopicPartition(topic.name, partition.partition_index)
            if metadata.partition(topic.name, partition.partition_index) is None:
                results[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            results[name] = ErrorCode.NONE  # keeps the request's order in the response
            time_ms = partition.commit_timestamp
            commits[name] = CommittedOffset(
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.committed_metadata or "",
                now_ms if time_ms == DEFAULT_TIMESTAMP else time_ms,
                expiry_ms,
            )
    if context.api_version == 0:
        results.update(await _store_in_zookeeper(services, request.group_id, commits))
    elif commits:
        results.update(
            await services.group_coordinator.commit(
                request.group_id,
                request.member_id,
                request.group_instance_id,
                request.generation_id_or_member_epoch,
                commits,
                context.api_version,
            )
        )
    response = await _response(context, results)
    if context.api_version >= _FIRST_VERSION_WITH_TOPIC_IDS:
        await _answer_by_id(context, response, request, unknown)
    return response


async def _store_in_zookeeper(
    services: Services, group_id: str, commits: dict[TopicPartition, CommittedOffset]
) -> dict[TopicPartition, ErrorCode]:
    if not is_storable(group_id):
        return dict.fromkeys(commits, ErrorCode.INVALID_GROUP_ID)
    results = {}
    for partition, commit in commits.items():
        if services.group_coordinator.is_metadata_too_large(commit.metadata):
            results[partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            continue
        try:
            await store_offset(services.coordination, group_id, partition, commit.offset)
            results[partition] = ErrorCode.NONE
        except CoordinationError:
            results[partition] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return results


async def _answer_by_id(
    context: RequestContext,
    response: OffsetCommitResponse,
    request: OffsetCommitRequest,
    unknown: list[OffsetCommitRequestTopic],
) -> None:
    ids = {topic.name: topic.topic_id async for topic in context.each(request.topics)}
    async for topic in context.each(response.topics):
        topic.topic_id = ids[topic.name]
    response.topics += [
        OffsetCommitResponseTopic(
            topic_id=topic.topic_id,
            partitions=[
                OffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=int(ErrorCode.UNKNOWN_TOPIC_ID)
                )
                async for partition in context.each(topic.partitions)
            ],
        )
        async for topic in context.each(unknown)
    ]


async def _response(context: RequestContext, results: dict[TopicPartition, ErrorCode]) -> OffsetCommitResponse:
    topics: dict[str, list[OffsetCommitResponsePartition]] = {}
    async for (topic, partition), error in context.each(results.items()):
        topics.setdefault(topic, []).append(
            OffsetCommitResponsePartition(partition_index=partition, error_code=int(error))
        )
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(name=name, partitions=partitions)
            async for name, partitions in context.each(topics.items())
        ]
    )

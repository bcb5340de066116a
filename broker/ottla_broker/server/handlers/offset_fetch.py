"""OffsetFetch (key 9).

Behaviour
    The committed offsets of one group, from version 8 on of several; null topics (v2+) mean all that it has.
    A partition without an offset has -1 and no error. Version 0 reads ZooKeeper, where an unknown
    partition or an absent offset is UNKNOWN_TOPIC_OR_PARTITION, as 0.8 clients expect.
Rights, in this order
    Describe:Group (each group): the error of the group, in versions 0 and 1 of every partition.
    Describe:Topic (each named topic): the error in each of its partitions.
    Describe:Topic (each topic, when all are asked for): left out of the answer.
Errors, in this order
    group: GROUP_AUTHORIZATION_FAILED, INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE (shutting down),
    COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR; in version 1 every partition carries it. Partition: UNKNOWN_TOPIC_ID
    (v10), TOPIC_AUTHORIZATION_FAILED, UNSTABLE_OFFSET_COMMIT (RequireStable and a pending commit).
    Version 0: INVALID_GROUP_ID (no part of a path), UNKNOWN_TOPIC_OR_PARTITION, COORDINATOR_NOT_AVAILABLE (no
    ZooKeeper), UNKNOWN_SERVER_ERROR (the node is no number).
Versions
    1: offsets from `__consumer_offsets`. 2: all partitions, error of the group. 3: throttle time. 5: leader epoch
    (KIP-320). 6: flexible. 7: RequireStable (KIP-447). 8: several groups (KIP-709). 9: member id and epoch (KIP-848),
    which classic groups ignore; a group of the consumer protocol may answer UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH.
    10: topic ids; of all that a group has, topics without an id are left out.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla_broker.authorization.resources import AclOperation, ResourceType
from ottla_broker.coordination.znodes import ZnodeError
from ottla_broker.groups.coordinator import FetchedOffset
from ottla_broker.groups.offsets import NO_LEADER_EPOCH, CommittedOffset
from ottla_broker.groups.zookeeper_offsets import is_storable, load_offset
from ottla_broker.ports.coordination import CoordinationError
from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla_broker.records.ids import TopicPartition
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.topic_ids import with_names
from ottla_broker.server.turns import ELEMENTS_PER_TURN

logger = logging.getLogger("ottla.server")

INVALID_OFFSET = -1
_FIRST_VERSION_WITH_TOPIC_IDS = 10
_PARTITIONS_PER_STEP = 50
_GROUP_COST = 4
"""Of a group, in ordinary elements: its right is asked for, and what is denied is logged."""
_NOTHING = CommittedOffset(INVALID_OFFSET, NO_LEADER_EPOCH, "", -1)


async def handle(services: Services, context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if context.api_version >= 8:
        answer = _group_by_id if context.api_version >= _FIRST_VERSION_WITH_TOPIC_IDS else _group
        groups: list[OffsetFetchResponseGroup] = []
        described: set[str] = set()
        async for group in context.each(request.groups, _GROUP_COST):
            if group.topics is None:
                # A group may have thousands of offsets: see `RequestContext.distinct`.
                if len(groups) >= ELEMENTS_PER_TURN and group.group_id in described:
                    continue
                described.add(group.group_id)
            groups.append(await answer(services, context, group, require_stable=request.require_stable))
        return OffsetFetchResponse(groups=groups)
    partitions = await _partitions_of(context, request.topics)
    if not context.may(AclOperation.DESCRIBE, ResourceType.GROUP, request.group_id):
        refusal = ErrorCode.GROUP_AUTHORIZATION_FAILED
        if context.api_version >= 2:
            return await _response(context, [], refusal)
        return await _response(
            context, [FetchedOffset(one, None, refusal) async for one in context.each(partitions or ())]
        )
    if context.api_version == 0:
        return await _response(context, await _from_zookeeper(services, context, request.group_id, partitions or []))
    error, found = await _fetch(services, context, request.group_id, partitions, require_stable=request.require_stable)
    if error is not ErrorCode.NONE and context.api_version == 1:
        failed = [FetchedOffset(partition, None, error) async for partition in context.each(partitions or ())]
        return await _response(context, failed)
    return await _response(context, found, error)


async def _fetch(
    services: Services,
    context: RequestContext,
    group_id: str,
    partitions: Sequence[TopicPartition] | None,
    *,
    require_stable: bool,
    member_id: str | None = None,
    member_epoch: int = -1,
) -> tuple[ErrorCode, list[FetchedOffset]]:
    """`GroupCoordinator.fetch` of some partitions in each turn; an error of a later one is that of all."""
    coordinator = services.group_coordinator
    is_all = partitions is None
    if partitions is None:
        partitions = coordinator.partitions_with_offset(group_id)
    partitions, refused = await _allowed(context, partitions, is_all=is_all)
    all_found: list[FetchedOffset] = []
    async for first in context.each(range(0, len(partitions) or 1, _PARTITIONS_PER_STEP), _PARTITIONS_PER_STEP):
        error, found = coordinator.fetch(
            group_id,
            partitions[first : first + _PARTITIONS_PER_STEP],
            require_stable=require_stable,
            member_id=member_id,
            member_epoch=member_epoch,
        )
        if error is not ErrorCode.NONE:
            return error, []
        all_found += found
    return ErrorCode.NONE, all_found + ([] if is_all else refused)


async def _allowed(
    context: RequestContext, partitions: Sequence[TopicPartition], *, is_all: bool
) -> tuple[Sequence[TopicPartition], list[FetchedOffset]]:
    """(the partitions of topics that the principal may describe, the refusals of the others)."""
    if context.connection.access is None:
        return partitions, []
    names = (one.topic for one in partitions)
    denied = await context.denied_of_many(AclOperation.DESCRIBE, ResourceType.TOPIC, names, logs=not is_all)
    if not denied:
        return partitions, []
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return (
        [one async for one in context.each(partitions) if one.topic not in denied],
        [FetchedOffset(one, None, error) async for one in context.each(partitions) if one.topic in denied],
    )


async def _group(
    services: Services, context: RequestContext, requested: OffsetFetchRequestGroup, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    if not context.may(AclOperation.DESCRIBE, ResourceType.GROUP, requested.group_id):
        refusal = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return OffsetFetchResponseGroup(group_id=requested.group_id, topics=[], error_code=refusal)
    error, found = await _fetch(
        services,
        context,
        requested.group_id,
        await _partitions_of(context, requested.topics),
        require_stable=require_stable,
        member_id=requested.member_id,
        member_epoch=requested.member_epoch,
    )
    topics: dict[str, list[OffsetFetchResponsePartitions]] = {}
    async for partition, offset, partition_error in context.each(found):
        committed = offset or _NOTHING
        topics.setdefault(partition.topic, []).append(
            OffsetFetchResponsePartitions(
                partition_index=partition.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
                error_code=int(partition_error),
            )
        )
    return OffsetFetchResponseGroup(
        group_id=requested.group_id,
        topics=[
            OffsetFetchResponseTopics(name=name, partitions=partitions)
            async for name, partitions in context.each(topics.items())
        ],
        error_code=int(error),
    )


async def _group_by_id(
    services: Services, context: RequestContext, requested: OffsetFetchRequestGroup, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    unknown: list[OffsetFetchRequestTopics] = []
    if requested.topics is not None:
        requested.topics, unknown = await with_names(context, requested.topics, services.metadata.topic_name)
    answer = await _group(services, context, requested, require_stable=require_stable)
    if answer.error_code:
        return answer
    async for topic in context.each(answer.topics):
        topic.topic_id = services.metadata.topic_id(topic.name)
    answer.topics = [topic async for topic in context.each(answer.topics) if topic.topic_id != ZERO_UUID] + [
        OffsetFetchResponseTopics(
            topic_id=topic.topic_id,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=index,
                    committed_offset=INVALID_OFFSET,
                    metadata="",
                    error_code=int(ErrorCode.UNKNOWN_TOPIC_ID),
                )
                async for index in context.each(topic.partition_indexes)
            ],
        )
        async for topic in context.each(unknown)
    ]
    return answer


async def _response(
    context: RequestContext, found: Sequence[FetchedOffset], error: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponse:
    topics: dict[str, list[OffsetFetchResponsePartition]] = {}
    async for partition, offset, partition_error in context.each(found):
        committed = offset or _NOTHING
        topics.setdefault(partition.topic, []).append(
            OffsetFetchResponsePartition(
                partition_index=partition.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
                error_code=int(partition_error),
            )
        )
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(name=name, partitions=partitions)
            async for name, partitions in context.each(topics.items())
        ],
        error_code=int(error),
    )


async def _partitions_of(
    context: RequestContext,
    topics: Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
) -> list[TopicPartition] | None:
    if topics is None:
        return None
    return [
        TopicPartition(topic.name, index)
        async for topic in context.each(topics)
        async for index in context.each(topic.partition_indexes)
    ]


async def _from_zookeeper(
    services: Services, context: RequestContext, group_id: str, partitions: Sequence[TopicPartition]
) -> list[FetchedOffset]:
    if not is_storable(group_id):
        error = ErrorCode.INVALID_GROUP_ID
        return [FetchedOffset(partition, None, error) async for partition in context.each(partitions)]
    partitions, found = await _allowed(context, partitions, is_all=False)
    async for partition in context.each(partitions):
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        offset: int | None = None
        if services.metadata.partition(partition.topic, partition.partition) is not None:
            try:
                offset = await load_offset(services.coordination, group_id, partition)
            except CoordinationError:
                error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            except ZnodeError as failure:
                logger.error("%s", failure)
                error = ErrorCode.UNKNOWN_SERVER_ERROR
        if offset is None:
            found.append(FetchedOffset(partition, None, error))
        else:
            found.append(FetchedOffset(partition, CommittedOffset(offset, NO_LEADER_EPOCH, "", -1)))
    return found

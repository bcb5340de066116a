"""A fetch request of many partitions: what need not be of one moment is done in turns.

A request may name a partition a hundred thousand times, or as many that are not here. The first is the same as once
(Apache Kafka keeps the partitions of a request in a map), and the second is an error that stays one. What is left are
different partitions of this broker, which it is bounded by. Not here: these (`replication.fetch`).
"""

from __future__ import annotations

from ottla_broker.authorization.resources import AclOperation, ResourceType
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from ottla_broker.replication.leader_session import FINAL_EPOCH, INITIAL_EPOCH
from ottla_broker.replication.local_replicas.replica_manager import ReplicaManager
from ottla_broker.server.handler_api import RequestContext, Services

_FIRST_VERSION_WITH_TOPIC_IDS = 13


def _error_of(manager: ReplicaManager, name: str | None, index: int) -> ErrorCode:
    found = ErrorCode.UNKNOWN_TOPIC_ID if name is None else manager.partition_or_error(name, index)
    return found if isinstance(found, ErrorCode) else ErrorCode.NOT_LEADER_OR_FOLLOWER


async def without_missing(
    services: Services, context: RequestContext, request: FetchRequest
) -> list[FetchableTopicResponse]:
    """Leaves each partition in the request once, as it comes last, and gives the errors of those that are not here.

    A request with such errors is answered at once and without a session, as when there is no room for one. One that
    continues a session keeps its errors there: none of them is taken out. Raises ClientIsGone.
    """
    is_consumer = (request.replica_id if request.replica_state is None else request.replica_state.replica_id) < 0
    takes_out = request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)
    by_id = context.api_version >= _FIRST_VERSION_WITH_TOPIC_IDS
    manager = services.replica_manager
    left: dict[bytes | str, dict[int, FetchPartition]] = {}
    missing: dict[bytes | str, dict[int, PartitionData]] = {}
    async for topic in context.each(request.topics):
        key = bytes(topic.topic_id) if by_id else topic.topic
        name = manager.topic_name(topic.topic_id) if by_id else topic.topic
        local = {} if name is None else manager.topics.get(name) or {}
        is_denied = is_consumer and name is not None and not context.may(AclOperation.READ, ResourceType.TOPIC, name)
        if is_denied:
            local = {}
        async for partition in context.each(topic.partitions):
            index = partition.partition
            if not takes_out or index in local:
                left.setdefault(key, {})[index] = partition
                continue
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_denied else _error_of(manager, name, index)
            missing.setdefault(key, {})[index] = PartitionData(
                partition_index=index,
                error_code=int(error),
                high_watermark=-1,
                aborted_transactions=None,
                records=b"",
            )
    request.topics = [
        FetchTopic(topic_id=key, partitions=list(partitions.values()))
        if isinstance(key, bytes)
        else FetchTopic(topic=key, partitions=list(partitions.values()))
        async for key, partitions in context.each(left.items())
    ]
    if missing:
        request.session_epoch = FINAL_EPOCH
        request.max_wait_ms = 0
    return [
        FetchableTopicResponse(topic_id=key, partitions=list(partitions.values()))
        if isinstance(key, bytes)
        else FetchableTopicResponse(topic=key, partitions=list(partitions.values()))
        async for key, partitions in context.each(missing.items())
    ]

"""Metadata (key 3): brokers, topics, partitions and their leaders.

Behaviour
    Answers from the MetadataCache with the endpoints of the request's listener. No topics named: all of
    them (v0: an empty list; later: null). A missing topic is created when both `auto.create.topics.enable` and the
    request's AllowAutoTopicCreation allow it (before v4 every request does), none by its id; the response then
    has it already, or makes the client retry. Internal topics are created with their own settings.
    AuthorizedOperations are computed when requested (KIP-430): of a topic with an error too, where its name is known.
    Thousands of partitions are encoded in slices, between which the loop does other work; those of all topics once for
    all clients, as long as the metadata stays. Each topic is as of one moment, the brokers as of the last.
Rights, in this order
    Describe:Topic (each named topic): the error of the topic, without its partitions.
    Describe:Topic (each topic, when all are asked for): left out of the answer.
    Create:Topic (each topic that would be created, or Create:Cluster): the error of the topic.
    Describe:Cluster (the authorized operations of the cluster): no operation.
Errors, in this order
    whole request: INVALID_REQUEST per topic, and no brokers (a topic id, or no name, before v12).
    topic: UNKNOWN_TOPIC_ID (an unknown id), TOPIC_AUTHORIZATION_FAILED, INVALID_TOPIC_EXCEPTION (the name),
    UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE (just created), or the error of its creation.
    partition: LEADER_NOT_AVAILABLE (none, or not alive), LISTENER_NOT_FOUND (v6+: the leader does not listen there),
    REPLICA_NOT_AVAILABLE (v0: a replica is not alive).
Versions
    1: rack, controller id, IsInternal, null for all. 2: cluster id. 3: throttle time. 4: AllowAutoTopicCreation.
    5: offline replicas (KIP-112): those that the controller knows, and this broker's own at once. 7: leader epoch
    (KIP-320). 8: authorized operations. 9: flexible. 10: topic ids (KIP-516). 11: no authorized operations of the
    cluster (KIP-700). 12: topics by id, null names. 13: an error of the whole response (KIP-1102), which no broker
    sends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence, Set
from typing import TypeAlias

from ottla_broker.authorization.access import NOTHING
from ottla_broker.authorization.resources import CLUSTER_NAME, NOT_ASKED, AclOperation, ResourceType
from ottla_broker.config import COORDINATOR_TOPICS, INTERNAL_TOPICS
from ottla_broker.controller.decisions import topic_rules
from ottla_broker.metadata.cache import NO_LEADER, MetadataCache, PartitionMetadata, TopicMetadata
from ottla_broker.metadata.prepared import EncodedTopics
from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    write_response,
)
from ottla_broker.protocol.slices import SlicedResponse, SliceEncoder
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.own_offline_replicas import add_own_offline_replicas

FIRST_METADATA_S = 15.0
"""How long a request waits for the first UpdateMetadata; then its client has to use another broker."""


SLICE_PARTITIONS = 500
"""A response with more partitions is encoded in slices of about so many."""

_Answer: TypeAlias = "str | MetadataResponseTopic"
"""The name of a topic that is there, or the error of another one."""


async def handle(
    services: Services, context: RequestContext, request: MetadataRequest
) -> MetadataResponse | SlicedResponse:
    """Answers a MetadataRequest; waits for the creation of topics, and at the start for the first UpdateMetadata."""
    version = context.api_version
    cache = services.metadata
    if not cache.is_ready:
        # A client that gets an empty list forgets the brokers it knows; librdkafka then never finds one again.
        try:
            await asyncio.wait_for(cache.ready(), FIRST_METADATA_S)
        except TimeoutError:
            context.close_connection("no controller has named the brokers of the fleet yet")
            return MetadataResponse(brokers=[], topics=[])  # it is not sent; and no topic is created
    wants_operations = version >= 8 and request.include_topic_authorized_operations
    topics = request.topics
    asks_for_all = topics is None or (version == 0 and not topics)
    hidden: Set[str] = NOTHING
    seen = cache.version
    answers: list[_Answer]
    if topics is None or asks_for_all:
        names = await context.sorted(tuple(cache.topics))
        hidden = await context.denied_of_many(AclOperation.DESCRIBE, ResourceType.TOPIC, names, logs=False)
        answers = [name for name in names if name not in hidden]
    elif version < 12 and await _names_ids(context, topics):
        return MetadataResponse(
            brokers=[],
            topics=[
                _failed(topic.name or "", topic.topic_id, ErrorCode.INVALID_REQUEST)
                async for topic in context.each(topics)
            ],
        )
    else:
        answers = await _named(services, context, request, topics, wants_operations)

    def describe(answer: _Answer) -> MetadataResponseTopic | None:
        if not isinstance(answer, str):
            return answer
        topic = cache.topics.get(answer)
        if topic is not None:
            return _topic(cache, topic, context, wants_operations)
        # Deleted since the answer was begun.
        return None if asks_for_all else _failed(answer, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    encoded: EncodedTopics | None = None
    results: list[MetadataResponseTopic] = []
    if await _partition_count(cache, context, answers) > SLICE_PARTITIONS:

        async def encode() -> EncodedTopics:
            return await _encode(services, _encoder(version), map(describe, answers))

        is_for_everybody = not hidden and (context.connection.access is None or not wants_operations)
        if asks_for_all and is_for_everybody and not services.replica_manager.has_offline:
            kind = (version, context.listener, wants_operations)
            # Not what has been made since: it may have a topic whose right was not asked for here.
            encoded = await services.prepared_topics.get(kind, lambda: seen, encode)
        else:
            encoded = await encode()
    else:
        results = [described async for described in context.each(map(describe, answers)) if described is not None]
        add_own_offline_replicas(services, results)
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker, endpoint in cache.brokers_with(context.listener)
        ],
        cluster_id=services.cluster_id,
        controller_id=cache.controller_id,
        topics=results,
        cluster_authorized_operations=context.authorized_operations(ResourceType.CLUSTER, CLUSTER_NAME)
        if 8 <= version <= 10 and request.include_cluster_authorized_operations
        else NOT_ASKED,
    )
    return response if encoded is None else SlicedResponse(_encoder(version), response, encoded.topics, encoded.slices)


async def _names_ids(context: RequestContext, topics: Sequence[MetadataRequestTopic]) -> bool:
    async for topic in context.each(topics):
        if topic.name is None or topic.topic_id != ZERO_UUID:
            return True
    return False


async def _partition_count(cache: MetadataCache, context: RequestContext, answers: Sequence[_Answer]) -> int:
    count = 0
    async for answer in context.each(answers):
        topic = cache.topics.get(answer) if isinstance(answer, str) else None
        count += 0 if topic is None else len(topic.partitions)
    return count


async def _encode(
    services: Services, encoder: SliceEncoder, topics: Iterable[MetadataResponseTopic | None]
) -> EncodedTopics:
    """`topics`: made one by one, when their slice is; None is left out."""
    slices: list[bytes] = []
    some: list[MetadataResponseTopic] = []
    count = partitions = 0

    def end_slice() -> None:
        nonlocal count, partitions
        add_own_offline_replicas(services, some)
        slices.append(encoder.encode(some))
        count += len(some)
        partitions = 0
        some.clear()

    for topic in topics:
        if topic is None:
            continue
        some.append(topic)
        partitions += len(topic.partitions) or 1
        if partitions >= SLICE_PARTITIONS:
            end_slice()
            await services.clock.sleep(0)
    end_slice()
    return EncodedTopics(count, tuple(slices))


def _encoder(version: int) -> SliceEncoder:
    empty = MetadataResponse(brokers=[], topics=[])
    return SliceEncoder(write_response, version, empty, "topics", MetadataResponseTopic(name=""))


async def _named(
    services: Services,
    context: RequestContext,
    request: MetadataRequest,
    requested: Sequence[MetadataRequestTopic],
    wants_operations: bool,
) -> list[_Answer]:
    cache = services.metadata
    results: list[_Answer] = []
    names: list[str] = []
    ids: dict[str, bytes] = {}
    async for one in context.each(requested):
        topic_id = one.topic_id
        if topic_id == ZERO_UUID:
            continue
        name = cache.topic_name(topic_id)
        if name is None:
            results.append(_failed(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            names.append(name)
            ids[name] = topic_id
    errors: dict[str, int] = {}
    by_id = bool(results or names)
    if not by_id:  # with an id in the request, names are ignored
        names = [one.name async for one in context.each(requested) if one.name is not None]
    denied = await context.denied_of_many(AclOperation.DESCRIBE, ResourceType.TOPIC, names)
    if not by_id:
        missing = list(
            {name: None async for name in context.each(names) if name not in cache.topics and name not in denied}
        )
        if missing and request.allow_auto_topic_creation and services.config.auto_create_topics_enable:
            refused = await _may_not_create(context, missing)
            denied = denied | refused
            errors = await _create(services, context, [name for name in missing if name not in refused])
    # Only now: while some were created, the others may have got new leaders, or have been deleted.
    answered: set[str] = set()
    async for name in context.each(names):
        if name in answered:
            continue
        answered.add(name)
        if name in denied:
            results.append(_denied(name, ids.get(name)))
            continue
        if name in cache.topics:
            results.append(name)
            continue
        failed = _failed(name, ZERO_UUID, _error_of_missing(name, errors.get(name)))
        if wants_operations:
            failed.topic_authorized_operations = context.authorized_operations(ResourceType.TOPIC, name)
        results.append(failed)
    return results


async def _may_not_create(context: RequestContext, names: list[str]) -> Set[str]:
    """The missing topics that the principal may not create."""
    if context.may(AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, logs=False):
        return NOTHING
    return await context.denied_of_many(AclOperation.CREATE, ResourceType.TOPIC, names)


async def _create(services: Services, context: RequestContext, names: list[str]) -> dict[str, int]:
    """Error code per name that was tried; names that no topic may have are not tried."""
    errors: dict[str, int] = {}
    ordinary = []
    async for name in context.each(names):
        if name in COORDINATOR_TOPICS:
            errors[name] = await services.auto_create_internal(name)
        elif _is_valid(name):
            ordinary.append(name)
    if ordinary:
        errors.update(await services.auto_create(ordinary))
    return errors


def _is_valid(name: str) -> bool:
    try:
        topic_rules.check_name(name)
    except KafkaError:
        return False
    return True


def _error_of_missing(name: str, created: int | None) -> ErrorCode:
    """`created` is the error code of the creation, None when it was not tried."""
    if created is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if _is_valid(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
    if created in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT):
        return ErrorCode.LEADER_NOT_AVAILABLE  # it exists, the metadata has not arrived: retry
    if created == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # it may be created later: retry
    return ErrorCode.of(created)


def _failed(name: str | None, topic_id: bytes, error: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=int(error), name=name, topic_id=topic_id, is_internal=name in INTERNAL_TOPICS
    )


def _denied(name: str, topic_id: bytes | None) -> MetadataResponseTopic:
    """Nothing is told of a topic, not even that it exists; of one that was named by its id not the name either."""
    error = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if topic_id is not None:
        return MetadataResponseTopic(error_code=error, name=None, topic_id=topic_id)
    return MetadataResponseTopic(error_code=error, name=name, topic_id=ZERO_UUID)


def _topic(
    cache: MetadataCache, topic: TopicMetadata, context: RequestContext, wants_operations: bool
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            _partition(cache, index, partition, context.listener, context.api_version)
            for index, partition in topic.partitions.items()
        ],
        topic_authorized_operations=context.authorized_operations(ResourceType.TOPIC, topic.name)
        if wants_operations
        else NOT_ASKED,
    )


def _partition(
    cache: MetadataCache, index: int, partition: PartitionMetadata, listener: str, version: int
) -> MetadataResponsePartition:
    error = ErrorCode.NONE
    leader = partition.leader
    replicas = list(partition.replicas)
    isr = list(partition.isr)
    if version == 0:
        # Version 0 clients drop a partition with a replica that they cannot resolve to a broker.
        replicas = [replica for replica in replicas if cache.endpoint(replica, listener) is not None]
        isr = [replica for replica in isr if cache.endpoint(replica, listener) is not None]
        if len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
    if cache.endpoint(leader, listener) is None:
        is_deaf = version >= 6 and cache.is_alive(leader)
        error = ErrorCode.LISTENER_NOT_FOUND if is_deaf else ErrorCode.LEADER_NOT_AVAILABLE
        leader = NO_LEADER
    return MetadataResponsePartition(
        error_code=int(error),
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=list(partition.offline_replicas),
    )

"""DescribeTopicPartitions (key 75, KIP-966): topics with their partitions, page by page, for administrators.

Behaviour
    No topics named: all of them. Topics come in the order of their names, from the cursor on; the next cursor says
    where the next request goes on. A response has at most ResponsePartitionLimit partitions, at most
    max.request.partition.size.limit, and one in any case. Missing topics are not created. Eligible leader replicas are
    a matter of KRaft: there are none. AuthorizedOperations are always computed.
Rights, in this order
    Describe:Topic (each named topic): the error of the topic, without its partitions.
    Describe:Topic (each topic, when all are asked for): left out of the answer.
Errors, in this order
    INVALID_REQUEST for each named topic: the cursor's topic is not among them, the cursor's partition is negative.
    topic: TOPIC_AUTHORIZATION_FAILED (in the first page), INVALID_TOPIC_EXCEPTION (the name),
    UNKNOWN_TOPIC_OR_PARTITION.
Versions
    0 alone.

Source: kafka.server.handlers.DescribeTopicPartitionsRequestHandler and KRaftMetadataCache of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla_broker.authorization.resources import AclOperation, ResourceType
from ottla_broker.config import INTERNAL_TOPICS
from ottla_broker.controller.decisions import topic_rules
from ottla_broker.metadata.cache import NO_LEADER, MetadataCache, TopicMetadata
from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.own_offline_replicas import add_own_offline_replicas

NAMES_PER_STEP = 50
"""So many topics are looked up at once."""


class PageStart(NamedTuple):
    """Where a page begins."""

    topic: str
    partition: int


class Page(NamedTuple):
    """The partitions to describe by topic, None for a topic that does not exist. `next` is None at the end."""

    topics: Sequence[tuple[str, Sequence[int] | None]]
    next: PageStart | None


def page(
    names: Sequence[str], partitions: Mapping[str, Sequence[int]], start: PageStart | None, limit: int, *, is_all: bool
) -> Page:
    """One page of topics.

    Args:
        names: the topics asked for, sorted, from that of `start` on.
        partitions: the partition indexes of each topic that exists, ascending.
        limit: partitions in the page; with 0 it is empty, and ends before the first topic.
        is_all: all topics are asked for: one that has gone is left out.

    >>> there = {"a": [0, 1, 2], "b": [0], "c": [0, 1]}
    >>> page(["a", "b", "c"], there, None, 4, is_all=True)
    Page(topics=[('a', [0, 1, 2]), ('b', [0])], next=PageStart(topic='c', partition=0))
    >>> page(["a", "b"], there, PageStart("a", 1), 1, is_all=True)
    Page(topics=[('a', [1])], next=PageStart(topic='a', partition=2))
    >>> page(["x"], there, None, 1, is_all=False)
    Page(topics=[('x', None)], next=None)
    """
    found: list[tuple[str, Sequence[int] | None]] = []
    remaining = limit
    for name in names:
        if remaining == 0:
            return Page(found, PageStart(name, 0))
        indexes = partitions.get(name)
        if indexes is None:
            if not is_all:
                found.append((name, None))
            continue
        first = start.partition if start is not None and name == start.topic else 0
        some = indexes[first : first + remaining]
        found.append((name, some))
        if first + remaining < len(indexes):
            return Page(found, PageStart(name, first + remaining))
        remaining -= len(some)
    return Page(found, None)


async def handle(
    services: Services, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Answers from the metadata cache."""
    cache, cursor = services.metadata, request.cursor
    named = {topic.name: None async for topic in context.each(request.topics)}
    is_all = not named
    asked = tuple(cache.topics) if is_all else tuple(named)
    denied = await context.denied_of_many(AclOperation.DESCRIBE, ResourceType.TOPIC, asked, logs=not is_all)
    names = await context.sorted(
        [
            name
            async for name in context.each(asked)
            if name not in denied and (cursor is None or name >= cursor.topic_name)
        ]
    )
    if cursor is not None and (cursor.partition_index < 0 or not (is_all or cursor.topic_name in named)):
        return DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponseTopic(name=topic.name, error_code=int(ErrorCode.INVALID_REQUEST))
                async for topic in context.each(request.topics)
            ]
        )
    refused = []
    if cursor is None and not is_all:
        error = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        refused = [
            DescribeTopicPartitionsResponseTopic(name=name, error_code=error)
            async for name in context.each(await context.sorted(tuple(denied)))
        ]
    start = None if cursor is None else PageStart(cursor.topic_name, cursor.partition_index)
    remaining = max(1, min(services.config.max_request_partition_size_limit, request.response_partition_limit))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    following: PageStart | None = None
    async for first in context.each(range(0, len(names), NAMES_PER_STEP), NAMES_PER_STEP):
        some = names[first : first + NAMES_PER_STEP]
        partitions = {name: list(cache.topics[name].partitions) for name in some if name in cache.topics}
        found = page(some, partitions, start, remaining, is_all=is_all)
        described = [
            _missing(context, name) if indexes is None else _topic(context, cache, cache.topics[name], indexes)
            for name, indexes in found.topics
        ]
        add_own_offline_replicas(services, described)
        topics += described
        remaining -= sum(len(indexes) for _, indexes in found.topics if indexes is not None)
        following = found.next
        if following is not None:
            break
    return DescribeTopicPartitionsResponse(
        topics=topics + refused,
        next_cursor=None
        if following is None
        else Cursor(topic_name=following.topic, partition_index=following.partition),
    )


def _missing(context: RequestContext, name: str) -> DescribeTopicPartitionsResponseTopic:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        topic_rules.check_name(name)
    except KafkaError:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(
        error_code=int(error),
        name=name,
        topic_id=ZERO_UUID,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=context.authorized_operations(ResourceType.TOPIC, name),
    )


def _topic(
    context: RequestContext, cache: MetadataCache, topic: TopicMetadata, indexes: Sequence[int]
) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    for index in indexes:
        partition = topic.partitions[index]
        is_reachable = cache.endpoint(partition.leader, context.listener) is not None
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                partition_index=index,
                leader_id=partition.leader if is_reachable else NO_LEADER,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=list(partition.offline_replicas),
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=context.authorized_operations(ResourceType.TOPIC, topic.name),
    )

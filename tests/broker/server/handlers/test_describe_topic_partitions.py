"""DescribeTopicPartitions: pages that together have every partition once, and topics that cannot be described."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.testing import RunningCluster, cluster
from ottla_broker.authorization.resources import ResourceType, mask, operations_of
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import describe_topic_partitions as api
from ottla_broker.server.handlers.describe_topic_partitions import PageStart, page
from tests.integration.clients.topics import await_known, create
from tests.integration.wire import Wire

TOPICS = {"a": 3, "b": 1, "c": 2}


@given(
    counts=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 5), max_size=6),
    limit=st.integers(1, 7),
)
def test_the_pages_of_all_topics_have_every_partition_once_and_in_order(counts: dict[str, int], limit: int) -> None:
    there = {name: list(range(count)) for name, count in counts.items()}
    start: PageStart | None = None
    described: list[tuple[str, int]] = []
    while True:
        names = sorted(name for name in there if start is None or name >= start.topic)
        found = page(names, there, start, limit, is_all=True)
        some = [(name, index) for name, indexes in found.topics for index in indexes or ()]
        assert len(some) <= limit
        described += some
        if found.next is None:
            break
        assert start is None or found.next > start
        start = found.next
    assert described == [(name, index) for name in sorted(there) for index in there[name]]


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningCluster]:
    with cluster(brokers=3, config={"max.request.partition.size.limit": "4"}) as found:
        for name, partitions in TOPICS.items():
            create(found.bootstrap, name, partitions)
            await_known(found.bootstrap, name, partitions)
        yield found


def describe(fleet: RunningCluster, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    request = api.DescribeTopicPartitionsRequest(
        topics=[api.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else api.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    with Wire(fleet.address(0)) as wire:
        return wire.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)


def described(response: Any) -> list[tuple[str, int]]:
    return [(topic.name, partition.partition_index) for topic in response.topics for partition in topic.partitions]


def test_a_page_ends_at_the_limit_of_the_broker_and_the_cursor_goes_on(fleet: RunningCluster) -> None:
    first = describe(fleet)
    assert described(first) == [("a", 0), ("a", 1), ("a", 2), ("b", 0)]
    assert (first.next_cursor.topic_name, first.next_cursor.partition_index) == ("c", 0)
    second = describe(fleet, cursor=("c", 0))
    assert (described(second), second.next_cursor) == ([("c", 0), ("c", 1)], None)


def test_a_page_ends_at_the_limit_of_the_request_and_has_one_partition_at_least(fleet: RunningCluster) -> None:
    found = describe(fleet, limit=-1, cursor=("a", 1))
    assert described(found) == [("a", 1)]
    assert (found.next_cursor.topic_name, found.next_cursor.partition_index) == ("a", 2)


def test_partitions_have_leader_replicas_and_the_topic_its_operations(fleet: RunningCluster) -> None:
    (topic,) = describe(fleet, "b").topics
    (partition,) = topic.partitions
    assert sorted(partition.replica_nodes) == sorted(partition.isr_nodes) == [0, 1, 2]
    assert partition.leader_id == partition.replica_nodes[0]
    assert (partition.eligible_leader_replicas, partition.last_known_elr, partition.offline_replicas) == ([], [], [])
    assert (topic.topic_authorized_operations, topic.is_internal) == (mask(*operations_of(ResourceType.TOPIC)), False)
    assert topic.topic_id != bytes(16)


def test_missing_topics_have_their_error_and_are_not_created(fleet: RunningCluster) -> None:
    for _ in range(2):
        response = describe(fleet, "missing", "..", "b", "b")
        assert [(topic.name, topic.error_code) for topic in response.topics] == [
            ("..", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("b", ErrorCode.NONE),
            ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]


@pytest.mark.parametrize("cursor", [("c", 0), ("a", -1)])
def test_an_invalid_cursor_is_refused_for_every_named_topic(fleet: RunningCluster, cursor: tuple[str, int]) -> None:
    response = describe(fleet, "a", "b", cursor=cursor)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.INVALID_REQUEST),
    ]

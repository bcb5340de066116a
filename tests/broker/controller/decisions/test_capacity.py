"""How many partition replicas a broker may hold: what the controller refuses, and what it creates all the same."""

import pytest

from ottla_broker.controller.decisions.capacity import max_partition_replicas
from ottla_broker.controller.decisions.topic_plans import NewTopic, TopicGrowth
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition
from tests.broker.controller.fleet import WAIT_MS, create, fleet_of


@pytest.mark.parametrize(
    ("configured", "open_files", "expected"),
    [(-1, 1024, 512), (-1, None, None), (-1, 1, 1), (0, 1024, None), (2000, 1024, 2000), (5, None, 5)],
)
def test_a_broker_may_hold_what_is_configured_or_half_of_its_open_files(configured, open_files, expected) -> None:
    assert max_partition_replicas(configured, open_files) == expected


async def test_a_topic_beyond_the_limit_is_refused_with_the_limit_and_the_others_of_the_batch_are_created(
    fleet,
) -> None:
    fleet.max_partition_replicas = {0: 10, 1: 10, 2: 10}
    controller, _ = await fleet_of(fleet)
    asked = [
        NewTopic("first", partitions=4, replication_factor=3),
        NewTopic("huge", partitions=20_000, replication_factor=3),
        NewTopic("one-more", partitions=7, replication_factor=3),  # with the first: 11
        NewTopic("last", partitions=6, replication_factor=3),
    ]
    results = await controller.create_topics(asked, timeout_ms=WAIT_MS)
    assert [result.error for result in results] == [
        ErrorCode.NONE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.NONE,
    ]
    assert "20000 more partition replicas on broker 0, which has 4 of the 10" in results[1].message
    for word in ("ottla.max.partition.replicas", "ulimit -n", "fewer partitions"):
        assert word in results[1].message
    assert await fleet.exists("/brokers/topics/last") and not await fleet.exists("/brokers/topics/huge")


async def test_a_validation_says_the_same_and_creates_nothing(fleet) -> None:
    fleet.max_partition_replicas = {0: 10, 1: 10, 2: 10}
    controller, _ = await fleet_of(fleet)
    (result,) = await controller.create_topics([NewTopic("t", 11, 3)], timeout_ms=WAIT_MS, validate_only=True)
    assert result.error is ErrorCode.POLICY_VIOLATION


async def test_a_topic_does_not_grow_beyond_the_limit(fleet) -> None:
    fleet.max_partition_replicas = {0: 10, 1: 10, 2: 10}
    controller, _ = await fleet_of(fleet)
    await create(controller, "t", partitions=9, replication_factor=3)
    grown = [TopicGrowth("t", 11), TopicGrowth("t", 10)]
    results = [(await controller.create_partitions([one], timeout_ms=WAIT_MS))[0] for one in grown]
    assert [result.error for result in results] == [ErrorCode.POLICY_VIOLATION, ErrorCode.NONE]
    assert "Topic 't' with 11 partitions" in results[0].message


async def test_a_reassignment_onto_a_broker_that_may_hold_no_more_is_refused(fleet) -> None:
    fleet.max_partition_replicas = {2: 1}
    controller, _ = await fleet_of(fleet)
    await create(controller, "t", {0: (0, 1), 1: (0, 1)})
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    answers = await controller.alter_reassignments({first: (0, 2), second: (0, 2)})
    assert answers[first] is None
    assert answers[second].code is ErrorCode.INVALID_REPLICA_ASSIGNMENT and "broker 2" in answers[second].message


async def test_a_broker_that_does_not_say_how_many_it_may_hold_is_given_any(fleet) -> None:
    """One of Apache Kafka among ours."""
    fleet.max_partition_replicas = {0: 3}
    controller, _ = await fleet_of(fleet)
    assert (await create(controller, "theirs", dict.fromkeys(range(50), (1, 2)))).error is ErrorCode.NONE
    refused = await create(controller, "ours", dict.fromkeys(range(4), (1, 0)))
    assert refused.error is ErrorCode.POLICY_VIOLATION


async def test_deleting_topics_makes_room(fleet) -> None:
    fleet.max_partition_replicas = {0: 4, 1: 4, 2: 4}
    controller, _ = await fleet_of(fleet)
    await create(controller, "old", partitions=4, replication_factor=3)
    assert (await create(controller, "new", partitions=1, replication_factor=1)).error is ErrorCode.POLICY_VIOLATION
    await controller.delete_topics(["old"], timeout_ms=WAIT_MS)
    await fleet.until_gone("/brokers/topics/old")
    assert (await create(controller, "new", partitions=4, replication_factor=3)).error is ErrorCode.NONE

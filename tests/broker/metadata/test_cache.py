"""MetadataCache: what UpdateMetadata changes, and what it does not."""

from __future__ import annotations

import uuid

from ottla_broker.metadata.cache import FULL, LEADER_DURING_DELETE, BrokerEndpoint, MetadataCache
from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla_broker.server.assembly.group_topics import GroupTopics

ORDERS, FLIGHTS = uuid.UUID(int=1).bytes, uuid.UUID(int=2).bytes


def broker(broker_id: int, port: int = 9092) -> UpdateMetadataBroker:
    endpoint = UpdateMetadataEndpoint(host="127.0.0.1", port=port, listener="CLIENT", security_protocol=0)
    return UpdateMetadataBroker(id=broker_id, endpoints=[endpoint], rack="a")


def topic(name: str, topic_id: bytes, *partitions: tuple[int, int]) -> UpdateMetadataTopicState:
    """`partitions` as (index, leader)."""
    return UpdateMetadataTopicState(
        topic_name=name,
        topic_id=topic_id,
        partition_states=[
            UpdateMetadataPartitionState(
                partition_index=index, leader=leader, leader_epoch=3, isr=[1, 2], replicas=[1, 2], zk_version=7
            )
            for index, leader in partitions
        ],
    )


def update(
    *topics: UpdateMetadataTopicState, brokers: tuple[int, ...] = (1, 2), epoch: int = 1
) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=epoch,
        topic_states=list(topics),
        live_brokers=[broker(broker_id) for broker_id in brokers],
    )


def test_an_update_adds_brokers_endpoints_and_partitions_by_name_and_id() -> None:
    cache = MetadataCache(1)
    assert not cache.is_ready
    error, _ = cache.update(update(topic("orders", ORDERS, (1, 2), (0, 1))))
    assert error is ErrorCode.NONE and cache.is_ready and cache.controller_id == 1
    assert cache.endpoint(2, "CLIENT") == BrokerEndpoint("127.0.0.1", 9092, 0)
    assert cache.endpoint(2, "INTERNAL") is None and cache.endpoint(9, "CLIENT") is None
    assert list(cache.topics["orders"].partitions) == [0, 1]
    assert cache.topic_name(ORDERS) == "orders" and cache.topic_id("orders") == ORDERS
    partition = cache.partition("orders", 1)
    assert partition is not None and (partition.leader, partition.leader_epoch, partition.partition_epoch) == (2, 3, 7)


def test_an_update_replaces_all_brokers_and_keeps_partitions_that_it_does_not_name() -> None:
    cache = MetadataCache(1)
    cache.update(update(topic("orders", ORDERS, (0, 1))))
    cache.update(update(topic("flights", FLIGHTS, (0, 2)), brokers=(2,)))
    assert list(cache.brokers) == [2] and not cache.is_alive(1)
    assert cache.partition_count("orders") == 1 and cache.partition_count("flights") == 1


def test_a_partition_that_is_missing_between_others_counts() -> None:
    cache = MetadataCache(1)
    cache.update(update(topic("orders", ORDERS, (3, 1), (0, 1))))
    assert cache.partition_count("orders") == 4 and cache.partition("orders", 2) is None
    found = GroupTopics(cache).find("orders")
    assert found is not None and found.partition_count == 4, "consumers are assigned it: its leader may come back"


def test_leader_minus_two_removes_a_partition_and_the_topic_with_its_last_one() -> None:
    cache = MetadataCache(1)
    cache.update(update(topic("orders", ORDERS, (0, 1), (1, 1))))
    _, deleted = cache.update(update(topic("orders", ORDERS, (0, LEADER_DURING_DELETE))))
    assert [tuple(name) for name in deleted] == [("orders", 0)]
    assert list(cache.topics["orders"].partitions) == [1]
    cache.update(update(topic("orders", ORDERS, (1, LEADER_DURING_DELETE))))
    assert "orders" not in cache.topics and cache.topic_name(ORDERS) is None


def test_a_full_update_deletes_topics_that_it_does_not_name() -> None:
    cache = MetadataCache(1)
    cache.update(update(topic("orders", ORDERS, (0, 1), (1, 1)), topic("flights", FLIGHTS, (0, 2))))
    full = update(topic("flights", FLIGHTS, (0, 1)))
    full.type = FULL
    _, deleted = cache.update(full)
    assert [tuple(name) for name in deleted] == [("orders", 0), ("orders", 1)]
    assert list(cache.topics) == ["flights"] and cache.topic_name(ORDERS) is None


def test_an_update_is_full_only_in_version_eight_from_a_controller_in_zookeeper_mode() -> None:
    cache = MetadataCache(1)
    cache.update(update(topic("orders", ORDERS, (0, 1))))
    full = update()
    full.type = FULL
    assert cache.update(full, api_version=7) == (ErrorCode.NONE, [])
    full.is_kraft_controller = True
    assert cache.update(full) == (ErrorCode.NONE, [])
    assert "orders" in cache.topics


def test_a_topic_created_again_with_its_name_has_no_partitions_of_the_old_one() -> None:
    cache = MetadataCache(1)
    cache.update(update(topic("orders", ORDERS, (0, 1), (1, 1))))
    _, deleted = cache.update(update(topic("orders", FLIGHTS, (0, 2))))
    assert [tuple(name) for name in deleted] == [("orders", 0), ("orders", 1)]
    assert cache.partition_count("orders") == 1
    assert cache.topic_name(ORDERS) is None and cache.topic_name(FLIGHTS) == "orders"


def test_an_update_of_a_former_controller_is_refused() -> None:
    cache = MetadataCache(1)
    cache.update(update(topic("orders", ORDERS, (0, 1)), epoch=5))
    version = cache.version
    error, _ = cache.update(update(topic("orders", ORDERS, (0, 2)), epoch=4))
    assert error is ErrorCode.STALE_CONTROLLER_EPOCH and cache.version == version
    partition = cache.partition("orders", 0)
    assert partition is not None and partition.leader == 1


def test_versions_before_five_name_the_topic_in_each_partition() -> None:
    cache = MetadataCache(1)
    request = UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=1,
        ungrouped_partition_states=[
            UpdateMetadataPartitionState(topic_name="orders", partition_index=0, leader=1, isr=[1], replicas=[1])
        ],
        live_brokers=[
            UpdateMetadataBroker(id=1, endpoints=[UpdateMetadataEndpoint(host="h", port=1, security_protocol=1)])
        ],
    )
    cache.update(request, api_version=2)
    assert cache.partition_count("orders") == 1 and cache.topic_id("orders") == ZERO_UUID
    assert cache.endpoint(1, "SSL") == BrokerEndpoint("h", 1, 1)


def test_listeners_are_called_after_every_update_that_is_accepted() -> None:
    cache = MetadataCache(1)
    heard: list[int] = []
    cache.add_listener(lambda: heard.append(cache.version))
    cache.update(update(epoch=2))
    cache.update(update(epoch=1))
    assert heard == [1]


def many_topics(leader: int, *names: str, epoch: int = 1) -> UpdateMetadataRequest:
    ids = {name: uuid.uuid5(uuid.NAMESPACE_URL, name).bytes for name in names}
    states = [topic(name, ids[name], *((index, leader) for index in (2, 1, 0))) for name in names]
    return update(*states, epoch=epoch)


async def test_an_update_in_turns_does_what_one_at_once_does() -> None:
    at_once, in_turns = MetadataCache(1), MetadataCache(1)
    requests = [
        many_topics(1, "a", "b", "c"),
        update(topic("b", uuid.UUID(int=9).bytes, (0, 2)), topic("d", ORDERS, (1, 1)), brokers=(1,)),
        many_topics(LEADER_DURING_DELETE, "a"),
        many_topics(2, "c"),
    ]
    for request in requests:
        error, deleted, _ = await in_turns.update_in_turns(request, 7, pause, lambda: True)
        assert (error, deleted) == at_once.update(request, 7)
        assert in_turns.topics == at_once.topics
        assert in_turns.names == at_once.names
        assert in_turns.topics_version == at_once.topics_version
        assert in_turns.brokers == at_once.brokers
    full = update(topic("d", ORDERS, (1, 1)))
    full.type = FULL
    _, deleted, _ = await in_turns.update_in_turns(full, 8, pause, lambda: True)
    assert (sorted(deleted), list(in_turns.topics)) == (sorted(at_once.update(full, 8)[1]), ["d"])


async def test_an_update_in_turns_is_seen_at_once() -> None:
    cache = MetadataCache(1)
    cache.update(many_topics(1, "a", "b"))
    seen = []

    async def look(count: int) -> None:
        seen.append({part.leader for each in cache.topics.values() for part in each.partitions.values()})

    await cache.update_in_turns(many_topics(2, "a", "b"), 7, look, lambda: True)
    assert seen and all(leaders == {1} for leaders in seen)
    await look(0)
    assert seen[-1] == {2}


async def test_an_update_in_turns_that_another_controller_overtakes_changes_nothing() -> None:
    cache = MetadataCache(1)
    cache.update(many_topics(1, "a"))

    async def another(count: int) -> None:
        cache.update(many_topics(3, "a", epoch=2))

    error, _, _ = await cache.update_in_turns(many_topics(2, "a"), 7, another, lambda: True)
    assert error is ErrorCode.STALE_CONTROLLER_EPOCH
    assert cache.topics["a"].partitions[0].leader == 3
    error, _, _ = await cache.update_in_turns(many_topics(2, "a", epoch=2), 7, pause, lambda: False)
    assert error is ErrorCode.STALE_CONTROLLER_EPOCH
    assert cache.topics["a"].partitions[0].leader == 3


async def pause(count: int) -> None:
    """Nobody else is there."""

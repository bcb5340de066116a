"""What librdkafka offers beyond the others."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import (
    OFFSET_STORED,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AdminClient,
    ConfigResource,
    ConfigSource,
    DescribeClusterResult,
    OffsetSpec,
)

from ottla.testing import RunningCluster
from tests.integration.clients.driver import LIMIT_S, QUICK_MEMBER, Gathering, GroupMember, Record, await_that
from tests.integration.clients.librdkafka import Librdkafka
from tests.integration.clients.topics import FOREVER, await_groups, create, create_again, numbered

DRIVER = Librdkafka()


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def consumer(bootstrap: str, group: str, **config: str | int | bool) -> Consumer:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    return Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, **QUICK_MEMBER, **settings}
    )


def test_offsets_by_time(bootstrap: str, name: str) -> None:
    create(bootstrap, name, retention_ms=FOREVER)
    start = 1_700_000_000_000
    DRIVER.produce(bootstrap, name, [Record(None, b"x", timestamp_ms=start + 1000 * n) for n in range(10)])
    reader = consumer(bootstrap, name)
    for timestamp, offset in ((0, 0), (start + 2500, 3), (start + 9000, 9), (start + 9001, -1)):
        (found,) = reader.offsets_for_times([TopicPartition(name, 0, timestamp)], timeout=LIMIT_S)
        assert found.offset == offset
    assert reader.get_watermark_offsets(TopicPartition(name, 0), timeout=LIMIT_S) == (0, 10)
    reader.close()


def test_metadata_of_a_commit_comes_back(bootstrap: str, name: str) -> None:
    create(bootstrap, name)
    reader = consumer(bootstrap, name)
    reader.commit(offsets=[TopicPartition(name, 0, 7, "wörk ✓", 0)], asynchronous=False)
    (found,) = reader.committed([TopicPartition(name, 0)], timeout=LIMIT_S)
    assert (found.offset, found.metadata, found.leader_epoch) == (7, "wörk ✓", 0)
    reader.close()


@pytest.mark.parametrize(("reset", "first"), [("earliest", b"value 0"), ("latest", b"after")])
def test_an_offset_out_of_range_is_reset(bootstrap: str, name: str, reset: str, first: bytes) -> None:
    create(bootstrap, name)
    DRIVER.produce(bootstrap, name, numbered(5))
    reader = consumer(bootstrap, name, auto_offset_reset=reset, enable_partition_eof=True)
    reader.assign([TopicPartition(name, 0, 1000)])
    message = reader.poll(LIMIT_S)
    assert message is not None
    if reset == "latest":
        error = message.error()
        assert error is not None and error.code() == KafkaError._PARTITION_EOF
        DRIVER.produce(bootstrap, name, [Record(None, b"after")])
        message = reader.poll(LIMIT_S)
        assert message is not None
    assert message.value() == first
    reader.close()


def test_without_a_reset_an_offset_out_of_range_is_an_error(bootstrap: str, name: str) -> None:
    create(bootstrap, name)
    reader = consumer(bootstrap, name, auto_offset_reset="error")
    reader.assign([TopicPartition(name, 0, 1000)])
    message = reader.poll(LIMIT_S)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
    reader.close()


def test_a_static_member_that_returns_keeps_its_partitions_without_a_rebalance(bootstrap: str, name: str) -> None:
    create(bootstrap, name, 2)
    gathering = Gathering()
    static = {**QUICK_MEMBER, "session.timeout.ms": "60000"}
    stays = DRIVER.join(
        bootstrap, GroupMember(f"{name}-a", name, name, {**static, "group.instance.id": "a"}), gathering
    )
    goes = DRIVER.join(bootstrap, GroupMember(f"{name}-b", name, name, {**static, "group.instance.id": "b"}), gathering)
    try:
        gathering.wait_until(lambda found: found.shares(1, 1), "both have one partition")
        had = gathering.assignments[f"{name}-b"]
        gathering_after = Gathering()
        goes.close()  # a static member does not leave
        assert len(gathering.assignments[f"{name}-a"]) == 1
        goes = DRIVER.join(
            bootstrap, GroupMember(f"{name}-b", name, name, {**static, "group.instance.id": "b"}), gathering_after
        )
        gathering_after.wait_until(lambda found: found.assignments.get(f"{name}-b") == had, "it has its partition back")
        assert len(gathering.assignments[f"{name}-a"]) == 1
    finally:
        goes.close()
        stays.close()


def test_a_member_that_stops_polling_loses_its_partitions(bootstrap: str, name: str) -> None:
    """max.poll.interval.ms: its client leaves the group for it."""
    create(bootstrap, name, 2)
    sleepy = consumer(bootstrap, name, session_timeout_ms=1000, max_poll_interval_ms=1000)
    sleepy.subscribe([name])
    await_that(lambda: sleepy.poll(0.1) is None and len(sleepy.assignment()) == 2, "it has both partitions")
    gathering = Gathering()
    other = DRIVER.join(bootstrap, GroupMember(f"{name}-b", name, name), gathering)
    try:
        gathering.wait_until(lambda found: found.shares(2), "the other one has both")
    finally:
        other.close()
    message = sleepy.poll(LIMIT_S)
    assert message is not None
    error = message.error()
    assert error is not None and error.code() == KafkaError._MAX_POLL_EXCEEDED
    sleepy.close()


def test_a_member_that_dies_is_missed_after_its_session_timeout(bootstrap: str, name: str) -> None:
    create(bootstrap, name, 2)
    gathering = Gathering()
    alive = DRIVER.join(bootstrap, GroupMember(f"{name}-a", name, name), gathering)
    try:
        gathering.wait_until(lambda found: found.shares(2), "it has both")
        admin = AdminClient({"bootstrap.servers": bootstrap})
        dying = consumer(bootstrap, name, session_timeout_ms=1000, group_instance_id="dying")
        dying.subscribe([name])
        await_that(lambda: dying.poll(0.1) is None and len(dying.assignment()) == 1, "both share")
        dying.close()  # a static member says nothing
        gathering.wait_until(lambda found: found.shares(2), "the other one has both again")
        described = admin.describe_consumer_groups([name])[name].result()
        assert len(described.members) == 1
    finally:
        alive.close()


def test_cooperative_rebalance(bootstrap: str, name: str) -> None:
    create(bootstrap, name, 4)
    first = consumer(bootstrap, name, partition_assignment_strategy="cooperative-sticky")
    second = consumer(bootstrap, name, partition_assignment_strategy="cooperative-sticky")
    first.subscribe([name])
    await_that(lambda: first.poll(0.05) is None and len(first.assignment()) == 4, "all to the first")
    second.subscribe([name])

    def share() -> bool:
        first.poll(0.05)
        second.poll(0.05)
        return len(first.assignment()) == len(second.assignment()) == 2

    await_that(share, "two each")
    first.close()
    second.close()


def test_the_cluster_is_described(fleet: RunningCluster, admin: AdminClient) -> None:
    answers: list[DescribeClusterResult] = []

    def is_whole() -> bool:
        answers.append(admin.describe_cluster(include_authorized_operations=True, request_timeout=LIMIT_S).result())
        return len(answers[-1].nodes) == 3

    await_that(is_whole, "a broker that has just come is known to all")
    found = answers[-1]
    assert sorted((node.id, f"{node.host}:{node.port}", node.rack) for node in found.nodes) == [
        (number, fleet.address(number), f"rack-{number}") for number in range(3)
    ]
    assert found.controller.id in range(3)
    assert len(found.cluster_id) == 22
    assert AclOperation.CREATE in found.authorized_operations


def test_authorized_operations_of_a_topic_and_a_group(bootstrap: str, admin: AdminClient, name: str) -> None:
    create(bootstrap, name)
    topic = admin.describe_topics(TopicCollection([name]), include_authorized_operations=True)[name].result()
    assert {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE} <= set(topic.authorized_operations)
    reader = consumer(bootstrap, name)
    reader.commit(offsets=[TopicPartition(name, 0, 1)], asynchronous=False)
    reader.close()
    group = admin.describe_consumer_groups([name], include_authorized_operations=True)[name].result()
    assert {AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE} == set(group.authorized_operations)


def test_groups_are_listed_described_altered_and_deleted(bootstrap: str, admin: AdminClient, name: str) -> None:
    create(bootstrap, name, 2)
    DRIVER.produce(bootstrap, name, [Record(None, b"x", partition=part) for part in (0, 1)])

    def listed(states: set[ConsumerGroupState]) -> list[str]:
        found = admin.list_consumer_groups(states=states).result()
        assert not found.errors
        return [group.group_id for group in found.valid]

    gathering = Gathering()
    member = DRIVER.join(bootstrap, GroupMember(f"{name}-a", name, name), gathering)
    try:
        gathering.wait_until(lambda found: found.has_committed(2), "both read and committed")
        group = admin.describe_consumer_groups([name])[name].result()
        assert group.state is ConsumerGroupState.STABLE
        assert group.partition_assignor == "range"
        assert [len(found.assignment.topic_partitions) for found in group.members] == [2]
        with pytest.raises(KafkaException) as raised:
            admin.delete_consumer_groups([name])[name].result()
        assert raised.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    finally:
        member.close()
    await_groups(bootstrap)
    await_that(lambda: name in listed({ConsumerGroupState.EMPTY}), "the group is empty")
    wanted = [ConsumerGroupTopicPartitions(name, [TopicPartition(name, 0, 0)])]
    admin.alter_consumer_group_offsets(wanted)[name].result()
    everything = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])[name].result()
    assert next((part.partition, part.offset) for part in everything.topic_partitions) == (0, 0)
    admin.delete_consumer_groups([name])[name].result()
    assert name not in listed(set())


def test_offsets_are_listed_by_admin(bootstrap: str, admin: AdminClient, name: str) -> None:
    create(bootstrap, name, retention_ms=FOREVER)
    start = 1_700_000_000_000
    DRIVER.produce(bootstrap, name, [Record(None, b"x", timestamp_ms=start + n) for n in (0, 5, 2)])
    part = TopicPartition(name, 0)
    for spec, offset in (
        (OffsetSpec.earliest(), 0),  # type: ignore[no-untyped-call]
        (OffsetSpec.latest(), 3),  # type: ignore[no-untyped-call]
        (OffsetSpec.max_timestamp(), 1),  # type: ignore[no-untyped-call]
        (OffsetSpec.for_timestamp(start + 1), 1),
    ):
        assert admin.list_offsets({part: spec})[part].result().offset == offset


def test_configs_tell_their_sources_and_synonyms(bootstrap: str, admin: AdminClient, name: str) -> None:
    create(bootstrap, name, retention_ms="1000000")
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    entries = admin.describe_configs([resource])[resource].result()
    retention = entries["retention.ms"]
    assert (retention.value, retention.source) == ("1000000", ConfigSource.DYNAMIC_TOPIC_CONFIG.value)
    assert not retention.is_default and not retention.is_sensitive and not retention.is_read_only
    assert entries["min.insync.replicas"].source == ConfigSource.STATIC_BROKER_CONFIG.value
    synonyms = {synonym.name: synonym for synonym in entries["min.insync.replicas"].synonyms.values()}
    assert synonyms["min.insync.replicas"].value in ("1", "2")
    assert entries["segment.bytes"].source == ConfigSource.DEFAULT_CONFIG.value


def test_a_topic_that_is_created_again_has_another_id(bootstrap: str, admin: AdminClient, name: str) -> None:
    create(bootstrap, name)
    before = admin.describe_topics(TopicCollection([name]))[name].result().topic_id
    DRIVER.delete_topic(bootstrap, name)
    create_again(DRIVER, bootstrap, name)

    def is_new() -> bool:
        try:
            return str(admin.describe_topics(TopicCollection([name]))[name].result().topic_id) != str(before)
        except KafkaException:
            return False

    await_that(is_new, "every broker tells the new id")


def test_a_group_starts_from_the_stored_offset(bootstrap: str, name: str) -> None:
    create(bootstrap, name)
    DRIVER.produce(bootstrap, name, numbered(5))
    reader = consumer(bootstrap, name)
    reader.commit(offsets=[TopicPartition(name, 0, 3)], asynchronous=False)
    reader.assign([TopicPartition(name, 0, OFFSET_STORED)])
    message = reader.poll(LIMIT_S)
    assert message is not None and message.value() == b"value 3"
    reader.close()


def test_too_large_a_message_is_refused_and_the_producer_goes_on(bootstrap: str, name: str) -> None:
    create(bootstrap, name, max_message_bytes="10000")
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    answers: list[KafkaError | None] = []
    for size in (20_000, 10):
        producer.produce(name, b"x" * size, on_delivery=lambda error, _: answers.append(error))
        assert producer.flush(LIMIT_S) == 0
    assert answers[0] is not None and answers[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert answers[1] is None


def test_too_few_replicas_in_sync_are_told(fleet: RunningCluster, name: str) -> None:
    """min.insync.replicas=3 of 3: with one broker gone acks=all is refused, and taken again when it is back."""
    create(fleet.bootstrap, name, min_insync_replicas="3")
    fleet.stop(2)
    try:
        # What is taken before the ISR has shrunk waits for its time: the high watermark stands still from then on.
        hasty = {"retries": 0, "linger.ms": 0, "request.timeout.ms": 1000}
        producer = Producer({"bootstrap.servers": fleet.bootstrap, "acks": "all", **hasty})
        codes: list[int] = []

        def is_refused() -> bool:
            producer.produce(
                name, b"x", on_delivery=lambda error, _: codes.append(0 if error is None else error.code())
            )
            assert producer.flush(LIMIT_S) == 0
            return codes[-1] in (KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

        await_that(is_refused, "refused for want of replicas")
    finally:
        fleet.start(2)
    producer = Producer({"bootstrap.servers": fleet.bootstrap, "acks": "all", "linger.ms": 0})
    done: list[KafkaError | None] = []
    began = time.monotonic()
    while not done or done[-1] is not None:
        assert time.monotonic() - began < LIMIT_S, done[-1]
        producer.produce(name, b"y", on_delivery=lambda error, _: done.append(error))
        producer.flush(LIMIT_S)

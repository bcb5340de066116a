"""What kafka-python offers beyond the others."""

from __future__ import annotations

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource
from kafka.errors import KafkaError, NonEmptyGroupError

from tests.integration.clients.driver import LIMIT_S, Gathering, GroupMember, Record, await_that
from tests.integration.clients.kafka_python import KafkaPython
from tests.integration.clients.topics import FOREVER, await_groups, create, numbered

DRIVER = KafkaPython()


@pytest.fixture
def servers(bootstrap: str) -> list[str]:
    return bootstrap.split(",")


def test_offsets_by_time_and_committed_metadata(servers: list[str], bootstrap: str, name: str) -> None:
    create(bootstrap, name, retention_ms=FOREVER)
    start = 1_700_000_000_000
    DRIVER.produce(bootstrap, name, [Record(None, b"x", timestamp_ms=start + 1000 * n) for n in range(10)])
    consumer = KafkaConsumer(bootstrap_servers=servers, group_id=name, enable_auto_commit=False)
    part = TopicPartition(name, 0)
    consumer.assign([part])
    found = consumer.offsets_for_times({part: start + 2500})[part]
    assert (found.offset, found.timestamp) == (3, start + 3000)
    assert consumer.offsets_for_times({part: start + 99_000})[part] is None
    assert (consumer.beginning_offsets([part])[part], consumer.end_offsets([part])[part]) == (0, 10)
    consumer.commit({part: OffsetAndMetadata(4, "half way", 0)})
    committed = consumer.committed(part, metadata=True)
    assert (committed.offset, committed.metadata) == (4, "half way")
    consumer.close()


def test_an_offset_out_of_range_is_reset(servers: list[str], bootstrap: str, name: str) -> None:
    create(bootstrap, name)
    DRIVER.produce(bootstrap, name, numbered(3))
    consumer = KafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", consumer_timeout_ms=LIMIT_S * 1000
    )
    part = TopicPartition(name, 0)
    consumer.assign([part])
    consumer.seek(part, 1000)
    assert next(consumer).value == b"value 0"
    consumer.seek(part, 2)
    assert next(consumer).value == b"value 2"
    consumer.close()


def test_max_poll_records(servers: list[str], bootstrap: str, name: str) -> None:
    create(bootstrap, name)
    DRIVER.produce(bootstrap, name, numbered(25))
    consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest", max_poll_records=10)
    part = TopicPartition(name, 0)
    consumer.assign([part])
    sizes: list[int] = []
    while sum(sizes) < 25:
        sizes.append(len(consumer.poll(timeout_ms=LIMIT_S * 1000)[part]))
    assert sizes == [10, 10, 5]
    consumer.close()


def test_administration(servers: list[str], bootstrap: str, name: str) -> None:
    create(bootstrap, name, 2)
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        cluster = admin.describe_cluster()
        assert sorted(broker["broker_id"] for broker in cluster["brokers"]) == [0, 1, 2]
        assert sorted(broker["rack"] for broker in cluster["brokers"]) == ["rack-0", "rack-1", "rack-2"]

        gathering = Gathering()
        member = DRIVER.join(bootstrap, GroupMember(f"{name}-a", name, name), gathering)
        try:
            gathering.wait_until(lambda found: found.shares(2), "it has both")
            DRIVER.produce(bootstrap, name, [Record(None, b"x", partition=part) for part in (0, 1)])
            gathering.wait_until(lambda found: len(found.values()) == 2 and found.commits > 0, "both committed")
            await_groups(bootstrap)
            assert name in [group["group_id"] for group in admin.list_groups()]
            described = admin.describe_groups([name])[name]
            assert described["group_state"] == "Stable"
            with pytest.raises((NonEmptyGroupError, KafkaError)):
                raise_errors(admin.delete_groups([name]))
        finally:
            member.close()
        part = TopicPartition(name, 1)
        await_that(lambda: admin.describe_groups([name])[name]["group_state"] == "Empty", "the group is empty")
        assert admin.list_group_offsets({name: None})[name][part].offset == 1
        admin.alter_group_offsets(name, {part: OffsetAndMetadata(0, "again", -1)})
        assert admin.list_group_offsets({name: [part]})[name][part].metadata == "again"
        admin.delete_group_offsets(name, [part])
        assert part not in admin.list_group_offsets({name: None})[name]
        raise_errors(admin.delete_groups([name]))
        assert name not in [group["group_id"] for group in admin.list_groups()]


def raise_errors(answers: object) -> None:
    """Errors of a deletion come as values."""
    assert isinstance(answers, dict)
    for answer in answers.values():
        if answer not in (None, "OK") and "NoError" not in str(answer):
            raise answer if isinstance(answer, Exception) else KafkaError(str(answer))


def test_incremental_configs(servers: list[str], bootstrap: str, name: str) -> None:
    create(bootstrap, name)
    with KafkaAdminClient(bootstrap_servers=servers) as admin:

        def modified() -> dict[str, str]:
            found = admin.describe_configs([ConfigResource("topic", name)], include_synonyms=True)["topic"][name]
            return {key: entry["value"] for key, entry in found.items()}

        admin.alter_configs([ConfigResource("topic", name, {"retention.ms": "1000000", "segment.bytes": "2000000"})])
        await_that(lambda: modified() == {"retention.ms": "1000000", "segment.bytes": "2000000"}, "both are told")
        admin.alter_configs([ConfigResource("topic", name, {"retention.ms": ("DELETE", None)})])
        await_that(lambda: modified() == {"segment.bytes": "2000000"}, "one is left")
        admin.alter_configs([ConfigResource("topic", name, {"segment.bytes": "3000000"})], validate_only=True)
        assert modified() == {"segment.bytes": "2000000"}
        admin.reset_configs([ConfigResource("topic", name, {})])
        await_that(lambda: modified() == {}, "none is left")

"""What every client has to be able to do: produce, consume, share the work of a group, administer topics."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.testing import RunningCluster
from tests.integration.clients.conftest import EVERY_ADMIN, EVERY_CLIENT
from tests.integration.clients.driver import (
    Administrator,
    Driver,
    Gathering,
    GroupMember,
    Member,
    Record,
    TopicDescription,
    await_that,
)
from tests.integration.clients.librdkafka import Librdkafka
from tests.integration.clients.topics import FOREVER, await_known, create, create_again, numbered

every_client = pytest.mark.parametrize("driver", EVERY_CLIENT, indirect=True)
every_admin = pytest.mark.parametrize("driver", EVERY_ADMIN, indirect=True)

BATCH_PRODUCER_ID = 43  # where it stands in a batch
NO_HEADERS: tuple[tuple[str, bytes | None], ...] = ()
SHAPES = [
    Record(
        b"key", b"value", (("trace", b"abc"), ("trace", b"again"), ("empty", b""), ("nothing", None)), 1_700_000_000_123
    ),
    Record(b"key", b"value", NO_HEADERS, 1_700_000_000_000),
    Record(None, b"no key", NO_HEADERS, 1_600_000_000_000),
    Record(b"a tombstone", None, NO_HEADERS, 1_500_000_000_001),
    Record("ключ".encode(), "значение".encode(), (("заголовок", "да".encode()),), 1),
    Record(b"big", b"x" * 200_000, NO_HEADERS, 1_700_000_000_005),
]


def without_offsets(records: list[Record]) -> list[Record]:
    return [record.sent() for record in records]


@every_client
def test_records_come_back_as_they_were_sent(driver: Driver, bootstrap: str, name: str) -> None:
    """Headers (one name twice, null), null keys and values, what is not ASCII, timestamps; read by two clients."""
    create(bootstrap, name, retention_ms=FOREVER)
    sent = SHAPES if driver.can_send_null_headers else [replace(SHAPES[0], headers=SHAPES[0].headers[:-1]), *SHAPES[1:]]
    if driver.name == "kcat":  # it gives every record its own clock's time
        offsets = driver.produce(bootstrap, name, sent)
        for reader in (driver, Librdkafka()):
            got = reader.read(bootstrap, name)
            assert [replace(record, offset=-1, timestamp_ms=None) for record in got] == [
                replace(record, timestamp_ms=None) for record in sent
            ]
        return
    offsets = driver.produce(bootstrap, name, sent)
    assert offsets == list(range(len(sent)))
    for reader in (driver, Librdkafka()):
        assert without_offsets(reader.read(bootstrap, name)) == sent


@every_client
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acks(driver: Driver, bootstrap: str, name: str, acks: str) -> None:
    create(bootstrap, name)
    driver.produce(bootstrap, name, numbered(20), acks=acks)
    await_that(lambda: len(driver.read(bootstrap, name)) == 20, "all 20 are there")


@every_client
def test_several_partitions_keep_their_order(driver: Driver, bootstrap: str, name: str) -> None:
    create(bootstrap, name, 3)
    sent = sorted(numbered(60, 3), key=lambda record: record.partition)
    driver.produce(bootstrap, name, sent)
    got = driver.read(bootstrap, name, 3)
    assert [(record.partition, record.value) for record in got] == [(record.partition, record.value) for record in sent]
    assert [record.offset for record in got] == [*range(20)] * 3


@every_client
def test_an_idempotent_producer_writes_its_id_and_sequences(driver: Driver, fleet: RunningCluster, name: str) -> None:
    create(fleet.bootstrap, name)
    for start in (0, 50):
        driver.produce(fleet.bootstrap, name, numbered(start + 50, first=start), is_idempotent=True)
    got = driver.read(fleet.bootstrap, name)
    assert [record.value for record in got] == [record.value for record in numbered(100)]
    ids = [producer_id for producer_id, _ in producers_of(fleet.data, name)]
    assert min(ids) >= 0
    assert len(set(ids)) == 2, "each of the two producers has an id of its own"


def producers_of(data: Path, topic: str) -> list[tuple[int, int]]:
    """(producer id, base sequence) of every batch on the first replica's disk."""
    log = next(iter(sorted(data.glob(f"broker-*/*/{topic}-0/{0:020d}.log")))).read_bytes()
    found, position = [], 0
    while position < len(log):
        producer_id, _epoch, sequence = struct.unpack_from(">qhi", log, position + BATCH_PRODUCER_ID)
        found.append((producer_id, sequence))
        position += 12 + struct.unpack_from(">i", log, position + 8)[0]
    return found


@contextmanager
def closing(*members: Member) -> Iterator[None]:
    try:
        yield
    finally:
        for member in members:
            member.close()


@every_client
def test_a_group_of_two_shares_the_partitions_and_hands_them_over(driver: Driver, bootstrap: str, name: str) -> None:
    create(bootstrap, name, 4)
    gathering = Gathering()

    def has_read(count: int) -> Callable[[Gathering], bool]:
        """And committed, for a rebalance gives what is not committed to read again; kcat commits when it begins."""
        if driver.name == "kcat":
            return lambda found: len(found.values()) >= count
        return lambda found: found.has_committed(count)

    first = driver.join(bootstrap, GroupMember(f"{name}-a", name, name), gathering)
    with closing(first):
        gathering.wait_until(lambda found: found.shares(4), "one member with all four partitions")
        driver.produce(bootstrap, name, by_partition(numbered(40, 4)))
        gathering.wait_until(has_read(40), "all read by the first member")
        second = driver.join(bootstrap, GroupMember(f"{name}-b", name, name), gathering)
        with closing(second):
            gathering.wait_until(lambda found: found.shares(2, 2), "two members with two partitions each")
            driver.produce(bootstrap, name, by_partition(numbered(80, 4, first=40)))
            gathering.wait_until(has_read(80), "all read by both members")
            assert gathering.records[f"{name}-b"], "the second member has read its part"
        gathering.wait_until(lambda found: found.shares(4), "the first member has all partitions again")
        driver.produce(bootstrap, name, by_partition(numbered(120, 4, first=80)))
        gathering.wait_until(has_read(120), "all read by the first member again")
    assert sorted(gathering.values(), key=str) == sorted((record.value for record in numbered(120, 4)), key=str)


def by_partition(records: list[Record]) -> list[Record]:
    return sorted(records, key=lambda record: record.partition)


@every_client
def test_a_group_goes_on_where_it_committed(driver: Driver, bootstrap: str, name: str) -> None:
    create(bootstrap, name)
    driver.produce(bootstrap, name, numbered(10))
    gathering = Gathering()
    with closing(driver.join(bootstrap, GroupMember(f"{name}-a", name, name), gathering)):
        gathering.wait_until(lambda found: len(found.values()) == 10, "the first ten read")
    driver.produce(bootstrap, name, numbered(20, first=10))
    with closing(driver.join(bootstrap, GroupMember(f"{name}-b", name, name), gathering)):
        gathering.wait_until(lambda found: len(found.values()) >= 20, "the next ten read")
    assert gathering.values() == [record.value for record in numbered(20)]


@every_client
def test_producing_creates_a_topic(driver: Driver, bootstrap: str, name: str) -> None:
    driver.produce(bootstrap, name, numbered(3))
    await_known(
        bootstrap, name
    )  # as with Kafka, a broker that has not heard of it yet says that there is no such topic
    assert [record.value for record in driver.read(bootstrap, name)] == [record.value for record in numbered(3)]


@every_admin
def test_a_topic_is_created_described_altered_and_deleted(driver: Administrator, bootstrap: str, name: str) -> None:
    driver.create_topic(bootstrap, name, 3, 2, {"retention.ms": "86400000"})
    await_known(bootstrap, name, 3)  # each broker hears of it by itself, and any of them may be asked
    assert name in driver.topics(bootstrap)
    seen: list[TopicDescription] = []

    def is_in_sync() -> bool:
        seen.append(driver.describe_topic(bootstrap, name))
        replicas = {part: frozenset(found) for part, found in seen[-1].replicas.items()}
        return seen[-1].in_sync_replicas == replicas

    await_that(is_in_sync, "all replicas are in sync")
    described = seen[-1]
    assert sorted(described.leaders) == [0, 1, 2]
    assert sorted(described.leaders.values()) == [0, 1, 2], "leadership is spread"
    assert all(len(set(replicas)) == 2 for replicas in described.replicas.values())
    assert driver.topic_config(bootstrap, name)["retention.ms"] == "86400000"

    driver.alter_topic(bootstrap, name, {"retention.ms": "3600000", "max.message.bytes": "2000000"})
    await_that(lambda: driver.topic_config(bootstrap, name)["retention.ms"] == "3600000", "the new retention is told")
    await_that(lambda: driver.topic_config(bootstrap, name)["max.message.bytes"] == "2000000", "and the new size")

    driver.grow_topic(bootstrap, name, 5)
    await_that(lambda: len(driver.describe_topic(bootstrap, name).leaders) == 5, "it has five partitions")
    driver.delete_topic(bootstrap, name)
    await_that(lambda: name not in driver.topics(bootstrap), "it is gone")


@every_admin
def test_what_is_refused_is_refused_with_a_reason(driver: Administrator, bootstrap: str, name: str) -> None:
    driver.create_topic(bootstrap, name, 1, 1, {})
    with pytest.raises(Exception, match=r"(?i)already ?exists|TOPIC_ALREADY_EXISTS"):
        driver.create_topic(bootstrap, name, 1, 1, {})
    with pytest.raises(Exception, match=r"(?i)replication"):
        driver.create_topic(bootstrap, name + "-4", 1, 4, {})
    with pytest.raises(Exception, match=r"(?i)config"):
        driver.create_topic(bootstrap, name + "-c", 1, 1, {"retention.ms": "soon"})
    with pytest.raises(Exception, match=r"(?i)unknown.?topic|does not host|partition.*not exist"):
        driver.delete_topic(bootstrap, "no-such-topic")


@every_admin
def test_a_topic_of_the_same_name_begins_empty(driver: Administrator, bootstrap: str, name: str) -> None:
    """The old one's records are gone and the new one is another topic to every broker and client."""
    driver.create_topic(bootstrap, name, 1, 3, {})
    driver.produce(bootstrap, name, numbered(10))
    driver.delete_topic(bootstrap, name)
    create_again(driver, bootstrap, name)
    assert driver.produce(bootstrap, name, [Record(None, b"new")]) == [0]
    assert [record.value for record in driver.read(bootstrap, name)] == [b"new"]

"""Quotas in a cluster of one broker of ours and one of Apache Kafka: whoever stores one, both have it in force."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from tests.beside.comparison import own_chroot
from tests.integration.apache_kafka import ApacheKafka
from tests.integration.local_fleet import eventually
from tests.integration.processes import BrokerProcess
from tests.integration.wire import Wire

pytestmark = pytest.mark.java

ALTER = codec.module(ApiKey.ALTER_CLIENT_QUOTAS)
DESCRIBE = codec.module(ApiKey.DESCRIBE_CLIENT_QUOTAS)
FETCH = codec.module(ApiKey.FETCH)
METADATA = codec.module(ApiKey.METADATA)


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperServer) -> Iterator[dict[str, str]]:
    """By who made the broker."""
    directory = tmp_path_factory.mktemp("mixed")
    connect = own_chroot(zookeeper)
    ours = BrokerProcess(directory / "ours", 1, connect)
    theirs = ApacheKafka(directory / "theirs", 2, connect, [directory / "their-logs"], {})
    try:
        ours.start()
        theirs.start()
        yield {"ours": ours.address, "Apache Kafka's": theirs.address}
    finally:
        theirs.close()
        ours.close()


def alter(address: str, user: str | None, value: float | None, key: str = "request_percentage") -> None:
    """None is the default user; a value of None removes the quota."""
    op = ALTER.OpData(key=key, value=value or 0.0, remove=value is None)
    entry = ALTER.EntryData(entity=[ALTER.EntityData(entity_type="user", entity_name=user)], ops=[op])
    with Wire(address) as wire:
        (result,) = wire.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, ALTER.AlterClientQuotasRequest(entries=[entry])).entries
    assert result.error_code == 0, result.error_message


def throttle_ms(address: str) -> int:
    """Of a request on a connection of its own."""
    with Wire(address) as wire:
        answer = wire.ask(ApiKey.METADATA, 9, METADATA.MetadataRequest(topics=[]))
        return int(answer.throttle_time_ms)


def fetch_throttle_s(address: str, version: int, epoch: int, partitions: int) -> int:
    """Of the first fetch of a client, in seconds, rounded up: of partitions that do not exist, so without a record.

    Args:
        epoch: -1 asks for no fetch session, 0 for one.
    """
    wanted = [
        FETCH.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in range(partitions)
    ]
    topic = FETCH.FetchTopic(topic="nobody", topic_id=b"nobody-has-this!", partitions=wanted)
    request = FETCH.FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=epoch, topics=[topic])
    with Wire(address, client_id=f"fetch {version} {epoch} {partitions}") as wire:
        return math.ceil(wire.ask(ApiKey.FETCH, version, request).throttle_time_ms / 1000)


def test_a_fetch_counts_as_many_bytes_on_both_even_without_records(addresses: dict[str, str]) -> None:
    """One byte per second, in ten to eleven seconds: n bytes are a throttle of n - 11 to n - 10 seconds."""
    ours, theirs = addresses["ours"], addresses["Apache Kafka's"]
    alter(ours, None, 1.0, "consumer_byte_rate")
    try:
        for address in (ours, theirs):
            eventually(lambda address=address: fetch_throttle_s(address, 12, -1, 1) > 0)
        for version in range(1, 18):
            for epoch in (-1, 0):
                for partitions in (1, 100):
                    expected = fetch_throttle_s(theirs, version, epoch, partitions)
                    assert expected > 0
                    assert fetch_throttle_s(ours, version, epoch, partitions) == expected, (version, epoch, partitions)
    finally:
        alter(theirs, None, None, "consumer_byte_rate")


@pytest.mark.parametrize("first", ["ours", "Apache Kafka's"])
@pytest.mark.parametrize("user", ["ANONYMOUS", None])
def test_a_quota_is_in_force_on_both_whoever_stores_and_whoever_removes_it(
    addresses: dict[str, str], first: str, user: str | None
) -> None:
    second = next(name for name in addresses if name != first)
    alter(addresses[first], user, 0.0)
    for address in addresses.values():
        eventually(lambda address=address: throttle_ms(address) == 1000)
        with Wire(address) as wire:
            found = wire.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, DESCRIBE.DescribeClientQuotasRequest(components=[]))
        (entry,) = found.entries
        assert [(part.entity_type, part.entity_name) for part in entry.entity] == [("user", user)]
        assert [(value.key, value.value) for value in entry.values] == [("request_percentage", 0.0)]
    alter(addresses[second], user, None)
    for address in addresses.values():
        eventually(lambda address=address: throttle_ms(address) == 0)

"""What one client sends or leaves unread costs a broker a bounded amount of memory, and others are served meanwhile."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest

from ottla.testing import RunningCluster, cluster
from ottla_broker.metrics import Gauge
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.records import formats
from tests.integration.broker_errors import broker_errors
from tests.integration.clients.driver import await_that
from tests.integration.wire import Wire, batch, create_topic, produce_request

LIMIT, LONGEST = 3_000_000, 2_000_000
UNREAD = 2_000_000
BATCH = 200_000


@pytest.fixture
def fleet() -> Iterator[RunningCluster]:
    config = {
        "queued.max.request.bytes": str(LIMIT),
        "socket.request.max.bytes": str(LONGEST),
        "ottla.queued.max.response.bytes": str(UNREAD),
        "socket.send.buffer.bytes": "65536",
    }
    with broker_errors(), cluster(brokers=1, config=config) as found:
        yield found


def gauge(fleet: RunningCluster, name: str) -> int:
    assert fleet.fleet is not None
    (found,) = fleet.fleet.brokers[0].metrics.families[name].children.values()
    assert isinstance(found, Gauge)
    return int(found.value)


def held(fleet: RunningCluster) -> int:
    return gauge(fleet, "kafka_network_socketserver_memorypoolused")


def produce(wire: Wire, topic: str, size: int, start: bytes = b"") -> int:
    request = produce_request(topic, batch(start + b"x" * size))
    answer = wire.ask(ApiKey.PRODUCE, 9, request)
    return int(answer.responses[0].partition_responses[0].error_code)


def send_as_far_as_it_goes(wire: Wire, data: bytes) -> None:
    """Ends when the connection does."""
    with suppress(OSError):
        wire.send(data)


def test_unfinished_requests_hold_no_more_than_the_key_says_and_others_are_served(fleet: RunningCluster) -> None:
    """KIP-72. Twenty clients announce 1.9 MB each and send half of it, which are three times what is allowed."""
    create_topic(fleet.address(0), "t", **{"max.message.bytes": "1500000"})
    with ExitStack() as stack:
        senders = stack.enter_context(ThreadPoolExecutor(20))
        for _ in range(20):
            client = stack.enter_context(Wire(fleet.address(0)))
            senders.submit(send_as_far_as_it_goes, client, struct.pack(">i", 1_900_000) + bytes(1_000_000))
        await_that(lambda: held(fleet) > LIMIT // 2, "the broker has read what it may")
        good = stack.enter_context(Wire(fleet.address(0)))
        for size in (10, 1000, 30_000, 1_000_000):
            assert produce(good, "t", size) == 0
            assert held(fleet) <= LIMIT + 2 * LONGEST
    await_that(lambda: held(fleet) < LIMIT // 2, "the memory of connections that have ended is free")


def test_a_length_without_bytes_holds_nothing(fleet: RunningCluster) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(Wire(fleet.address(0))) for _ in range(50)]
        for client in clients:
            client.send(struct.pack(">i", LONGEST) + b"\0\0")
        good = stack.enter_context(Wire(fleet.address(0)))
        metadata = codec.module(ApiKey.METADATA)
        for _ in range(3):
            assert good.ask(ApiKey.METADATA, 9, metadata.MetadataRequest(topics=None)).brokers
        assert held(fleet) < LIMIT // 10


def fetch_request(topic: str, offset: int) -> object:
    api = codec.module(ApiKey.FETCH)
    partition = api.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 28)
    topics = [api.FetchTopic(topic=topic, partitions=[partition])]
    return api.FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 28, topics=topics)


def values_of(records: memoryview) -> list[bytes]:
    """Of the whole messages of a set."""
    found = []
    for position, header in formats.batches(records):
        for record in formats.decode_batch(records[position : position + header.size]):
            assert record.value is not None
            found.append(bytes(record.value))
    return found


def test_answers_in_an_old_format_that_nobody_reads_hold_no_more_than_the_key_says(fleet: RunningCluster) -> None:
    """KIP-283. Each of them is of 8 MB, and comes whole to the client that reads it in the end."""
    address = fleet.address(0)
    create_topic(address, "t", **{"max.message.bytes": "1500000"})
    with ExitStack() as stack:
        good = stack.enter_context(Wire(address))
        for number in range(40):
            assert produce(good, "t", BATCH, b"%03d" % number) == 0
        sizes = [65536] + [4096] * 24  # a client with the smallest window takes long to read
        lazy = [stack.enter_context(Wire(address, receive_buffer=size)) for size in sizes]
        for wire in lazy:
            wire.send(wire.request_bytes(ApiKey.FETCH, 3, fetch_request("t", 0)))
        await_that(lambda: gauge(fleet, "ottla_unread_response_bytes") > UNREAD - 2 * BATCH, "nobody reads")
        for size in (10, 1000, 30_000):
            assert produce(good, "t", size) == 0
            assert gauge(fleet, "ottla_unread_response_bytes") <= UNREAD + BATCH
        (topic,) = lazy[0].answer(ApiKey.FETCH, 3).responses
        values = values_of(topic.partitions[0].records)
        assert [value[:3] for value in values] == [b"%03d" % number for number in range(len(values))]
        assert len(values) > 30, "what does not fit, since old messages are larger, is asked for again"


def is_closed(wire: Wire) -> bool:
    """Reads to the end of its answer, or of the connection."""
    return wire.frame() is None


def test_large_answers_that_nobody_reads_hold_no_more_than_the_key_says_and_others_are_served(
    fleet: RunningCluster,
) -> None:
    """Metadata of names that do not exist: 0.5 MB each. Those that have not read for longest are closed."""
    address = fleet.address(0)
    api = codec.module(ApiKey.METADATA)
    names = [api.MetadataRequestTopic(name=f"{number:04}" + "n" * 240) for number in range(2000)]
    request = api.MetadataRequest(topics=names, allow_auto_topic_creation=False)
    with ExitStack() as stack:
        good = stack.enter_context(Wire(address))
        lazy = [stack.enter_context(Wire(address, receive_buffer=4096)) for _ in range(20)]
        for wire in lazy:
            wire.send(wire.request_bytes(ApiKey.METADATA, 9, request))
            assert good.ask(ApiKey.METADATA, 9, api.MetadataRequest(topics=[])).brokers
            assert gauge(fleet, "ottla_unread_response_bytes") <= UNREAD + 1_000_000
        assert len(good.ask(ApiKey.METADATA, 9, request).topics) == 2000
        assert sum(map(is_closed, lazy)) >= 10

"""What one client sends or leaves unread costs a broker a bounded amount of memory, and others are served meanwhile."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest

from ottla_broker.metrics import Gauge
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.testing import RunningCluster, cluster
from tests.integration.broker_errors import broker_errors
from tests.integration.clients.driver import await_that
from tests.integration.wire import Wire, batch, create_topic, produce_request

LIMIT, LONGEST = 3_000_000, 2_000_000


@pytest.fixture
def fleet() -> Iterator[RunningCluster]:
    config = {"queued.max.request.bytes": str(LIMIT), "socket.request.max.bytes": str(LONGEST)}
    with broker_errors(), cluster(brokers=1, config=config) as found:
        yield found


def gauge(fleet: RunningCluster, name: str) -> int:
    assert fleet.fleet is not None
    (found,) = fleet.fleet.brokers[0].metrics.families[name].children.values()
    assert isinstance(found, Gauge)
    return int(found.value)


def held(fleet: RunningCluster) -> int:
    return gauge(fleet, "kafka_network_socketserver_memorypoolused")


def produce(wire: Wire, topic: str, size: int) -> int:
    request = produce_request(topic, batch(b"x" * size))
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

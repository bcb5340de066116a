"""Limits on connections at real sockets, changed while the broker runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from ottla.testing import RunningCluster, cluster
from ottla_broker.metrics import Gauge
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from tests.integration.broker_errors import broker_errors
from tests.integration.clients.driver import await_that
from tests.integration.wire import Wire

BROKER, SET, DELETE = 4, 0, 1
METADATA = codec.module(ApiKey.METADATA).MetadataRequest(topics=None)


@pytest.fixture
def fleet() -> Iterator[RunningCluster]:
    with broker_errors(), cluster(brokers=1) as found:
        yield found


def change(wire: Wire, name: str, value: str | None) -> None:
    """Sets a cluster-wide dynamic value of the brokers, or removes it."""
    api = codec.module(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    operation = DELETE if value is None else SET
    config = api.AlterableConfig(name=name, config_operation=operation, value=value)
    resource = api.AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[config])
    request = api.IncrementalAlterConfigsRequest(resources=[resource])
    (result,) = wire.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    assert result.error_code == 0, result.error_message


def asking(wire: Wire) -> Wire:
    """Sends a request; its answer is for later."""
    api = codec.module(ApiKey.API_VERSIONS)
    wire.send(wire.request_bytes(ApiKey.API_VERSIONS, 0, api.ApiVersionsRequest()))
    return wire


def is_served(wire: Wire) -> bool:
    try:
        return asking(wire).frame() is not None
    except (BrokenPipeError, ConnectionResetError):
        return False


class Clients:
    """Opens connections, and closes them in the end."""

    def __init__(self, fleet: RunningCluster, stack: ExitStack) -> None:
        self._address = fleet.address(0)
        self._stack = stack
        assert fleet.fleet is not None
        self._metrics = fleet.fleet.brokers[0].metrics

    @property
    def count(self) -> int:
        """All connections of the broker, its own to itself included: they come from the same address."""
        (gauge,) = self._metrics.families["kafka_server_socketservermetrics_connectioncount"].children.values()
        assert isinstance(gauge, Gauge)
        return int(gauge.value)

    def open(self) -> Wire:
        return self._stack.enter_context(Wire(self._address))


@pytest.fixture
def clients(fleet: RunningCluster) -> Iterator[Clients]:
    with ExitStack() as stack:
        yield Clients(fleet, stack)


def test_a_connection_over_the_limit_of_its_address_is_closed_until_the_limit_is_raised(clients: Clients) -> None:
    first = clients.open()
    assert is_served(first)
    change(first, "max.connections.per.ip", str(clients.count + 1))
    assert is_served(clients.open())
    assert not is_served(clients.open())
    change(first, "max.connections.per.ip.overrides", f"localhost:{clients.count + 1},10.0.0.1:1")
    await_that(lambda: is_served(clients.open()), "the broker has looked the host up")
    assert not is_served(clients.open())
    change(first, "max.connections.per.ip.overrides", None)
    assert is_served(first) and not is_served(clients.open()), "connections that are there stay"
    change(first, "max.connections.per.ip", None)
    assert is_served(clients.open())


def test_a_connection_that_waits_for_its_listener_is_served_when_the_limit_is_raised(clients: Clients) -> None:
    first = clients.open()
    change(first, "listener.name.client.max.connections", "2")
    assert is_served(clients.open())
    waiting = asking(clients.open())
    assert is_served(first)
    change(first, "listener.name.client.max.connections", "3")
    assert waiting.frame() is not None


def test_the_clients_that_are_idle_for_longest_are_closed_when_the_limit_is_lowered(clients: Clients) -> None:
    opened = [clients.open() for _ in range(5)]
    assert all(map(is_served, opened))
    change(opened[4], "max.connections", str(clients.count - 3))
    assert all(wire.is_closed_by_broker() for wire in opened[:3])
    assert all(map(is_served, opened[3:]))


def test_a_connection_over_the_creation_rate_waits_and_is_not_closed(clients: Clients) -> None:
    first = clients.open()
    change(first, "listener.name.client.max.connection.creation.rate", "1")
    for _ in range(12):
        assert is_served(clients.open())


def test_every_request_is_answered_in_order_however_few_may_wait() -> None:
    """queued.max.requests=1: with connections that send many requests at once, nobody is read for most of the time."""
    with broker_errors(), cluster(brokers=1, config={"queued.max.requests": "1"}) as fleet, ExitStack() as stack:
        wires = [stack.enter_context(Wire(fleet.address(0))) for _ in range(20)]
        for wire in wires:
            requests = [wire.request_bytes(ApiKey.METADATA, 9, METADATA) for _ in range(30)]
            wire.send(b"".join(requests))
        for wire in wires:
            for number in range(1, 31):
                frame = wire.frame()
                assert frame is not None
                assert codec.read_response_frame(ApiKey.METADATA, 9, memoryview(frame))[0] == number

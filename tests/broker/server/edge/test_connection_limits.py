"""How many connections a broker accepts, as Apache Kafka's ConnectionQuotas."""

import math

import pytest

from ottla_broker.config import BrokerConfig
from ottla_broker.server.edge.connection_limits import ConnectionLimits

CLIENTS, BROKERS = "CLIENTS", "BROKERS"
TWO = (
    "broker.id=1",
    "zookeeper.connect=z:2181",
    "listeners=CLIENTS://127.0.0.1:9092,BROKERS://127.0.0.1:9093",
    "listener.security.protocol.map=CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name=BROKERS",
)
ONE = ("broker.id=1", "zookeeper.connect=z:2181", "listeners=PLAINTEXT://127.0.0.1:9092")


def limits(*lines: str, base: tuple[str, ...] = TWO) -> ConnectionLimits:
    config = BrokerConfig.from_properties("", [*base, *lines])
    return ConnectionLimits(config, (config.listeners.inter_broker, None))


def open_some(found: ConnectionLimits, count: int, listener: str = CLIENTS, address: str = "10.0.0.1") -> None:
    for _ in range(count):
        found.opened(listener, address, now=0.0)


def test_clients_wait_and_a_broker_replaces_an_idle_client_at_max_connections() -> None:
    found = limits("max.connections=2")
    open_some(found, 1)
    assert found.wait_s(CLIENTS, 0.0) == 0.0
    open_some(found, 1)
    assert (found.wait_s(CLIENTS, 0.0), found.wait_s(BROKERS, 0.0), found.excess) == (math.inf, 0.0, 0)
    open_some(found, 1, BROKERS)
    assert found.excess == 1
    found.closed(CLIENTS, "10.0.0.1")
    assert (found.wait_s(CLIENTS, 0.0), found.excess) == (math.inf, 0)
    found.closed(CLIENTS, "10.0.0.1")
    assert found.wait_s(CLIENTS, 0.0) == 0.0


def test_the_inter_broker_listener_has_no_priority_when_it_is_the_only_one() -> None:
    found = limits("max.connections=1", base=ONE)
    open_some(found, 1, "PLAINTEXT")
    assert found.wait_s("PLAINTEXT", 0.0) == math.inf


@pytest.mark.parametrize("listener", [CLIENTS, BROKERS])
def test_the_connection_limit_of_a_listener_applies_to_this_listener_alone(listener: str) -> None:
    found = limits(f"listener.name.{listener.lower()}.max.connections=2")
    open_some(found, 2, listener)
    other = BROKERS if listener == CLIENTS else CLIENTS
    assert (found.wait_s(listener, 0.0), found.wait_s(other, 0.0)) == (math.inf, 0.0)


def test_connections_of_an_address_are_refused_above_its_limit_or_override() -> None:
    found = limits("max.connections.per.ip=2", "max.connections.per.ip.overrides=clients.example:3,10.0.0.9:0")
    assert found.override_hosts == ["clients.example", "10.0.0.9"]
    found.resolved({"clients.example": ["10.0.0.7", "fd00::7"], "10.0.0.9": ["10.0.0.9"]})
    for address, most in (("10.0.0.1", 2), ("10.0.0.7", 3), ("::ffff:10.0.0.8", 2), ("fd00:0::7", 3), ("10.0.0.9", 0)):
        open_some(found, most, address=address)
        assert f"={most} connections" in found.reason_to_close(address)
    found.closed(CLIENTS, "10.0.0.7")
    assert found.reason_to_close("10.0.0.7") == ""
    assert "=2 connections" in found.reason_to_close("10.0.0.8"), "the same host, over IPv6 a moment ago"


def test_the_next_connection_waits_when_the_creation_rate_is_exceeded() -> None:
    found = limits("max.connection.creation.rate=2", "listener.name.brokers.max.connection.creation.rate=5")
    open_some(found, 20)
    assert found.wait_s(CLIENTS, 0.0) == 0.0, "as many as in ten seconds"
    open_some(found, 1)
    assert found.wait_s(CLIENTS, 0.0) == pytest.approx(0.5), "21 at 2 per second last for 10.5 seconds"
    assert found.wait_s(CLIENTS, 0.51) == 0.0
    open_some(found, 50, BROKERS)
    assert found.wait_s(BROKERS, 0.0) == 0.0
    open_some(found, 100, BROKERS)
    assert found.wait_s(BROKERS, 0.0) == 1.0, "one sample at most"
    assert found.wait_s(CLIENTS, 0.51) == 0.0, "those of brokers do not count for clients"


def test_connections_above_the_quota_of_their_address_are_closed_later() -> None:
    found = limits()
    found.set_address_quota(None, 1)
    found.set_address_quota("10.0.0.9", 3)
    assert [found.throttle_s("10.0.0.1", 0.0) for _ in range(12)] == [0.0] * 10 + [1.0, 1.0]
    assert [found.throttle_s("::ffff:10.0.0.1", 0.0), found.throttle_s("10.0.0.2", 0.0)] == [1.0, 0.0]
    assert sum(found.throttle_s("10.0.0.9", 0.0) == 0.0 for _ in range(50)) == 30
    assert found.throttle_s("10.0.0.1", 11.0) == 0.0, "those that were closed do not count"
    found.set_address_quota("10.0.0.9", None)
    assert found.throttle_s("10.0.0.9", 0.0) == 1.0, "the default is in force"
    found.set_address_quota(None, None)
    assert found.throttle_s("10.0.0.1", 0.0) == 0.0


def test_an_address_with_a_quota_of_0_gets_no_connection() -> None:
    found = limits()
    found.set_address_quota("10.0.0.9", 0)
    assert (found.throttle_s("10.0.0.9", 0.0), found.throttle_s("10.0.0.1", 0.0)) == (1.0, 0.0)


def test_the_rates_of_addresses_that_never_come_again_are_forgotten() -> None:
    found = limits()
    found.set_address_quota(None, 10)
    for number in range(100_000):
        assert found.throttle_s(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", number / 100) == 0.0
    assert len(found._rates_of_addresses) <= 2 * 12 * 100, "those of the last eleven seconds, and as many again"


def test_all_connections_are_accepted_without_a_limit() -> None:
    found = limits()
    open_some(found, 10_000)
    assert found.wait_s(CLIENTS, 0.0) == 0.0 and not found.excess and not found.reason_to_close("10.0.0.1")

"""principal.builder.class by an installed package: it names the principal of every client, and an error of it admits
nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.adapters.process import make_ports
from ottla_broker.config import BrokerConfig
from ottla_broker.config.types import ConfigError
from ottla_broker.coordination.embedded import EmbeddedCoordination, EmbeddedStore
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.security.principal_builder import AuthenticationContext, PrincipalBuilder
from ottla_broker.security.principals import Principal
from ottla_broker.server.assembly import installed_packages, principal_builders
from ottla_broker.server.broker import Broker, StartRefused
from tests.authority import Authority
from tests.integration.clients.security import tls_context
from tests.integration.wire import Wire

KEY = "principal.builder.class"
DESCRIBE = codec.module(ApiKey.DESCRIBE_ACLS)
ALLOWED, DENIED = 0, 31
SEEN: list[AuthenticationContext] = []
"""What the builder was asked."""


def make_services(config: BrokerConfig) -> PrincipalBuilder:
    """Service:admin for whoever acme.admins names, Service:other for the rest; nobody named nobody."""
    admins = config.static["acme.admins"].split(";")

    def build(context: AuthenticationContext) -> Principal:
        SEEN.append(context)
        name = context.default_principal().name
        if name == "nobody":
            raise ValueError("it is nobody")
        if name == "odd":
            return "admin"  # type: ignore[return-value]  # a package may do anything
        return Principal("Service", "admin" if name in admins else "other")

    return build


def make_none(config: BrokerConfig) -> PrincipalBuilder:
    raise KeyError("acme.directory")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    made = EmbeddedStore(str(tmp_path / "coordination.db"))
    await made.open()
    yield made
    await made.close()


@pytest.fixture(autouse=True)
def nothing_seen() -> Iterator[None]:
    SEEN.clear()
    yield
    SEEN.clear()


def _install(monkeypatch: pytest.MonkeyPatch, names: Sequence[str], factory: str) -> None:
    value = f"tests.broker.server.test_principal_builder:{factory}"
    installed = EntryPoints(EntryPoint(name, value, principal_builders.GROUP) for name in names)
    monkeypatch.setattr(installed_packages, "entry_points", lambda group: installed.select(group=group))


def _broker(directory: Path, store: EmbeddedStore, admins: str, **keys: str) -> Broker:
    authority = Authority()
    users = 'user_alice="pw" user_mallory="pw" user_nobody="pw" user_odd="pw"'
    config = BrokerConfig.from_mapping(
        {
            "broker.id": "1",
            "log.dirs": str(directory / "log"),
            "zookeeper.connect": "127.0.0.1:1",
            "listeners": "OWN://127.0.0.1:0,BARE://127.0.0.1:0,TLS://127.0.0.1:0,SASL://127.0.0.1:0",
            "listener.security.protocol.map": "OWN:PLAINTEXT,BARE:PLAINTEXT,TLS:SSL,SASL:SASL_PLAINTEXT",
            "inter.broker.listener.name": "OWN",
            "listener.name.tls.ssl.client.auth": "requested",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.issue("localhost", "127.0.0.1").write(directory / "broker.pem")),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.write_trust(directory / "trust.pem")),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config": (
                f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
            ),
            "connection.failed.authentication.delay.ms": "0",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "Service:admin",
            KEY: "acme",
            "acme.admins": admins,
            **keys,
        }
    )
    authority.issue(subject="app").write(directory / "app.pem")
    return Broker(config, make_ports(config, EmbeddedCoordination(store, session_timeout_ms=2000)))


def _error(wire: Wire) -> int:
    request = DESCRIBE.DescribeAclsRequest(
        resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, operation=1, permission_type=1
    )
    return int(wire.ask(ApiKey.DESCRIBE_ACLS, 3, request).error_code)


def _connected(broker: Broker, listener: str, **how: Any) -> Wire:
    return Wire("{}:{}".format(*broker.address(listener)), **how)


def _by_sasl(broker: Broker, user: str) -> int:
    with _connected(broker, "SASL") as wire:
        wire.log_in("PLAIN", user, "pw")
        return _error(wire)


async def test_it_names_the_principal_of_every_client(
    tmp_path: Path, store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without authentication, by TLS with and without a certificate, and by SASL."""
    _install(monkeypatch, ["acme"], "make_services")
    broker = _broker(tmp_path, store, "ANONYMOUS;CN=app;alice")
    await broker.start()
    trust = {"security.protocol": "SSL", "ssl.truststore.location": str(tmp_path / "trust.pem")}
    of_app = {**trust, "ssl.keystore.location": str(tmp_path / "app.pem")}

    def ask() -> None:
        SEEN.clear()  # the broker's own connections
        with _connected(broker, "BARE") as wire:
            assert _error(wire) == ALLOWED
            assert _error(wire) == ALLOWED
        for tls in (trust, of_app):
            with _connected(broker, "TLS", tls=tls_context(tls)) as wire:
                assert _error(wire) == ALLOWED
        assert _by_sasl(broker, "alice") == ALLOWED
        assert _by_sasl(broker, "mallory") == DENIED

    try:
        await asyncio.to_thread(ask)
    finally:
        await broker.stop()
    seen = [one for one in SEEN if one.listener != "OWN"]
    assert [(one.listener, one.security_protocol, one.mechanism, str(one.default_principal())) for one in seen] == [
        ("BARE", "PLAINTEXT", "", "User:ANONYMOUS"),  # once for a connection
        ("TLS", "SSL", "", "User:ANONYMOUS"),
        ("TLS", "SSL", "", "User:CN=app"),
        ("SASL", "SASL_PLAINTEXT", "PLAIN", "User:alice"),
        ("SASL", "SASL_PLAINTEXT", "PLAIN", "User:mallory"),
    ]
    assert {one.address for one in seen} == {"127.0.0.1"}
    assert [one.certificate is not None for one in seen] == [False, False, True, False, False]


@pytest.mark.parametrize("user", ["nobody", "odd"])
async def test_whom_it_does_not_name_is_not_authenticated(
    tmp_path: Path, store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    _install(monkeypatch, ["acme"], "make_services")
    broker = _broker(tmp_path, store, "")
    await broker.start()

    def ask() -> None:
        with pytest.raises(AssertionError, match="error_code=58"):
            _by_sasl(broker, user)

    try:
        await asyncio.to_thread(ask)
    finally:
        await broker.stop()


async def test_a_connection_without_a_principal_is_closed(
    tmp_path: Path, store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its certificate matches no mapping rule, and the builder asks for the default."""
    _install(monkeypatch, ["acme"], "make_services")
    broker = _broker(tmp_path, store, "", **{"ssl.principal.mapping.rules": "RULE:^CN=other$/other/"})
    await broker.start()
    of_app = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(tmp_path / "trust.pem"),
        "ssl.keystore.location": str(tmp_path / "app.pem"),
    }

    def ask() -> None:
        with (
            _connected(broker, "TLS", tls=tls_context(of_app)) as wire,
            pytest.raises(AssertionError, match="closed the connection"),
        ):
            _error(wire)

    try:
        await asyncio.to_thread(ask)
    finally:
        await broker.stop()


async def test_one_that_is_not_installed_or_fails_keeps_the_broker_from_starting(
    tmp_path: Path, store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(monkeypatch, ["other"], "make_services")
    with pytest.raises(StartRefused, match=r"principal.builder.class: acme is neither .* \(other\)"):
        await _broker(tmp_path, store, "").start()
    _install(monkeypatch, ["acme"], "make_none")
    with pytest.raises(StartRefused, match=r"principal.builder.class: acme failed to start: KeyError"):
        await _broker(tmp_path, store, "").start()


@pytest.mark.parametrize("name", ["", "org.example.Builder"])
def test_a_java_class_is_refused_by_the_key(tmp_path: Path, store: EmbeddedStore, name: str) -> None:
    with pytest.raises(ConfigError, match=r"ottla\.principal_builders") as refused:
        _broker(tmp_path, store, "", **{KEY: name})
    assert refused.value.key == KEY

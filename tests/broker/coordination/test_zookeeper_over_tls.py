"""The session with a real ZooKeeper over TLS: answers and watches, certificates, and what is said when it fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.local.ports import free_port
from ottla.local.zookeeper_server import ZooKeeperServer
from ottla.testing import cluster
from ottla_broker.adapters.process import zookeeper_coordination, zookeeper_session
from ottla_broker.config import BrokerConfig
from ottla_broker.ports.coordination import ConnectionLoss, SessionEvent
from ottla_broker.security.tls_settings import TlsError
from tests.authority import Authority
from tests.integration.clients.topics import await_known, create

pytestmark = pytest.mark.java

AUTHORITY = Authority()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    AUTHORITY.issue("localhost").write(folder / "server.pem")
    AUTHORITY.issue(subject="broker").write(folder / "broker.pem")
    AUTHORITY.write_trust(folder / "trust.pem")
    return folder


@pytest.fixture(scope="module")
def secure_port(folder: Path) -> Iterator[int]:
    """Of a ZooKeeper that wants certificates of clients."""
    port = free_port()
    settings = {
        "secureClientPort": str(port),
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(folder / "server.pem"),
        "ssl.trustStore.location": str(folder / "trust.pem"),
        "ssl.clientAuth": "need",
        "ssl.protocol": "TLSv1.2",
        "ssl.enabledProtocols": "TLSv1.2,TLSv1.3",
    }
    with ZooKeeperServer(folder / "zookeeper", settings=settings):
        yield port


def config(folder: Path, port: int, **values: str) -> dict[str, str]:
    return {
        "zookeeper.connect": f"localhost:{port}/fleet",
        "zookeeper.session.timeout.ms": "4000",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": str(folder / "broker.pem"),
        "zookeeper.ssl.truststore.location": str(folder / "trust.pem"),
        **{f"zookeeper.{name.replace('_', '.')}": value for name, value in values.items()},
    }


@pytest.mark.parametrize("protocols", ["TLSv1.2", "TLSv1.3"])
async def test_large_answers_many_at_once_and_a_watch(folder: Path, secure_port: int, protocols: str) -> None:
    """Several answers come in one record of TLS: nothing is left unread in OpenSSL."""
    values = config(folder, secure_port, ssl_enabled_protocols=protocols)
    session = zookeeper_coordination(BrokerConfig.from_mapping(values))
    await session.start()
    parent = f"/{protocols}"
    await session.create(parent, b"")
    big = bytes(range(256)) * 3000
    await session.create(f"{parent}/big", big)
    await asyncio.gather(*(session.create(f"{parent}/{number}", b"%d" % number) for number in range(300)))
    read = await asyncio.gather(*(session.get(f"{parent}/{number}") for number in range(300)))
    assert [data for data, _ in read] == [b"%d" % number for number in range(300)]
    assert (await session.get(f"{parent}/big"))[0] == big
    changed = asyncio.Event()
    await session.get(f"{parent}/0", watch=lambda event: changed.set())
    await session.set(f"{parent}/0", b"new", -1)
    await changed.wait()
    await session.close()


async def test_znodes_belong_to_the_certificate(folder: Path, secure_port: int) -> None:
    """And to the user as well, where the broker also logs in by SASL, which Apache Kafka allows."""
    session = zookeeper_session(BrokerConfig.from_mapping(config(folder, secure_port, set_acl="true")))
    await session.start()
    await session.create("/acls", b"")
    await session.create("/config", b"")
    await session.create("/config/users", b"")
    owner = (31, "x509", "CN=broker")
    assert set((await session.acl("/acls"))[0]) == {owner, (1, "world", "anyone")}
    assert set((await session.acl("/config/users"))[0]) == {owner}
    await session.close()


async def test_a_session_goes_on_with_a_new_certificate_after_its_connection_is_lost(
    folder: Path, secure_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    values = config(folder, secure_port)
    values["zookeeper.ssl.keystore.location"] = str(AUTHORITY.issue(subject="first").write(folder / "own.pem"))
    session = zookeeper_coordination(BrokerConfig.from_mapping(values))
    events: list[SessionEvent] = []
    reconnected = asyncio.Event()

    def on_event(event: SessionEvent) -> None:
        events.append(event)
        if event is SessionEvent.CONNECTED and SessionEvent.SUSPENDED in events:
            reconnected.set()

    session.add_session_listener(on_event)
    await session.start()
    number = session.session_id
    AUTHORITY.issue(subject="second").write(folder / "own.pem")
    with caplog.at_level(logging.INFO):
        session._client._connection._socket.shutdown(2)  # type: ignore[attr-defined]
        await reconnected.wait()
    assert session.session_id == number
    assert "ZooKeeper: new keys and certificates are in force" in caplog.text
    await session.close()


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"ssl_truststore_location": "other.pem"}, "TLS: self-signed certificate in certificate chain"),
        ({"connect": "127.0.0.1:{port}"}, "TLS: IP address mismatch, certificate is not valid for '127.0.0.1'"),
    ],
)
async def test_the_reason_of_a_failed_handshake_is_said(
    folder: Path, secure_port: int, values: dict[str, str], reason: str
) -> None:
    Authority("other").write_trust(folder / "other.pem")
    given = {name: value.format(port=secure_port) for name, value in values.items()}
    if "ssl_truststore_location" in given:
        given["ssl_truststore_location"] = str(folder / given["ssl_truststore_location"])
    found = config(folder, secure_port, connection_timeout_ms="2000", **given)
    session = zookeeper_coordination(BrokerConfig.from_mapping(found))
    with pytest.raises(ConnectionLoss) as caught:
        await session.start()
    assert reason in str(caught.value)


async def test_a_store_that_cannot_be_used_ends_the_start(folder: Path, secure_port: int) -> None:
    found = config(folder, secure_port, ssl_keystore_location="/nowhere.pem")
    with pytest.raises(TlsError, match=r"^zookeeper\.ssl\.keystore\.location: /nowhere\.pem: No such file"):
        await zookeeper_coordination(BrokerConfig.from_mapping(found)).start()


def test_a_fleet_on_a_secure_zookeeper_elects_and_creates(folder: Path, secure_port: int) -> None:
    values = config(folder, secure_port)
    address = values.pop("zookeeper.connect").replace("/fleet", "/whole-fleet")
    with cluster(brokers=2, zookeeper=address, config=values) as fleet:
        create(fleet.bootstrap, "a", 2, 2)
        fleet.kill(0)
        fleet.start(0)
        await_known(fleet.bootstrap, "a", 2)

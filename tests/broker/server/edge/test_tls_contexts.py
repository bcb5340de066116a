"""Stores of a running broker: read again when they change, and kept when they cannot be used."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtensionOID

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.adapters.network import SocketNetwork
from ottla_broker.config import BrokerConfig
from ottla_broker.exposition import Exposition
from ottla_broker.metrics import Metrics
from ottla_broker.security.tls_settings import TlsError
from ottla_broker.server.edge import tls_contexts
from ottla_broker.server.edge.tls_contexts import ListenerTls, TlsConnector, TlsContexts
from tests.authority import Authority

HOST = "broker-0.example"


class Running:
    """The contexts of one broker, and what it was started with."""

    def __init__(self, folder: Path, **keys: str) -> None:
        self.authority = Authority()
        self.store = folder / "keys.pem"
        self.authority.write_trust(folder / "trust.pem")
        self.issue()
        self.config = BrokerConfig.from_mapping(
            {
                "listeners": "SSL://:9093",
                "advertised.listeners": f"SSL://{HOST}:9093",
                "inter.broker.listener.name": "SSL",
                "ssl.keystore.location": str(self.store),
                "ssl.truststore.location": str(folder / "trust.pem"),
                **{key.replace("_", "."): value for key, value in keys.items()},
            }
        )
        self.metrics = Metrics()
        self.clock = LoopClock()
        self.contexts = TlsContexts(self.config, self.clock, self.metrics, own_name=self._own_name)

    async def _own_name(self) -> str:
        return HOST

    def issue(self, *names: str, subject: str = "broker") -> None:
        """Puts a new certificate in place of the one before, as people do: in one step."""
        fresh = self.store.with_suffix(".new")
        self.authority.issue(*(names or (HOST,)), subject=subject).write(fresh)
        fresh.replace(self.store)

    def trust(self, pem: str) -> None:
        """Trusts these too."""
        self.store.with_name("trust.pem").write_text(self.authority.trust_pem + pem)

    @property
    def of_listener(self) -> ListenerTls:
        found = self.contexts.of_listener("SSL")
        assert isinstance(found, ListenerTls)
        return found

    @property
    def serial(self) -> str:
        certificate = self.of_listener.loaded.certificate
        assert certificate is not None
        return certificate.serial

    def metric(self, line: str) -> bool:
        return line in Exposition(self.metrics).text().decode()


@pytest.fixture
async def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    monkeypatch.setattr(tls_contexts, "_CHECK_S", 3600)
    one = Running(tmp_path)
    await one.contexts.start()
    yield one
    one.clock.cancel_all()


async def test_both_directions_of_a_listener_between_brokers_have_its_keys(running: Running) -> None:
    connector = running.contexts.connector_to(SocketNetwork(), "SSL")
    assert isinstance(connector, TlsConnector)
    client = connector.tls
    assert isinstance(client, ListenerTls)
    assert client.loaded.certificate == running.of_listener.loaded.certificate
    assert client.context() is not running.of_listener.context()
    assert running.contexts.of_listener("PLAINTEXT") is None
    plain = SocketNetwork()
    assert running.contexts.connector_to(plain, "PLAINTEXT") is plain
    assert running.metric('ottla_ssl_certificate_expiry_seconds{listener="SSL",store="keystore"} 3')


@pytest.mark.public_report(7)
async def test_a_new_certificate_is_served_and_the_old_context_is_left_as_it_is(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    before, serial = running.of_listener.context(), running.serial
    running.issue(HOST, "another.example")
    with caplog.at_level(logging.INFO, "ottla.security"):
        await running.contexts.refresh()
    assert running.serial != serial
    assert running.of_listener.context() is not before
    assert f"listener SSL (server) has new keys and certificates: CN=broker, serial {running.serial}" in caplog.text


@pytest.mark.public_report(20)
async def test_another_authority_is_trusted_in_both_directions_once_the_trust_store_has_it(running: Running) -> None:
    connector = running.contexts.connector_to(SocketNetwork(), "SSL")
    assert isinstance(connector, TlsConnector)
    client = connector.tls
    assert isinstance(client, ListenerTls)

    def trusted() -> list[set[str]]:
        ders = [one.context().get_ca_certs(binary_form=True) for one in (running.of_listener, client)]
        return [{x509.load_der_x509_certificate(der).subject.rfc4514_string() for der in one} for one in ders]

    assert trusted() == [{"CN=an authority"}] * 2
    running.trust(Authority("the next authority").trust_pem)
    await running.contexts.refresh()
    assert trusted() == [{"CN=an authority", "CN=the next authority"}] * 2


@pytest.mark.public_report(7)
async def test_a_symlink_that_turns_is_a_change(running: Running, tmp_path: Path) -> None:
    """Kubernetes changes a Secret so."""
    serial = running.serial
    elsewhere = tmp_path / "data"
    running.authority.issue(HOST).write(elsewhere)
    running.store.unlink()
    running.store.symlink_to(elsewhere)
    await running.contexts.refresh()
    assert running.serial != serial


@pytest.mark.parametrize("content", [b"", b"-----BEGIN CERTIFICATE-----\nhalf", None])
@pytest.mark.public_report(7)
async def test_what_cannot_be_used_leaves_the_old_one_in_force_with_one_line(
    running: Running, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    serial = running.serial
    if content is None:
        running.store.unlink()
    else:
        running.store.write_bytes(content)
    for _ in range(3):
        await running.contexts.refresh()
    assert running.serial == serial
    lines = [record.getMessage() for record in caplog.records if "(server) keeps" in record.getMessage()]
    assert len(lines) == 1 and str(running.store) in lines[0]
    assert running.metric('ottla_ssl_stores_refused{listener="SSL"} 1')
    for one in running.contexts.status():
        assert (one["listener"], one["certificate"]["serial"]) == ("SSL", serial)
        assert one["refused"].startswith(f"ssl.keystore.location: {running.store}: ")
    assert [one["role"] for one in running.contexts.status()] == ["server", "client"]
    running.issue()
    await running.contexts.refresh()
    assert running.serial != serial
    assert [one["refused"] for one in running.contexts.status()] == ["", ""]
    assert running.metric('ottla_ssl_stores_refused{listener="SSL"} 0')


async def test_a_certificate_with_other_names_is_refused_as_kafka_does(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    serial = running.serial
    running.issue(HOST, subject="somebody")
    await running.contexts.refresh()
    assert running.serial == serial
    connector = running.contexts.connector_to(SocketNetwork(), "SSL")
    assert isinstance(connector, TlsConnector) and isinstance(connector.tls, ListenerTls)
    assert connector.tls.loaded.certificate == running.of_listener.loaded.certificate, "its own connections neither"
    assert "the certificate is of CN=somebody, and of CN=broker before: set ssl.allow.dn.changes=true" in caplog.text


async def test_a_change_of_a_key_is_in_force_without_a_new_file(running: Running) -> None:
    running.config.apply_dynamic({"listener.name.ssl.ssl.client.auth": "required"}, {})
    await running.contexts.refresh()
    assert running.of_listener.settings.client_auth == "required"
    assert running.of_listener.context().verify_mode.name == "CERT_REQUIRED"


async def test_a_start_with_a_store_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    one = Running(tmp_path)
    os.truncate(one.store, 10)
    with pytest.raises(TlsError, match=r"ssl\.keystore\.location: .*keys\.pem: it is neither PEM nor PKCS#12"):
        await one.contexts.start()
    one.clock.cancel_all()


@pytest.mark.public_report(5)
async def test_a_start_with_a_certificate_that_does_not_name_what_is_advertised_is_refused(tmp_path: Path) -> None:
    one = Running(tmp_path)
    one.issue("another.example")
    with pytest.raises(TlsError, match=r"does not name broker-0\.example, which is advertised"):
        await one.contexts.start()
    one.clock.cancel_all()


async def test_an_odd_certificate_in_a_trust_store_is_refused_and_the_next_content_is_read(running: Running) -> None:
    """Whatever the library says of it: an address of five bytes is no error of TLS."""
    odd = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, bytes.fromhex("300787050a00000001"))
    running.trust(running.authority.issue(extension=odd).chain_pem)
    await running.contexts.refresh()
    assert running.metric('ottla_ssl_stores_refused{listener="SSL"} 1')
    running.trust(Authority("another").trust_pem)
    await running.contexts.refresh()
    assert running.metric('ottla_ssl_stores_refused{listener="SSL"} 0')
    assert len(running.of_listener.loaded.authorities) == 2

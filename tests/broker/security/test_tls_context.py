"""Stores that are right in every form, and what is said of each that is not."""

from __future__ import annotations

import datetime
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

from ottla_broker.security.tls_context import LoadedTls, digest_of, load_client, load_server
from ottla_broker.security.tls_settings import CertificateStore, ClientAuth, TlsError, TlsSettings
from tests.authority import Authority, Issued, weak_key

HOST = "broker-0.example"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Issued:
    return authority.issue(HOST, "10.0.0.1")


def settings(
    key_store: CertificateStore | None, trust_store: CertificateStore | None = None, verifies_names: bool = True
) -> TlsSettings:
    auth = ClientAuth.REQUIRED if trust_store else ClientAuth.NONE
    return TlsSettings(("TLSv1.2", "TLSv1.3"), (), auth, verifies_names, key_store, trust_store)


def key_store(location: Path, password: str | None = None, key_password: str | None = None) -> CertificateStore:
    return CertificateStore("ssl.keystore.location", str(location), password=password, key_password=key_password)


def load(one: TlsSettings, hosts: tuple[str, ...] = (HOST,)) -> LoadedTls:
    return load_server(one, time.time(), hosts)


def refused(one: TlsSettings, hosts: tuple[str, ...] = (HOST,)) -> str:
    with pytest.raises(TlsError) as caught:
        load(one, hosts)
    return str(caught.value)


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str = HOST) -> str:
    """The protocol; raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(6):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return sides[1].version() or ""


class TestForms:
    """Each form of a key store makes a server that a client trusts."""

    FORMS: dict[str, Callable[[Issued, Path], CertificateStore]] = {
        "PEM": lambda issued, path: key_store(issued.write(path)),
        "PEM, the certificate first": lambda issued, path: key_store(_write(path, issued.chain_pem + issued.key_pem())),
        "PEM with an encrypted key": lambda issued, path: key_store(
            issued.write(path, "secret"), key_password="secret"
        ),
        "PEM with a key of the older format": lambda issued, path: key_store(
            _write(
                path,
                issued.key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()
                + issued.chain_pem,
            )
        ),
        "PEM whose authority comes first": lambda issued, path: key_store(
            _write(path, issued.key_pem() + "".join(reversed(_certificates(issued.chain_pem))))
        ),
        "PKCS#12": lambda issued, path: key_store(_write(path, issued.pkcs12("secret")), "secret"),
        "values": lambda issued, path: CertificateStore(
            "ssl.keystore.certificate.chain", certificates=issued.chain_pem, private_key=issued.key_pem()
        ),
        "values in one line each": lambda issued, path: CertificateStore(
            "ssl.keystore.certificate.chain",
            certificates=" ".join(issued.chain_pem.split("\n")),
            private_key=" ".join(issued.key_pem("secret").split("\n")),
            key_password="secret",
        ),
    }

    @pytest.mark.parametrize("form", FORMS)
    def test_every_form_serves(self, form: str, authority: Authority, issued: Issued, tmp_path: Path) -> None:
        loaded = load(settings(self.FORMS[form](issued, tmp_path / "store")), (HOST, "10.0.0.1"))
        assert loaded.certificate is not None and loaded.certificate.names == (HOST,)
        trust = CertificateStore("ssl.truststore.certificates", certificates=authority.trust_pem)
        client = load_client(settings(None, trust), time.time())
        assert handshake(loaded.context, client.context) == "TLSv1.3"

    def test_a_trust_store_in_pkcs12(self, authority: Authority, issued: Issued, tmp_path: Path) -> None:
        content = pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(authority.certificate, b"ca")], BestAvailableEncryption(b"secret")
        )
        store = CertificateStore("ssl.truststore.location", str(_write(tmp_path / "trust", content)), password="secret")
        client = load_client(settings(None, store), time.time())
        server = load(settings(key_store(issued.write(tmp_path / "store"))))
        assert handshake(server.context, client.context) == "TLSv1.3"
        assert client.authorities[0].subject == "CN=an authority"

    def test_a_certificate_that_is_no_authority_can_be_trusted_itself_as_in_java(
        self, issued: Issued, tmp_path: Path
    ) -> None:
        own = CertificateStore("ssl.truststore.certificates", certificates=_certificates(issued.chain_pem)[0])
        client = load_client(settings(None, own), time.time())
        server = load(settings(key_store(issued.write(tmp_path / "store"))))
        assert handshake(server.context, client.context) == "TLSv1.3"

    def test_a_certificate_that_the_trust_store_revokes_is_refused(
        self, authority: Authority, issued: Issued, tmp_path: Path
    ) -> None:
        now = datetime.datetime.now(datetime.UTC)
        revoked = (
            x509.RevokedCertificateBuilder()
            .serial_number(issued.certificate.serial_number)
            .revocation_date(now)
            .build()
        )
        lists = authority.revocation_pem(revoked)
        trust = CertificateStore("ssl.truststore.certificates", certificates=authority.trust_pem + lists)
        client = load_client(settings(None, trust), time.time())
        server = load(settings(key_store(issued.write(tmp_path / "store"))))
        with pytest.raises(ssl.SSLCertVerificationError, match="certificate revoked"):
            handshake(server.context, client.context)
        other = load(settings(key_store(authority.issue(HOST).write(tmp_path / "other"))))
        assert handshake(other.context, client.context) == "TLSv1.3"


class TestRules:
    def test_only_the_protocols_of_the_settings_are_served(self, authority: Authority, tmp_path: Path) -> None:
        store = key_store(authority.issue(HOST).write(tmp_path / "store"))
        trust = CertificateStore("ssl.truststore.certificates", certificates=authority.trust_pem)
        older = TlsSettings(("TLSv1.2",), (), ClientAuth.NONE, True, store, None)
        newer = TlsSettings(("TLSv1.3",), (), ClientAuth.NONE, True, None, trust)
        with pytest.raises(ssl.SSLError, match=r"PROTOCOL_VERSION|UNSUPPORTED_PROTOCOL"):
            handshake(load(older).context, load_client(newer, time.time()).context)

    def test_only_the_suites_of_the_settings_are_served(self, authority: Authority, tmp_path: Path) -> None:
        store = key_store(authority.issue(HOST).write(tmp_path / "store"))
        suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
        server = load(TlsSettings(("TLSv1.2", "TLSv1.3"), (suite,), ClientAuth.NONE, True, store, None))
        names = {cipher["name"] for cipher in server.context.get_ciphers() if cipher["protocol"] == "TLSv1.2"}
        assert names == {"ECDHE-ECDSA-AES128-GCM-SHA256"}
        assert server.context.maximum_version is ssl.TLSVersion.TLSv1_2

    def test_the_host_name_of_a_server_is_checked_unless_the_settings_say_otherwise(
        self, authority: Authority, issued: Issued, tmp_path: Path
    ) -> None:
        server = load(settings(key_store(issued.write(tmp_path / "store"))))
        trust = CertificateStore("ssl.truststore.certificates", certificates=authority.trust_pem)
        with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
            handshake(server.context, load_client(settings(None, trust), time.time()).context, "other.example")
        lax = load_client(settings(None, trust, verifies_names=False), time.time())
        assert handshake(server.context, lax.context, "other.example") == "TLSv1.3"

    def test_a_change_of_the_content_changes_the_digest(self, authority: Authority, tmp_path: Path) -> None:
        store = settings(key_store(authority.issue(HOST).write(tmp_path / "store")))
        loaded = load(store)
        assert digest_of(store) == loaded.digest
        authority.issue(HOST).write(tmp_path / "store")
        assert digest_of(store) != loaded.digest


class TestRefused:
    """Key, file, reason, what to do; never a secret."""

    def test_a_file_that_is_missing(self, tmp_path: Path) -> None:
        path = tmp_path / "store"
        assert refused(settings(key_store(path))) == (
            f"ssl.keystore.location: {path}: No such file or directory: name a file that exists"
        )

    def test_a_folder(self, tmp_path: Path) -> None:
        assert "Is a directory" in refused(settings(key_store(tmp_path)))

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"", "it is neither PEM nor PKCS#12"),
            (b"hello", "it is neither PEM nor PKCS#12"),
            (b"\xfe\xed\xfe\xed\0\0\0\2", "-destkeystore {path}.p12 -deststoretype PKCS12"),
            (b"\x30\x82\x01\x00" + bytes(256), "give its password in ssl.keystore.password"),
            (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "its private key is no PEM key"),
            (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "no private key is in it"),
        ],
    )
    def test_what_is_no_store(self, content: bytes, reason: str, tmp_path: Path) -> None:
        path = _write(tmp_path / "store", content)
        message = refused(settings(key_store(path)))
        assert message.startswith(f"ssl.keystore.location: {path}: ")
        assert reason.format(path=path) in message

    def test_a_certificate_that_cannot_be_read(self, issued: Issued, tmp_path: Path) -> None:
        broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
        path = _write(tmp_path / "store", issued.key_pem() + broken)
        assert "certificate 1 in it cannot be read" in refused(settings(key_store(path)))

    def test_a_key_without_a_certificate(self, issued: Issued, tmp_path: Path) -> None:
        path = _write(tmp_path / "store", issued.key_pem())
        assert "no certificate is in it" in refused(settings(key_store(path)))

    @pytest.mark.parametrize("given", [None, "wrong"])
    def test_the_password_of_a_key(self, given: str | None, issued: Issued, tmp_path: Path) -> None:
        path = issued.write(tmp_path / "store", "secret-1")
        message = refused(settings(key_store(path, key_password=given)))
        assert "ssl.key.password" in message and "secret-1" not in message and "wrong" not in message

    @pytest.mark.parametrize("given", [None, "wrong"])
    def test_the_password_of_a_store(self, given: str | None, issued: Issued, tmp_path: Path) -> None:
        path = _write(tmp_path / "store", issued.pkcs12("secret-1"))
        message = refused(settings(key_store(path, given)))
        assert "ssl.keystore.password" in message and "secret-1" not in message and "wrong" not in message

    def test_the_key_of_another_certificate(self, authority: Authority, issued: Issued, tmp_path: Path) -> None:
        path = _write(tmp_path / "store", authority.issue(HOST).key_pem() + issued.chain_pem)
        assert "its key is not that of its certificate (CN=broker)" in refused(settings(key_store(path)))

    @pytest.mark.parametrize(("days", "reason"), [((-20, -10), "has expired ("), ((10, 20), "is not valid before ")])
    def test_a_certificate_that_is_not_valid_now(
        self, days: tuple[int, int], reason: str, authority: Authority, tmp_path: Path
    ) -> None:
        path = authority.issue(HOST, days=days).write(tmp_path / "store")
        assert f"the certificate of CN=broker {reason}" in refused(settings(key_store(path)))

    @pytest.mark.public_report(5)
    @pytest.mark.public_report(6)
    def test_a_certificate_without_a_name_that_is_advertised(
        self, authority: Authority, issued: Issued, tmp_path: Path
    ) -> None:
        path = issued.write(tmp_path / "store")
        message = refused(settings(key_store(path)), (HOST, "lb.example", "10.0.0.2"))
        assert "does not name lb.example, 10.0.0.2, which is advertised" in message
        load(settings(key_store(path), verifies_names=False), ("lb.example",))

    def test_a_weak_key(self, authority: Authority, tmp_path: Path) -> None:
        path = authority.issue(HOST, key=weak_key()).write(tmp_path / "store")
        assert "its key is too weak: use RSA of at least 2048 bits" in refused(settings(key_store(path)))

    def test_a_trust_store_without_a_certificate(self, issued: Issued, tmp_path: Path) -> None:
        trust = CertificateStore("ssl.truststore.location", str(_write(tmp_path / "trust", issued.key_pem())))
        message = refused(settings(key_store(issued.write(tmp_path / "store")), trust))
        assert message.startswith("ssl.truststore.location: ") and "no certificate is in it" in message

    def test_a_file_that_is_no_store_of_any_kind_is_not_read_to_its_end(self, tmp_path: Path) -> None:
        path = tmp_path / "store"
        with path.open("wb") as file:
            file.truncate(1 << 40)
        assert "more than 16777216 bytes are no store" in refused(settings(key_store(path)))


def _write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def _certificates(chain: str) -> list[str]:
    end = "-----END CERTIFICATE-----\n"
    return [part + end for part in chain.split(end) if part]

"""How a client reaches brokers: keys of Java's clients and of librdkafka, what they mean and what is refused."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

import pytest

from ottla_broker.config.definitions import BROKER_KEYS
from ottla_broker.security.client_settings import KEYS, SECRET_KEYS, client_security
from ottla_broker.security.handshake_failures import told_to_user
from ottla_broker.security.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE
from ottla_broker.security.sasl.login import SaslLogin
from ottla_broker.security.tls_context import load_client
from ottla_broker.security.tls_settings import CertificateStore, TlsError, TlsSettings
from tests.authority import Authority

SSL = {"security.protocol": "SSL"}
SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}


def tls(**given: str) -> TlsSettings:
    found = client_security({**SSL, **{key.replace("_", "."): value for key, value in given.items()}}).tls
    assert found is not None
    return found


def refused(given: dict[str, str]) -> str:
    with pytest.raises(TlsError) as caught:
        client_security(given)
    return str(caught.value)


def test_without_keys_a_connection_is_plain() -> None:
    assert client_security({}).tls is None
    assert client_security({"security.protocol": "plaintext"}).tls is None


@pytest.mark.parametrize(
    "keys",
    [
        {"sasl.jaas.config": f'{SCRAM_MODULE} required username="al\\"ice" password="se;cret";'},
        {"sasl.username": 'al"ice', "sasl.password": "se;cret"},
    ],
)
@pytest.mark.parametrize("protocol", ["SASL_SSL", "sasl_plaintext"])
def test_a_login_in_the_spelling_of_java_or_of_librdkafka(keys: dict[str, str], protocol: str) -> None:
    found = client_security({**SASL, "security.protocol": protocol, **keys})
    assert found.login == SaslLogin("SCRAM-SHA-512", 'al"ice', "se;cret")
    assert (found.tls is not None) == (protocol == "SASL_SSL")
    assert "se;cret" not in repr(found)


def test_plaintext_leaves_the_stores_without_effect_as_in_java() -> None:
    assert client_security({"security.protocol": "PLAINTEXT", "ssl.truststore.location": "/t.p12"}).tls is None


def test_the_defaults_are_those_of_javas_clients() -> None:
    found = tls()
    assert (found.protocols, found.cipher_suites) == (("TLSv1.2", "TLSv1.3"), ())
    assert (found.key_store, found.trust_store) == (None, None)
    assert found.verifies_names and found.verifies_certificates and not found.uses_kernel


def test_stores_in_the_spelling_of_java() -> None:
    found = tls(
        ssl_truststore_location="/t.p12",
        ssl_truststore_password="a",
        ssl_keystore_location="/k.p12",
        ssl_keystore_password="b",
        ssl_key_password="c",
    )
    assert found.trust_store == CertificateStore("ssl.truststore.location", "/t.p12", password="a")
    assert found.key_store == CertificateStore("ssl.keystore.location", "/k.p12", password="b", key_password="c")


def test_stores_in_the_spelling_of_librdkafka() -> None:
    found = tls(
        ssl_ca_location="/ca.pem", ssl_certificate_location="/c.pem", ssl_key_location="/k.pem", ssl_key_password="p"
    )
    assert found.trust_store == CertificateStore("ssl.ca.location", "/ca.pem")
    assert found.key_store == CertificateStore(
        "ssl.certificate.location", "/c.pem", key_location="/k.pem", key_password="p"
    )
    assert tls(ssl_ca_location="probe").trust_store is None


def test_names_of_hosts_are_checked_unless_either_spelling_says_no() -> None:
    assert not tls(ssl_endpoint_identification_algorithm="").verifies_names
    assert not tls(ssl_endpoint_identification_algorithm="none").verifies_names
    assert tls(ssl_endpoint_identification_algorithm="HTTPS").verifies_names
    assert not tls(enable_ssl_certificate_verification="false").verifies_certificates


def test_cipher_suites_have_ianas_names_or_openssls() -> None:
    suites = ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")
    assert tls(ssl_cipher_suites=", ".join(suites)).cipher_suites == suites
    openssl = "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES128-GCM-SHA256"
    assert tls(ssl_cipher_suites=openssl).cipher_suites == suites


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"security.protocol": "TLS"},
            "security.protocol: must be of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, not 'TLS'",
        ),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism: is not given: of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        (
            {"sasl.username": "a"},
            "security.protocol: is not given, so sasl.username would have no effect: set SASL_SSL",
        ),
        (
            {**SASL, "sasl.mechanism": "GSSAPI"},
            "sasl.mechanism: must be of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, not 'G",
        ),
        ({**SASL, "sasl.mechanisms": "PLAIN"}, "sasl.mechanisms: must not be given beside sasl.mechanism, which means"),
        (SASL, "sasl.username: is not given, nor sasl.jaas.config"),
        ({**SASL, "sasl.username": "a"}, "sasl.password: is not given, nor sasl.jaas.config"),
        ({**SASL, "sasl.jaas.config": f"{PLAIN_MODULE} required;"}, "sasl.jaas.config: the login module org.apache"),
        (
            {**SASL, "sasl.jaas.config": f'{SCRAM_MODULE} required username="a";'},
            "sasl.jaas.config: has no password",
        ),
        (
            {**SASL, "sasl.jaas.config": f'{SCRAM_MODULE} required username="a" password="b";', "sasl.username": "a"},
            "sasl.username: must not be given beside sasl.jaas.config",
        ),
        (
            {**SASL, "sasl.jaas.config": f'{SCRAM_MODULE} required username="a" password="b" tokenauth="true";'},
            "sasl.jaas.config: tokenauth: a delegation token is not taken here, log in as a user",
        ),
        ({**SASL, "sasl.login.class": "x.Y"}, "sasl.login.class: is not served: the mechanisms are PLAIN"),
        ({**SASL, "sasl.usrname": "x"}, "sasl.usrname: is unknown; did you mean sasl.username?"),
        ({"ssl.ca.location": "/ca.pem"}, "security.protocol: is not given, so ssl.ca.location would have no effect"),
        ({**SSL, "ssl.truststore.locaton": "/t"}, "is unknown; did you mean ssl.truststore.location?"),
        ({**SSL, "ssl.ca.locations": "/t"}, "is unknown; did you mean ssl.ca.location?"),
        ({**SSL, "ssl.engine.factory.class": "X"}, "ssl.engine.factory.class: is not served: it names a Java class"),
        ({**SSL, "ssl.crl.location": "/crl"}, "put the list of revoked certificates into the file of ssl.ca.location"),
        ({**SSL, "ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols: must be of TLSv1.2, TLSv1.3"),
        ({**SSL, "ssl.protocol": "SSLv3"}, "ssl.protocol: must be TLS or of TLSv1.2, TLSv1.3, not 'SSLv3'"),
        ({**SSL, "ssl.cipher.suites": "RC4"}, "RC4 is none of them"),
        ({**SSL, "ssl.truststore.type": "BKS"}, "ssl.truststore.type: must be of JKS, PKCS12, PEM"),
        ({**SSL, "ssl.truststore.certificates": "s3cret"}, "ssl.truststore.type: must be PEM, since"),
        ({**SSL, "ssl.endpoint.identification.algorithm": "ldaps"}, "must be https, or nothing"),
        ({**SSL, "enable.ssl.certificate.verification": "no"}, "must be true or false, not 'no'"),
        (
            {**SSL, "ssl.ca.location": "/ca", "ssl.truststore.location": "/t"},
            "ssl.ca.location: must not be given beside ssl.truststore.location, which means the same",
        ),
        ({**SSL, "ssl.ca.location": "/ca", "ssl.ca.pem": "s3cret"}, "ssl.ca.pem: must not be given beside"),
        ({**SSL, "ssl.key.pem": "s3cret", "ssl.key.location": "/k"}, "ssl.key.pem: must not be given beside"),
        ({**SSL, "ssl.certificate.location": "/c"}, "ssl.certificate.location: goes with ssl.key.location, or"),
        ({**SSL, "ssl.key.location": "/k"}, "ssl.key.location: goes with ssl.certificate.location, or"),
    ],
)
def test_what_cannot_be_used_is_refused_by_its_key(given: dict[str, str], message: str) -> None:
    found = refused(given)
    assert message in found
    assert "s3cret" not in found


def test_secrets_are_those_of_the_brokers_table_and_librdkafkas() -> None:
    known = {key for key in KEYS if key in BROKER_KEYS and BROKER_KEYS[key].is_sensitive}
    assert known <= SECRET_KEYS
    assert SECRET_KEYS - known == {
        "ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem", "sasl.password", "sasl.oauthbearer.client.secret",
    }  # fmt: skip


def test_no_secret_is_in_the_text_of_the_settings() -> None:
    secrets = {key: f"s3cret-{key}" for key in SECRET_KEYS if "pem" not in key and "password" not in key}
    types = {"ssl.truststore.type": "PEM", "ssl.keystore.type": "PEM", "ssl.key.password": "s3cret"}
    assert "s3cret" not in repr(client_security({**SSL, **types, **secrets}))
    others = {"ssl.ca.pem": "s3cret", "ssl.certificate.pem": "s3cret", "ssl.key.pem": "s3cret"}
    assert "s3cret" not in repr(client_security({**SSL, **others}))


def test_a_key_in_a_file_of_its_own_is_read_with_its_certificate(tmp_path: Path) -> None:
    issued = Authority().issue(subject="client")
    (tmp_path / "c.pem").write_text(issued.chain_pem)
    (tmp_path / "k.pem").write_text(issued.key_pem("right"))
    given = {"ssl_certificate_location": str(tmp_path / "c.pem"), "ssl_key_location": str(tmp_path / "k.pem")}
    loaded = load_client(tls(**given, ssl_key_password="right"), time.time())
    assert loaded.certificate is not None and loaded.certificate.subject == "CN=client"
    with pytest.raises(TlsError, match=rf"^ssl.key.location: {tmp_path}/k.pem: ssl.key.password does not decrypt"):
        load_client(tls(**given, ssl_key_password="wrong"), time.time())
    (tmp_path / "k.pem").unlink()
    with pytest.raises(TlsError, match=rf"^ssl.key.location: {tmp_path}/k.pem: No such file"):
        load_client(tls(**given), time.time())


def test_certificates_in_values_of_librdkafka_are_used() -> None:
    authority = Authority()
    issued = authority.issue(subject="client")
    given = {
        "ssl.ca.pem": authority.trust_pem,
        "ssl.certificate.pem": issued.chain_pem,
        "ssl.key.pem": issued.key_pem(),
    }
    settings = client_security({**SSL, **given}).tls
    assert settings is not None
    loaded = load_client(settings, time.time())
    assert loaded.certificate is not None and len(loaded.authorities) == 1


def test_pkcs12_behind_a_key_of_librdkafka_for_pem_names_the_other_key(tmp_path: Path) -> None:
    (tmp_path / "ca.p12").write_bytes(Authority().issue(subject="x").pkcs12("p"))
    with pytest.raises(TlsError, match=r"a file of PKCS#12 is named by ssl.truststore.location"):
        load_client(tls(ssl_ca_location=str(tmp_path / "ca.p12")), time.time())


def test_without_verification_whoever_answers_is_trusted() -> None:
    context = load_client(tls(enable_ssl_certificate_verification="false"), time.time()).context
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)


def test_a_failed_handshake_says_what_to_do() -> None:
    wants_certificate = ssl.SSLError(1, "x")
    wants_certificate.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    assert "name a key store" in told_to_user(wants_certificate)
    assert "security.protocol=PLAINTEXT" in told_to_user(ConnectionResetError())
    assert told_to_user(TimeoutError()) == "it is not complete in time"

"""The `ssl.*` keys of a listener: what they mean, and which do not fit together."""

from __future__ import annotations

import pytest

from ottla_broker.config import BrokerConfig
from ottla_broker.config.tls import tls_settings
from ottla_broker.config.types import ConfigError
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.security.cipher_suites import TLS_1_3
from ottla_broker.security.tls_settings import CertificateStore, ClientAuth

LISTENERS = {
    "listeners": "SSL://:9093,PLAINTEXT://:9092",
    "advertised.listeners": "SSL://b.example:9093,PLAINTEXT://b.example:9092",
}
KEY = {"ssl.keystore.location": "/keys.pem"}
OWN = "listener.name.ssl."


def of(values: dict[str, str]) -> BrokerConfig:
    return BrokerConfig.from_mapping({**LISTENERS, **values})


def test_the_defaults_are_kafkas() -> None:
    found = tls_settings(of(KEY), "SSL")
    assert (found.protocols, found.cipher_suites) == (("TLSv1.2", "TLSv1.3"), ())
    assert (found.client_auth, found.verifies_names, found.uses_kernel) == (ClientAuth.NONE, True, True)
    assert (found.key_store, found.trust_store) == (CertificateStore("ssl.keystore.location", "/keys.pem"), None)


def test_a_key_of_the_listener_wins() -> None:
    found = tls_settings(
        of(
            {
                **KEY,
                f"{OWN}ssl.keystore.location": "/own.p12",
                f"{OWN}ssl.keystore.password": "p",
                "ssl.keystore.password": "q",
                "ssl.key.password": "k",
                "ssl.enabled.protocols": "TLSv1.2",
                f"{OWN}ssl.enabled.protocols": "TLSv1.3",
                f"{OWN}ssl.endpoint.identification.algorithm": "",
                "ottla.ssl.ktls": "off",
            }
        ),
        "SSL",
    )
    assert found.key_store == CertificateStore(
        f"{OWN}ssl.keystore.location", "/own.p12", password="p", key_password="k"
    )
    assert (found.protocols, found.verifies_names, found.uses_kernel) == (("TLSv1.3",), False, False)


def test_stores_in_values() -> None:
    found = tls_settings(
        of(
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": "KEY",
                "ssl.keystore.certificate.chain": "CHAIN",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": "TRUST",
                "ssl.client.auth": "required",
            }
        ),
        "SSL",
    )
    assert found.key_store == CertificateStore(
        "ssl.keystore.certificate.chain", certificates="CHAIN", private_key="KEY"
    )
    assert found.trust_store == CertificateStore("ssl.truststore.certificates", certificates="TRUST")
    assert "KEY" not in repr(found) and "CHAIN" not in repr(found)


@pytest.mark.parametrize(
    ("values", "key", "allowed"),
    [
        ({}, "ssl.keystore.location", "a listener with TLS needs a key and a certificate"),
        ({"ssl.keystore.key": "K"}, "ssl.keystore.type", "PEM, since ssl.keystore.key is given"),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.key": "K"},
            "ssl.keystore.key",
            "ssl.keystore.key and ssl.keystore.certificate.chain together",
        ),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": "C"},
            "ssl.keystore.certificate.chain",
            "together",
        ),
        (
            {**KEY, "ssl.keystore.type": "PEM", "ssl.keystore.key": "K", "ssl.keystore.certificate.chain": "C"},
            "ssl.keystore.key",
            "only one of it and ssl.keystore.location",
        ),
        (
            {**KEY, "ssl.keystore.type": "PEM", "ssl.keystore.password": "P"},
            "ssl.keystore.password",
            "ssl.key.password is that of a key",
        ),
        ({**KEY, "ssl.keystore.type": "BKS"}, "ssl.keystore.type", "of JKS, PKCS12, PEM"),
        ({**KEY, "ssl.truststore.certificates": "T"}, "ssl.truststore.type", "PEM, since"),
        (
            {**KEY, "ssl.truststore.type": "PEM", "ssl.truststore.certificates": "T", "ssl.truststore.location": "/t"},
            "ssl.truststore.certificates",
            "only one of it and ssl.truststore.location",
        ),
        (
            {**KEY, "ssl.client.auth": "required"},
            "ssl.truststore.location",
            "ssl.client.auth=required needs the authorities of clients",
        ),
        (
            {**KEY, f"{OWN}ssl.client.auth": "requested"},
            "ssl.truststore.location",
            "ssl.client.auth=requested needs",
        ),
        ({**KEY, "ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "ssl.enabled.protocols", "older versions are not secure"),
        ({**KEY, f"{OWN}ssl.enabled.protocols": ""}, f"{OWN}ssl.enabled.protocols", "at least one of"),
        ({**KEY, "ssl.cipher.suites": "TLS_RSA_WITH_RC4_128_MD5"}, "ssl.cipher.suites", "is none of them"),
        ({**KEY, "ssl.cipher.suites": TLS_1_3[0]}, "ssl.cipher.suites", "all suites of TLSv1.3 or none"),
        (
            {**KEY, "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ssl.enabled.protocols": "TLSv1.3"},
            "ssl.cipher.suites",
            "a suite of TLSv1.3, or TLSv1.2 in ssl.enabled.protocols",
        ),
        (
            {**KEY, "ssl.endpoint.identification.algorithm": "ldaps"},
            "ssl.endpoint.identification.algorithm",
            "https, or nothing",
        ),
    ],
)
def test_what_does_not_fit_is_refused_at_the_start_by_its_key(values: dict[str, str], key: str, allowed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        of(values)
    assert caught.value.key == key
    assert allowed in str(caught.value)
    for secret in ("'K'", "'P'", "'C'"):
        assert secret not in str(caught.value)


def test_keys_of_listeners_without_tls_do_not_matter() -> None:
    BrokerConfig.from_mapping({"listeners": "PLAINTEXT://b.example:9092", "ssl.client.auth": "required"})


def test_a_change_while_the_broker_runs_obeys_the_same_rules() -> None:
    running = of(KEY)
    with pytest.raises(KafkaError, match=r"ssl\.client\.auth=required needs the authorities of clients"):
        running.check_update({}, {f"{OWN}ssl.client.auth": "required"}, cluster_wide=False)
    running.check_update({}, {f"{OWN}ssl.keystore.location": "/other.pem"}, cluster_wide=False)
    assert running.apply_dynamic({f"{OWN}ssl.client.auth": "required"}, {})
    assert tls_settings(running, "SSL").client_auth is ClientAuth.NONE

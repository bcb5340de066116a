"""TLS of a client: what the `ssl.*` keys of Java's clients and of librdkafka say together. Pure: no store is read here.

Source: org.apache.kafka.common.config.SslConfigs; librdkafka, CONFIGURATION.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

from ottla_broker.security.cipher_suites import TLS_1_2
from ottla_broker.security.ssl_keys import PROTOCOLS, ssl_settings
from ottla_broker.security.tls_settings import CertificateStore, TlsError, TlsSettings

_LISTS = {"ssl.enabled.protocols": list(PROTOCOLS), "ssl.cipher.suites": []}
_DEFAULTS = {
    "ssl.truststore.type": "JKS",
    "ssl.keystore.type": "JKS",
    "ssl.endpoint.identification.algorithm": "https",
}
_NAMES_OF_IANA = {name: iana for iana, name in TLS_1_2.items()}


def client_tls(given: Mapping[str, str]) -> TlsSettings:
    """What the keys say. Raises TlsError: a value cannot be used, or keys do not fit together."""
    protocol = given.get("ssl.protocol", "TLS")
    if protocol not in ("TLS", *PROTOCOLS):
        raise TlsError("ssl.protocol", "", f"must be TLS or of {', '.join(PROTOCOLS)}, not {protocol!r}")
    settings = ssl_settings(_Given(given))
    trust, keys = _authorities(given), _own_certificate(given)
    _refuse_two(given, settings.trust_store, trust)
    _refuse_two(given, settings.key_store, keys)
    verifies = given.get("enable.ssl.certificate.verification", "true").strip().lower()
    if verifies not in ("true", "false"):
        raise TlsError("enable.ssl.certificate.verification", "", f"must be true or false, not {verifies!r}")
    return replace(
        settings,
        trust_store=settings.trust_store or trust,
        key_store=settings.key_store or keys,
        verifies_certificates=verifies == "true",
    )


class _Given:
    """See `ssl_keys.SslKeys`."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def name(self, key: str) -> str:
        return key

    def value(self, key: str) -> Any:
        text = self._given.get(key)
        if key in _LISTS:
            return _LISTS[key] if text is None or not text.strip() else _names(text)
        if key == "ssl.endpoint.identification.algorithm" and text is not None and text.strip().lower() == "none":
            return ""
        return _DEFAULTS.get(key) if text is None else text

    def refuse(self, key: str, allowed: str) -> NoReturn:
        raise TlsError(key, "", f"must be {allowed}")


def _names(text: str) -> list[str]:
    """The names of protocols or suites: Java's commas or OpenSSL's colons, IANA's names or OpenSSL's.

    >>> _names("ECDHE-RSA-AES128-GCM-SHA256:TLS_AES_128_GCM_SHA256")
    ['TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256', 'TLS_AES_128_GCM_SHA256']
    """
    names = (name.strip() for name in re.split("[,:]", text))
    return [_NAMES_OF_IANA.get(name, name) for name in names if name]


def _refuse_two(given: Mapping[str, str], java: CertificateStore | None, other: CertificateStore | None) -> None:
    if java is not None and other is not None:
        raise TlsError(other.key, "", f"must not be given beside {java.key}, which means the same")


def _authorities(given: Mapping[str, str]) -> CertificateStore | None:
    """What librdkafka's keys say is trusted; None for the authorities of the system."""
    location, pem = given.get("ssl.ca.location"), given.get("ssl.ca.pem")
    if location and pem:
        raise TlsError("ssl.ca.pem", "", "must not be given beside ssl.ca.location")
    if pem:
        return CertificateStore("ssl.ca.pem", certificates=pem)
    return CertificateStore("ssl.ca.location", location) if location and location != "probe" else None


def _own_certificate(given: Mapping[str, str]) -> CertificateStore | None:
    """What librdkafka's keys say that the client shows."""
    certificate, key = _one_of(given, "ssl.certificate"), _one_of(given, "ssl.key")
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        has, lacks = ("ssl.key", "ssl.certificate") if certificate is None else ("ssl.certificate", "ssl.key")
        raise TlsError(f"{has}.location", "", f"goes with {lacks}.location, or {lacks}.pem")
    return CertificateStore(
        certificate,
        given.get("ssl.certificate.location", ""),
        certificates=given.get("ssl.certificate.pem", ""),
        private_key=given.get("ssl.key.pem", ""),
        key_location=given.get("ssl.key.location", ""),
        key_password=given.get("ssl.key.password"),
    )


def _one_of(given: Mapping[str, str], what: str) -> str | None:
    """The key of the two forms that is given."""
    found = [key for key in (f"{what}.location", f"{what}.pem") if given.get(key)]
    if len(found) > 1:
        raise TlsError(found[1], "", f"must not be given beside {found[0]}")
    return found[0] if found else None

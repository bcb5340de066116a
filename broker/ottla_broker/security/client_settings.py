"""How a client reaches brokers: `security.protocol`, `ssl.*` and `sasl.*` as its user writes them.

Pure: no store is read here. Keys are those of Java's clients or of librdkafka. Both have ssl.keystore.location,
ssl.keystore.password, ssl.key.password and ssl.endpoint.identification.algorithm; a store is named in one spelling, not
in both.

The login is a line of sasl.jaas.config (Java), or sasl.username and sasl.password (librdkafka).

Source: org.apache.kafka.common.config.SslConfigs and SaslConfigs; librdkafka, CONFIGURATION.md.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from ottla_broker.security.cipher_suites import TLS_1_2
from ottla_broker.security.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE, JaasError, check_module, parse_jaas
from ottla_broker.security.sasl.login import SaslLogin
from ottla_broker.security.sasl.mechanism import MECHANISMS
from ottla_broker.security.sasl.mechanism import PLAIN as PLAIN_MECHANISM
from ottla_broker.security.ssl_keys import PROTOCOLS, ssl_settings
from ottla_broker.security.tls_settings import CertificateStore, TlsError, TlsSettings

PROTOCOL = "security.protocol"
_BOTH = (
    "ssl.keystore.location", "ssl.keystore.password", "ssl.key.password", "ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm",
)  # fmt: skip
_OF_JAVA = (
    "ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.password", "ssl.truststore.certificates",
    "ssl.keystore.type", "ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.enabled.protocols", "ssl.protocol",
)  # fmt: skip
_OF_LIBRDKAFKA = (
    "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location",
    "ssl.key.pem", "enable.ssl.certificate.verification",
)  # fmt: skip
_SASL_MECHANISMS = ("sasl.mechanism", "sasl.mechanisms")
JAAS_CONFIG = "sasl.jaas.config"
PASSWORD = "sasl.password"
_SASL = (*_SASL_MECHANISMS, JAAS_CONFIG, "sasl.username", PASSWORD)
_WITHOUT_EFFECT = (
    "security.providers", "ssl.keymanager.algorithm", "ssl.provider", "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
)  # fmt: skip
"""They choose among what only a JVM has."""
_REFUSED = {
    "ssl.engine.factory.class": "it names a Java class",
    "ssl.crl.location": "put the list of revoked certificates into the file of ssl.ca.location, in PEM",
    "ssl.curves.list": "OpenSSL's default is used",
    "ssl.sigalgs.list": "OpenSSL's default is used",
    "ssl.engine.location": "no engine of OpenSSL is loaded",
    "ssl.engine.id": "no engine of OpenSSL is loaded",
    "ssl.providers": "no provider of OpenSSL is loaded",
    "ssl.ca.certificate.stores": "there is none outside Windows; without ssl.ca.location the system's are trusted",
}
KEYS: tuple[str, ...] = (PROTOCOL, *_BOTH, *_OF_JAVA, *_OF_LIBRDKAFKA, *_SASL, *_WITHOUT_EFFECT)
"""Those that may be given."""
SECRET_KEYS = frozenset(
    {
        "ssl.truststore.password", "ssl.truststore.certificates", "ssl.keystore.password", "ssl.keystore.key",
        "ssl.keystore.certificate.chain", "ssl.key.password", "ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem",
        JAAS_CONFIG, PASSWORD,
    }
)  # fmt: skip
"""Those whose values are never shown: Kafka's keys of type password, and librdkafka's that mean the same."""
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_OTHER_SASL = (
    "sasl.client.callback.", "sasl.kerberos.", "sasl.login.", "sasl.oauthbearer.", "enable.sasl.oauthbearer.",
)  # fmt: skip
_FAMILIES = ("security.", "ssl.", "sasl.", "enable.ssl.", "enable.sasl.")
_LISTS = {"ssl.enabled.protocols": list(PROTOCOLS), "ssl.cipher.suites": []}
_DEFAULTS = {
    "ssl.truststore.type": "JKS",
    "ssl.keystore.type": "JKS",
    "ssl.endpoint.identification.algorithm": "https",
}
_NAMES_OF_IANA = {name: iana for iana, name in TLS_1_2.items()}


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """How connections to brokers are secured.

    Args:
        tls: None for bytes as they are.
        login: None without SASL.
    """

    tls: TlsSettings | None = None
    login: SaslLogin | None = None


PLAIN = ClientSecurity()


def is_security_key(key: str) -> bool:
    """Whether a key says how connections are secured, known or not."""
    return key.startswith(_FAMILIES)


def check_key(key: str) -> None:
    """Raises TlsError for a key of `is_security_key` that cannot be given."""
    if key in KEYS:
        return
    if key in _REFUSED:
        raise TlsError(key, "", f"is not served: {_REFUSED[key]}")
    if "sasl." in key and key.startswith(_OTHER_SASL):
        raise TlsError(key, "", f"is not served: the mechanisms are {', '.join(MECHANISMS)}")
    raise TlsError(key, "", f"is unknown{nearest(key, KEYS)}")


def nearest(key: str, known: Collection[str]) -> str:
    """The end of a message about an unknown key.

    >>> nearest("ssl.truststore.locaton", KEYS)
    '; did you mean ssl.truststore.location?'
    """
    near = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def client_security(given: Mapping[str, str]) -> ClientSecurity:
    """What the keys of `is_security_key` say.

    Raises:
        TlsError: a key is unknown or not served, its value cannot be used, or keys do not fit together.
    """
    for key in given:
        check_key(key)
    protocol = given.get(PROTOCOL, "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        raise TlsError(PROTOCOL, "", f"must be of {', '.join(_PROTOCOLS)}, not {given[PROTOCOL]!r}")
    if PROTOCOL not in given and given:
        needed = "SASL_SSL" if any(key in _SASL for key in given) else "SSL"
        raise TlsError(PROTOCOL, "", f"is not given, so {next(iter(given))} would have no effect: set {needed}")
    tls = _tls(given)
    has_login = protocol.startswith("SASL_")
    return ClientSecurity(tls if protocol.endswith("SSL") else None, _login(given) if has_login else None)


def _login(given: Mapping[str, str]) -> SaslLogin:
    mechanism = _mechanism(given)
    jaas, user, password = (given.get(key, "") for key in (JAAS_CONFIG, "sasl.username", "sasl.password"))
    if jaas:
        for key in ("sasl.username", "sasl.password"):
            if key in given:
                raise TlsError(key, "", f"must not be given beside {JAAS_CONFIG}, which means the same")
        try:
            entry = parse_jaas(jaas)
            check_module(entry, PLAIN_MODULE if mechanism == PLAIN_MECHANISM else SCRAM_MODULE, mechanism)
        except JaasError as error:
            raise TlsError(JAAS_CONFIG, "", str(error)) from None
        if entry.options.get("tokenauth", "false").lower() == "true":
            raise TlsError(JAAS_CONFIG, "", "tokenauth: a delegation token is not taken here, log in as a user")
        user, password = entry.options.get("username", ""), entry.options.get("password", "")
    for name, value in (("username", user), ("password", password)):
        if not value:
            key = JAAS_CONFIG if jaas else f"sasl.{name}"
            raise TlsError(key, "", f"has no {name}" if jaas else f"is not given, nor {JAAS_CONFIG}")
    return SaslLogin(mechanism, user, password)


def _mechanism(given: Mapping[str, str]) -> str:
    found = [key for key in _SASL_MECHANISMS if given.get(key)]
    if not found:
        raise TlsError("sasl.mechanism", "", f"is not given: of {', '.join(MECHANISMS)}")
    if len(found) > 1:
        raise TlsError(found[1], "", f"must not be given beside {found[0]}, which means the same")
    mechanism = given[found[0]].strip().upper()
    if mechanism not in MECHANISMS:
        raise TlsError(found[0], "", f"must be of {', '.join(MECHANISMS)}, not {given[found[0]]!r}")
    return mechanism


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


def _tls(given: Mapping[str, str]) -> TlsSettings:
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

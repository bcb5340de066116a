"""How a client reaches brokers: `security.protocol`, `ssl.*` and `sasl.*` as its user writes them.

Pure: no store is read here. Keys are those of Java's clients or of librdkafka. Both have ssl.keystore.location,
ssl.keystore.password, ssl.key.password and ssl.endpoint.identification.algorithm; a store is named in one spelling, not
in both.

Not here: what the keys of TLS say (`client_tls`), and those of a login (`client_login`).
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ottla_broker.security.client_login import LOGIN_KEYS, SECRET_LOGIN_KEYS, client_login
from ottla_broker.security.client_tls import client_tls
from ottla_broker.security.oauth.logins import TokenLogin
from ottla_broker.security.sasl.login import SaslLogin
from ottla_broker.security.sasl.mechanism import MECHANISMS
from ottla_broker.security.tls_settings import TlsError, TlsSettings

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
KEYS: tuple[str, ...] = (PROTOCOL, *_BOTH, *_OF_JAVA, *_OF_LIBRDKAFKA, *LOGIN_KEYS, *_WITHOUT_EFFECT)
"""Those that may be given."""
SECRET_KEYS = frozenset(
    {
        "ssl.truststore.password", "ssl.truststore.certificates", "ssl.keystore.password", "ssl.keystore.key",
        "ssl.keystore.certificate.chain", "ssl.key.password", "ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem",
        *SECRET_LOGIN_KEYS,
    }
)  # fmt: skip
"""Those whose values are never shown: Kafka's keys of type password, and librdkafka's that mean the same."""
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_OTHER_SASL = (
    "sasl.client.callback.", "sasl.kerberos.", "sasl.login.",
)  # fmt: skip
_FAMILIES = ("security.", "ssl.", "sasl.", "enable.ssl.", "enable.sasl.")


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """How connections to brokers are secured.

    Args:
        tls: None for bytes as they are.
        login: None without SASL.
    """

    tls: TlsSettings | None = None
    login: SaslLogin | TokenLogin | None = None


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
        needed = "SASL_SSL" if any(key in LOGIN_KEYS for key in given) else "SSL"
        raise TlsError(PROTOCOL, "", f"is not given, so {next(iter(given))} would have no effect: set {needed}")
    tls = client_tls(given)
    has_login = protocol.startswith("SASL_")
    return ClientSecurity(tls if protocol.endswith("SSL") else None, client_login(given) if has_login else None)

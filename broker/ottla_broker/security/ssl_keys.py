"""What the `ssl.*` keys that brokers and clients share mean, and which do not fit together. Pure: no store is read.

Where a value stands is the caller's: in the table of a broker's configuration, in the options of a reader, in a file of
properties.

Source: org.apache.kafka.common.security.ssl.DefaultSslEngineFactory.
"""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

from ottla_broker.security.cipher_suites import why_refused
from ottla_broker.security.tls_settings import CertificateStore, ClientAuth, TlsSettings

PROTOCOLS = ("TLSv1.2", "TLSv1.3")
STORE_TYPES = ("JKS", "PKCS12", "PEM")


class SslKeys(Protocol):
    """The keys of one listener, or of one client."""

    def name(self, key: str) -> str:
        """The key as it is written, with the prefix of a listener where it has one."""
        ...

    def value(self, key: str) -> Any:
        """What it says, or its default: text, a list for ssl.enabled.protocols and ssl.cipher.suites, None."""
        ...

    def refuse(self, key: str, allowed: str) -> NoReturn:
        """Raises what the caller raises for a value that cannot be used."""
        ...


def ssl_settings(keys: SslKeys, *, client_auth: ClientAuth = ClientAuth.NONE, uses_kernel: bool = False) -> TlsSettings:
    """The settings that the keys give. Raises what `keys.refuse` raises."""
    protocols = keys.value("ssl.enabled.protocols")
    for name in protocols:
        if name not in PROTOCOLS:
            keys.refuse("ssl.enabled.protocols", f"of {', '.join(PROTOCOLS)}: older versions are not secure")
    if not protocols:
        keys.refuse("ssl.enabled.protocols", f"at least one of {', '.join(PROTOCOLS)}")
    suites = keys.value("ssl.cipher.suites")
    if reason := why_refused(suites, protocols):
        keys.refuse("ssl.cipher.suites", reason)
    key_store, trust_store = _key_store(keys), _trust_store(keys)
    algorithm = (keys.value("ssl.endpoint.identification.algorithm") or "").lower()
    if algorithm not in ("", "https"):
        keys.refuse("ssl.endpoint.identification.algorithm", "https, or nothing for no check of host names")
    return TlsSettings(
        protocols=tuple(protocols),
        cipher_suites=tuple(suites),
        client_auth=client_auth,
        verifies_names=bool(algorithm),
        key_store=key_store,
        trust_store=trust_store,
        uses_kernel=uses_kernel,
    )


def _key_store(keys: SslKeys) -> CertificateStore | None:
    location, key, chain = (keys.value(f"ssl.keystore.{part}") for part in ("location", "key", "certificate.chain"))
    is_pem = _is_pem(keys, "ssl.keystore.type")
    if key or chain:
        given = "ssl.keystore.key" if key else "ssl.keystore.certificate.chain"
        if not is_pem:
            keys.refuse("ssl.keystore.type", f"PEM, since {given} is given")
        if location:
            keys.refuse(given, "only one of it and ssl.keystore.location")
        if not key or not chain:
            keys.refuse(given, "ssl.keystore.key and ssl.keystore.certificate.chain together")
        return CertificateStore(
            keys.name("ssl.keystore.certificate.chain"),
            certificates=chain,
            private_key=key,
            key_password=keys.value("ssl.key.password"),
        )
    if not location:
        return None
    password = keys.value("ssl.keystore.password")
    if is_pem and password:
        keys.refuse("ssl.keystore.password", "nothing with ssl.keystore.type=PEM: ssl.key.password is that of a key")
    return CertificateStore(
        keys.name("ssl.keystore.location"), location, password=password, key_password=keys.value("ssl.key.password")
    )


def _trust_store(keys: SslKeys) -> CertificateStore | None:
    location, certificates = keys.value("ssl.truststore.location"), keys.value("ssl.truststore.certificates")
    is_pem = _is_pem(keys, "ssl.truststore.type")
    if certificates:
        if not is_pem:
            keys.refuse("ssl.truststore.type", "PEM, since ssl.truststore.certificates is given")
        if location:
            keys.refuse("ssl.truststore.certificates", "only one of it and ssl.truststore.location")
        return CertificateStore(keys.name("ssl.truststore.certificates"), certificates=certificates)
    if not location:
        return None
    password = keys.value("ssl.truststore.password")
    if is_pem and password:
        keys.refuse("ssl.truststore.password", "nothing with ssl.truststore.type=PEM")
    return CertificateStore(keys.name("ssl.truststore.location"), location, password=password)


def _is_pem(keys: SslKeys, key: str) -> bool:
    kind = str(keys.value(key)).upper()
    if kind not in STORE_TYPES:
        keys.refuse(key, f"of {', '.join(STORE_TYPES)}")
    return kind == "PEM"

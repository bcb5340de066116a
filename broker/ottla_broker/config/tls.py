"""The `ssl.*` keys of one listener and `zookeeper.ssl.*`, with Kafka's rules about them. Pure: no store is read here.

A key with the prefix `listener.name.NAME.` wins over the one without (KIP-103).

Source: org.apache.kafka.common.security.ssl.DefaultSslEngineFactory.
"""

from __future__ import annotations

from typing import Any

from ottla_broker.config.broker_values import BrokerValues
from ottla_broker.config.definitions import BROKER_KEYS
from ottla_broker.config.listeners import Listeners
from ottla_broker.config.types import ConfigError
from ottla_broker.security.cipher_suites import why_refused
from ottla_broker.security.principals import PrincipalMapping
from ottla_broker.security.tls_settings import CertificateStore, ClientAuth, TlsSettings

TLS_PROTOCOLS = ("SSL", "SASL_SSL")
_PROTOCOLS = ("TLSv1.2", "TLSv1.3")
_STORE_TYPES = ("JKS", "PKCS12", "PEM")


def check_tls(values: BrokerValues, listeners: Listeners) -> None:
    """ConfigError for the first listener with TLS whose keys do not fit together, or the session with ZooKeeper."""
    zookeeper_tls_settings(values)
    try:
        PrincipalMapping(values.ssl_principal_mapping_rules)
    except ValueError as error:
        raise ConfigError("ssl.principal.mapping.rules", values.ssl_principal_mapping_rules, str(error)) from None
    for endpoint in listeners.bound:
        if endpoint.security_protocol in TLS_PROTOCOLS:
            tls_settings(values, endpoint.listener)


def tls_settings(values: BrokerValues, listener: str) -> TlsSettings:
    """Of a listener by name, for connections to it from both sides.

    Raises:
        ConfigError: a value is not served, or keys do not fit together.
    """
    keys = _Keys(values, listener)
    protocols = keys.value("ssl.enabled.protocols")
    for name in protocols:
        if name not in _PROTOCOLS:
            keys.refuse("ssl.enabled.protocols", f"of {', '.join(_PROTOCOLS)}: older versions are not secure")
    if not protocols:
        keys.refuse("ssl.enabled.protocols", f"at least one of {', '.join(_PROTOCOLS)}")
    suites = keys.value("ssl.cipher.suites")
    reason = why_refused(suites, protocols)
    if reason:
        keys.refuse("ssl.cipher.suites", reason)
    key_store, trust_store = _key_store(keys), _trust_store(keys)
    if key_store is None:
        keys.refuse("ssl.keystore.location", "a listener with TLS needs a key and a certificate: name their store")
    client_auth = ClientAuth(keys.value("ssl.client.auth"))
    if client_auth is not ClientAuth.NONE and trust_store is None:
        keys.refuse("ssl.truststore.location", f"ssl.client.auth={client_auth} needs the authorities of clients")
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
        uses_kernel=values.ottla_ssl_ktls == "auto",
    )


def zookeeper_tls_settings(values: BrokerValues) -> TlsSettings | None:
    """Of the session with ZooKeeper; None without TLS.

    Source: org.apache.zookeeper.common.X509Util and ClientX509Util, whose keys these are without their prefix.

    Raises:
        ConfigError: as `tls_settings`.
    """
    if not values.by_name["zookeeper.ssl.client.enable"]:
        return None

    def refuse(key: str, allowed: str) -> None:
        raise ConfigError(key, values.by_name[key], allowed)

    protocol = values.by_name["zookeeper.ssl.protocol"]
    protocols = values.by_name["zookeeper.ssl.enabled.protocols"]
    key = "zookeeper.ssl.protocol" if protocols is None else "zookeeper.ssl.enabled.protocols"
    protocols = protocols or (_PROTOCOLS if protocol == "TLS" else (protocol,))
    if any(name not in _PROTOCOLS for name in protocols):
        refuse(key, f"of {', '.join(_PROTOCOLS)}: older versions are not secure")
    suites = values.by_name["zookeeper.ssl.cipher.suites"] or ()
    if reason := why_refused(suites, protocols):
        refuse("zookeeper.ssl.cipher.suites", reason)
    algorithm = (values.by_name["zookeeper.ssl.endpoint.identification.algorithm"] or "").lower()
    if algorithm not in ("", "https"):
        refuse("zookeeper.ssl.endpoint.identification.algorithm", "HTTPS, or nothing for no check of host names")
    return TlsSettings(
        protocols=tuple(protocols),
        cipher_suites=tuple(suites),
        client_auth=ClientAuth.NONE,
        verifies_names=bool(algorithm),
        key_store=_zookeeper_store(values, "keystore"),
        trust_store=_zookeeper_store(values, "truststore"),
        uses_kernel=False,
    )


def _zookeeper_store(values: BrokerValues, kind: str) -> CertificateStore | None:
    location, password, store_type = (
        values.by_name[f"zookeeper.ssl.{kind}.{part}"] for part in ("location", "password", "type")
    )
    if store_type is not None and store_type.upper() not in _STORE_TYPES:
        raise ConfigError(f"zookeeper.ssl.{kind}.type", store_type, f"of {', '.join(_STORE_TYPES)}")
    if not location:
        return None
    # ZooKeeper has one password, for the store or for the key in it.
    return CertificateStore(f"zookeeper.ssl.{kind}.location", location, password=password, key_password=password)


class _Keys:
    """The keys of one listener."""

    def __init__(self, values: BrokerValues, listener: str) -> None:
        self._values = values
        self._prefix = f"listener.name.{listener.lower()}."

    def name(self, key: str) -> str:
        """The key that is in force: with the prefix if that is given."""
        prefixed = self._prefix + key
        return prefixed if self._values.is_given(prefixed) else key

    def value(self, key: str) -> Any:
        name = self.name(key)
        if name == key:
            return self._values.by_name[key]
        text = self._values.original(name)
        return BROKER_KEYS[key].parse(text or "", name=name)

    def refuse(self, key: str, allowed: str) -> None:
        name = self.name(key)
        raise ConfigError(name, None if BROKER_KEYS[key].is_sensitive else self.value(key), allowed)


def _key_store(keys: _Keys) -> CertificateStore | None:
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


def _trust_store(keys: _Keys) -> CertificateStore | None:
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


def _is_pem(keys: _Keys, key: str) -> bool:
    kind = str(keys.value(key)).upper()
    if kind not in _STORE_TYPES:
        keys.refuse(key, f"of {', '.join(_STORE_TYPES)}")
    return kind == "PEM"

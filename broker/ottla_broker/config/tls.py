"""The `ssl.*` keys of one listener and `zookeeper.ssl.*`, with Kafka's rules about them. Pure: no store is read here.

A key with the prefix `listener.name.NAME.` wins over the one without (KIP-103).

Source: org.apache.kafka.common.security.ssl.DefaultSslEngineFactory.
"""

from __future__ import annotations

from ottla_broker.config.broker_values import BrokerValues
from ottla_broker.config.listener_keys import ListenerKeys
from ottla_broker.config.listeners import Listeners, security_protocol_of
from ottla_broker.config.types import ConfigError
from ottla_broker.security.cipher_suites import why_refused
from ottla_broker.security.principals import PrincipalMapping
from ottla_broker.security.ssl_keys import PROTOCOLS, STORE_TYPES, ssl_settings
from ottla_broker.security.tls_settings import CertificateStore, ClientAuth, TlsSettings

TLS_PROTOCOLS = ("SSL", "SASL_SSL")


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
    """The TLS keys of a listener by name, for connections to it from both sides.

    Raises:
        ConfigError: a value is not served, or keys do not fit together.
    """
    keys = ListenerKeys(values, listener)
    client_auth = ClientAuth(keys.value("ssl.client.auth"))
    if security_protocol_of(values.by_name, listener) == "SASL_SSL" and not keys.is_own("ssl.client.auth"):
        client_auth = ClientAuth.NONE  # as in Apache Kafka: with SASL only the listener's own key asks for certificates
    settings = ssl_settings(keys, client_auth=client_auth, uses_kernel=values.ottla_ssl_ktls == "auto")
    if settings.key_store is None:
        keys.refuse("ssl.keystore.location", "a listener with TLS needs a key and a certificate: name their store")
    if settings.client_auth is not ClientAuth.NONE and settings.trust_store is None:
        needs = f"ssl.client.auth={settings.client_auth} needs the authorities of clients"
        keys.refuse("ssl.truststore.location", needs)
    return settings


def zookeeper_tls_settings(values: BrokerValues) -> TlsSettings | None:
    """The TLS keys of the session with ZooKeeper; None without TLS.

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
    protocols = protocols or (PROTOCOLS if protocol == "TLS" else (protocol,))
    if any(name not in PROTOCOLS for name in protocols):
        refuse(key, f"of {', '.join(PROTOCOLS)}: older versions are not secure")
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
    if store_type is not None and store_type.upper() not in STORE_TYPES:
        raise ConfigError(f"zookeeper.ssl.{kind}.type", store_type, f"of {', '.join(STORE_TYPES)}")
    if not location:
        return None
    # ZooKeeper has one password, for the store or for the key in it.
    return CertificateStore(f"zookeeper.ssl.{kind}.location", location, password=password, key_password=password)

"""The `sasl.*` keys of one listener, with Kafka's rules about them. Pure.

    sasl.enabled.mechanisms=SCRAM-SHA-512
    listener.name.x.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;

Each mechanism has a JAAS line of its own, for one listener: Apache Kafka reads no other from the configuration either.
That of the brokers' own listener has `username` and `password` as well, with which brokers log in to each other.

Source: org.apache.kafka.common.security.JaasContext.loadServerContext, SaslChannelBuilder, KafkaConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla_broker.config.broker_values import BrokerValues
from ottla_broker.config.kerberos_keys import kerberos_settings
from ottla_broker.config.listener_keys import ListenerKeys
from ottla_broker.config.listeners import Listeners
from ottla_broker.config.sasl_tokens import SERVED_CLASSES, broker_token, token_validation
from ottla_broker.config.types import ConfigError
from ottla_broker.security.kerberos_settings import KerberosSettings
from ottla_broker.security.oauth.logins import TokenLogin
from ottla_broker.security.oauth.validation import TokenValidation
from ottla_broker.security.sasl.jaas import JaasEntry, JaasError, check_module, module_of, parse_jaas
from ottla_broker.security.sasl.login import SaslLogin
from ottla_broker.security.sasl.mechanism import GSSAPI, MECHANISMS, OAUTHBEARER, OF_BROKERS, PLAIN
from ottla_broker.security.sasl.plain import passwords_of

SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
_SERVED = (*MECHANISMS, *OF_BROKERS)
_JAAS = "sasl.jaas.config"
_BETWEEN_BROKERS = "sasl.mechanism.inter.broker.protocol"
_CLASSES = (
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
)


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The SASL keys of one listener.

    Args:
        mechanisms: the enabled ones in order, each with its login module.
        max_reauth_ms: of each; 0 for sessions without an end.
        largest_bytes: of a frame before authentication.
        kerberos: None without GSSAPI.
        tokens: those that OAUTHBEARER takes; None without that mechanism.
    """

    mechanisms: Mapping[str, JaasEntry]
    max_reauth_ms: Mapping[str, int]
    largest_bytes: int
    kerberos: KerberosSettings | None = None
    tokens: TokenValidation | None = None

    @property
    def passwords(self) -> dict[str, str]:
        """The passwords of the users of PLAIN."""
        return passwords_of(self.mechanisms[PLAIN].options) if PLAIN in self.mechanisms else {}


def check_sasl(values: BrokerValues, listeners: Listeners) -> None:
    """ConfigError for the first SASL listener whose keys do not fit together."""
    for endpoint in listeners.bound:
        if endpoint.security_protocol in SASL_PROTOCOLS:
            sasl_settings(values, endpoint.listener)
            if endpoint.listener in (listeners.inter_broker, listeners.control_plane):
                own_login(values, endpoint.listener)


def sasl_settings(values: BrokerValues, listener: str) -> SaslSettings:
    """The SASL keys of a listener by name.

    Raises:
        ConfigError: no mechanism, one that is not served, or one without a JAAS line that fits it.
    """
    keys = ListenerKeys(values, listener)
    enabled: tuple[str, ...] = tuple(dict.fromkeys(keys.value("sasl.enabled.mechanisms")))
    if not enabled:
        keys.refuse("sasl.enabled.mechanisms", f"listener {listener} needs at least one of {', '.join(_SERVED)}")
    for mechanism in enabled:
        if mechanism not in _SERVED:
            keys.refuse("sasl.enabled.mechanisms", f"of {', '.join(_SERVED)}; {mechanism} is not served")
        _refuse_classes(values, keys, mechanism)
    entries = {mechanism: _entry(keys, mechanism) for mechanism in enabled}
    kerberos = entries.get(GSSAPI)
    return SaslSettings(
        entries,
        {mechanism: _max_reauth_ms(keys, mechanism) for mechanism in enabled},
        keys.value("sasl.server.max.receive.size"),
        None if kerberos is None else kerberos_settings(keys, keys.of_mechanism(GSSAPI, _JAAS), kerberos),
        token_validation(keys, entries[OAUTHBEARER]) if OAUTHBEARER in entries else None,
    )


def own_login(values: BrokerValues, listener: str) -> SaslLogin | KerberosSettings | TokenLogin:
    """How brokers log in to this listener of others, which has the keys that it has here.

    Raises:
        ConfigError: the listener does not have the mechanism, or its JAAS line no user and password, or nothing says
            where a token comes from.
    """
    mechanism = values.by_name[_BETWEEN_BROKERS]
    settings = sasl_settings(values, listener)
    entries = settings.mechanisms
    if mechanism not in entries:
        raise ConfigError(
            _BETWEEN_BROKERS,
            mechanism,
            f"a mechanism that listener {listener}, on which brokers reach each other, has: {', '.join(entries)}",
        )
    if mechanism == OAUTHBEARER:
        return broker_token(ListenerKeys(values, listener), entries[mechanism])
    options = entries[mechanism].options
    if mechanism == GSSAPI and settings.kerberos is not None:
        if not settings.kerberos.is_initiator:
            name = settings.kerberos.keytab.key
            raise ConfigError(name, None, "without isInitiator=false: brokers log in to each other with its keytab")
        return settings.kerberos
    for name in ("username", "password"):
        if not options.get(name):
            raise ConfigError(
                ListenerKeys(values, listener).of_mechanism(mechanism, _JAAS),
                None,
                f"with username and password: brokers log in to each other with them, and it has no {name}",
            )
    return SaslLogin(mechanism, options["username"], options["password"])


def _entry(keys: ListenerKeys, mechanism: str) -> JaasEntry:
    module = module_of(mechanism)
    name = keys.of_mechanism(mechanism, _JAAS)
    text = keys.value_of_mechanism(mechanism, _JAAS)
    if not text:
        raise ConfigError(name, None, f"{mechanism} is enabled and needs a JAAS line: {module} required ...;")
    try:
        entry = parse_jaas(text)
        check_module(entry, module, mechanism)
    except JaasError as error:
        raise ConfigError(name, None, str(error)) from None
    return entry


def _max_reauth_ms(keys: ListenerKeys, mechanism: str) -> int:
    key = "connections.max.reauth.ms"
    own = keys.value_of_mechanism(mechanism, key)
    return int(keys.value(key) if own is None else own)


def _refuse_classes(values: BrokerValues, keys: ListenerKeys, mechanism: str) -> None:
    """Who names a class of their own has users that would be unknown here, or more than are here."""
    for key in _CLASSES:
        own = keys.of_mechanism(mechanism, key)
        served = SERVED_CLASSES.get(key, ()) if mechanism == OAUTHBEARER else ()
        for name in (own, keys.name(key)):
            named = values.original(name)
            if named and not (name == own and named in served):
                allowed = f"{' or '.join(served)}, or leave it out: other" if served else "leave it out:"
                raise ConfigError(name, named, f"{allowed} Java classes cannot be loaded")

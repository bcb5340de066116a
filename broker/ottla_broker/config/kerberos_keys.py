"""The `sasl.kerberos.*` keys of one listener, with the JAAS line of GSSAPI. Pure: no keytab is read here.

    listener.name.x.gssapi.sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true
        storeKey=true keyTab="/etc/kafka.keytab" principal="kafka/broker.example@EXAMPLE";
    sasl.kerberos.service.name=kafka

Source: org.apache.kafka.common.security.kerberos.KerberosLogin, SaslChannelBuilder.
"""

from __future__ import annotations

from ottla_broker.config.listener_keys import ListenerKeys
from ottla_broker.config.types import ConfigError
from ottla_broker.security.kerberos_rules import KerberosRules
from ottla_broker.security.kerberos_settings import KerberosSettings, Renewal, is_true, keytab_of
from ottla_broker.security.sasl.jaas import JaasEntry

_SERVICE = "sasl.kerberos.service.name"
_RULES = "sasl.kerberos.principal.to.local.rules"


def kerberos_settings(keys: ListenerKeys, jaas_key: str, entry: JaasEntry) -> KerberosSettings:
    """The Kerberos keys of a listener with GSSAPI.

    Args:
        jaas_key: the name of the key that has the JAAS line.

    Raises:
        ConfigError: the line, the rules or the name of the service cannot be used.
    """
    try:
        keytab = keytab_of(jaas_key, entry.options)
    except ValueError as error:
        raise ConfigError(jaas_key, None, str(error)) from None
    try:
        rules = KerberosRules(keys.value(_RULES))
    except ValueError as error:
        keys.refuse(_RULES, str(error))
    return KerberosSettings(
        keytab,
        _service(keys, jaas_key, entry),
        rules,
        Renewal(
            keys.value("sasl.kerberos.ticket.renew.window.factor"),
            keys.value("sasl.kerberos.ticket.renew.jitter"),
            keys.value("sasl.kerberos.min.time.before.relogin") / 1000,
        ),
        is_true(entry.options, "isInitiator", "true"),
    )


def _service(keys: ListenerKeys, jaas_key: str, entry: JaasEntry) -> str:
    of_line, of_key = entry.options.get("serviceName"), keys.value(_SERVICE)
    if of_line and of_key and of_line != of_key:
        keys.refuse(_SERVICE, f"the serviceName of {jaas_key}, {of_line!r}, or none")
    service: str = of_line or of_key or ""
    if not service:
        keys.refuse(_SERVICE, "the first part of the principals of all brokers, such as kafka: GSSAPI needs it")
    return service

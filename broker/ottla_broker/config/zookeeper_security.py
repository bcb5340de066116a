"""Who the broker is towards ZooKeeper, and whether its znodes have ACLs: the keys about it, with Kafka's rules. Pure.

    ottla.zookeeper.sasl.jaas.config=org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" ...;
    zookeeper.set.acl=true

Apache Kafka has the login from the section Client of the file that the Java property java.security.auth.login.config
names. The commands read it from there into the key where the key is not given (`ottla.cli.java_login`).

Source: org.apache.kafka.common.security.JaasUtils.isZkSaslEnabled, kafka.server.KafkaServer.initZkClient.
"""

from __future__ import annotations

from typing import Final

from ottla_broker.config.broker_values import BrokerValues
from ottla_broker.config.types import ConfigError
from ottla_broker.security.sasl.digest_md5 import DIGEST_MD5
from ottla_broker.security.sasl.jaas import DIGEST_MODULE, KERBEROS_MODULE, JaasError, check_module, parse_jaas
from ottla_broker.security.sasl.login import SaslLogin

JAAS_KEY: Final = "ottla.zookeeper.sasl.jaas.config"
SET_ACL: Final = "zookeeper.set.acl"


def check_zookeeper_security(values: BrokerValues) -> None:
    """ConfigError when the login cannot be used, or ACLs are wanted and ZooKeeper would not know who the broker is."""
    login = zookeeper_login(values)
    if values.zookeeper_set_acl and login is None and not has_client_certificate(values):
        raise ConfigError(
            SET_ACL,
            "true",
            f"znodes belong to whom ZooKeeper knows: give {JAAS_KEY}, or zookeeper.ssl.client.enable and "
            "zookeeper.ssl.keystore.location, whose certificate ZooKeeper asks for",
        )


def zookeeper_login(values: BrokerValues) -> SaslLogin | None:
    """How the broker logs in to ZooKeeper; None when it does not. Raises ConfigError, as `login_of`."""
    text = values.by_name[JAAS_KEY]
    return login_of(text) if text else None


def login_of(text: str) -> SaslLogin:
    """The login of a JAAS line.

    Raises:
        ConfigError: the line is malformed, of another module, or without user or password.
    """
    try:
        entry = parse_jaas(text)
        if entry.module == KERBEROS_MODULE:
            raise JaasError(
                f"Kerberos (GSSAPI) towards ZooKeeper is not served, since its client speaks DIGEST-MD5 alone: give "
                f"{DIGEST_MODULE}, or a TLS client certificate (zookeeper.ssl.keystore.location)"
            )
        check_module(entry, DIGEST_MODULE, f"{DIGEST_MD5} towards ZooKeeper")
        for name in ("username", "password"):
            if not entry.options.get(name):
                raise JaasError(f"it has no {name}")
    except JaasError as error:
        raise ConfigError(JAAS_KEY, None, str(error)) from None
    return SaslLogin(DIGEST_MD5, entry.options["username"], entry.options["password"])


def has_client_certificate(values: BrokerValues) -> bool:
    """Whether the session with ZooKeeper has a certificate of the broker. Source: KafkaConfig.zkTlsClientAuthEnabled,
    without the name of a Java class."""
    return bool(values.by_name["zookeeper.ssl.client.enable"] and values.by_name["zookeeper.ssl.keystore.location"])

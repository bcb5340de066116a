"""The `sasl.*` keys of a listener: what they mean, and which do not fit together."""

from __future__ import annotations

import pytest

from ottla_broker.config import BrokerConfig
from ottla_broker.config.sasl import own_login, sasl_settings
from ottla_broker.config.tls import tls_settings
from ottla_broker.config.types import ConfigError
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.security.kerberos_settings import KerberosSettings, Keytab, Renewal
from ottla_broker.security.sasl.jaas import KERBEROS_MODULE, PLAIN_MODULE, SCRAM_MODULE
from ottla_broker.security.sasl.login import SaslLogin
from ottla_broker.security.tls_settings import ClientAuth

OWN = "listener.name.sasl_plaintext."
PLAIN_LINE = f'{PLAIN_MODULE} required username="b" password="hunter2" user_b="hunter2" user_alice="hunter3";'
SCRAM_LINE = f'{SCRAM_MODULE} required username="b" password="hunter2";'
LISTENERS = {
    "listeners": "SASL_PLAINTEXT://:9093",
    "advertised.listeners": "SASL_PLAINTEXT://b.example:9093",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    f"{OWN}plain.sasl.jaas.config": PLAIN_LINE,
}


def of(*without: str, **more: str) -> BrokerConfig:
    values = {name: value for name, value in LISTENERS.items() if name not in without}
    return BrokerConfig.from_mapping({**values, **more})


def test_each_mechanism_has_its_login_module_and_brokers_one_of_their_names() -> None:
    config = of(
        **{
            f"{OWN}sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
            f"{OWN}scram-sha-512.sasl.jaas.config": SCRAM_LINE,
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            f"{OWN}sasl.server.max.receive.size": "1000",
        }
    )
    found = sasl_settings(config, "SASL_PLAINTEXT")
    assert list(found.mechanisms) == ["SCRAM-SHA-512", "PLAIN"]
    assert found.passwords == {"b": "hunter2", "alice": "hunter3"}
    assert (found.largest_bytes, found.max_reauth_ms) == (1000, {"SCRAM-SHA-512": 0, "PLAIN": 0})
    login = own_login(config, "SASL_PLAINTEXT")
    assert isinstance(login, SaslLogin)
    assert (login.mechanism, login.username, login.password) == ("SCRAM-SHA-512", "b", "hunter2")


@pytest.mark.parametrize(
    ("more", "lifetime_ms"),
    [
        ({}, 0),
        ({"connections.max.reauth.ms": "5"}, 5),
        ({"connections.max.reauth.ms": "5", f"{OWN}connections.max.reauth.ms": "6"}, 6),
        ({f"{OWN}connections.max.reauth.ms": "6", f"{OWN}plain.connections.max.reauth.ms": "7"}, 7),
    ],
)
def test_the_longest_session_is_that_of_the_mechanism_the_listener_or_all(
    more: dict[str, str], lifetime_ms: int
) -> None:
    assert sasl_settings(of(**more), "SASL_PLAINTEXT").max_reauth_ms == {"PLAIN": lifetime_ms}


@pytest.mark.parametrize(
    ("without", "more", "key", "reason"),
    [
        (
            f"{OWN}plain.sasl.jaas.config",
            {},
            f"{OWN}plain.sasl.jaas.config",
            f"PLAIN is enabled and needs a JAAS line: {PLAIN_MODULE} required",
        ),
        ("", {f"{OWN}plain.sasl.jaas.config": ""}, f"{OWN}plain.sasl.jaas.config", "needs a JAAS line"),
        (
            f"{OWN}plain.sasl.jaas.config",
            {"sasl.jaas.config": PLAIN_LINE},
            f"{OWN}plain.sasl.jaas.config",
            "needs a JAAS line",
        ),
        (
            "sasl.enabled.mechanisms",
            {},
            f"{OWN}gssapi.sasl.jaas.config",
            f"GSSAPI is enabled and needs a JAAS line: {KERBEROS_MODULE} required",
        ),
        ("", {"sasl.enabled.mechanisms": ""}, "sasl.enabled.mechanisms", "listener SASL_PLAINTEXT needs at least one"),
        (
            "",
            {f"{OWN}sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER"},
            f"{OWN}oauthbearer.sasl.jaas.config",
            "OAUTHBEARER is enabled and needs a JAAS line",
        ),
        ("sasl.mechanism.inter.broker.protocol", {}, "sasl.mechanism.inter.broker.protocol", "has: PLAIN"),
        (
            "",
            {f"{OWN}plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_a="hunter2";'},
            f"{OWN}plain.sasl.jaas.config",
            "it has no username",
        ),
        ("", {f"{OWN}plain.sasl.jaas.config": SCRAM_LINE}, f"{OWN}plain.sasl.jaas.config", "ScramLoginModule cannot"),
        ("", {f"{OWN}plain.sasl.jaas.config": "hunter2"}, f"{OWN}plain.sasl.jaas.config", "behind the login module"),
        (
            "",
            {f"{OWN}plain.sasl.server.callback.handler.class": "org.example.Ldap"},
            f"{OWN}plain.sasl.server.callback.handler.class",
            "Java classes cannot be loaded",
        ),
    ],
)
def test_keys_that_do_not_fit_together_are_refused(without: str, more: dict[str, str], key: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        of(without, **more)
    assert caught.value.key == key
    assert "hunter" not in str(caught.value)


def test_with_sasl_a_certificate_is_asked_for_only_by_the_key_of_the_listener() -> None:
    """As in Apache Kafka."""
    keys = {
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_SSL",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "ssl.keystore.location": "/keys.pem",
        "ssl.truststore.location": "/trust.pem",
        "ssl.client.auth": "required",
    }
    without = "security.inter.broker.protocol"
    assert tls_settings(of(without, **keys), "SASL_PLAINTEXT").client_auth is ClientAuth.NONE
    own = {f"{OWN}ssl.client.auth": "required"}
    assert tls_settings(of(without, **keys, **own), "SASL_PLAINTEXT").client_auth is ClientAuth.REQUIRED


def test_passwords_are_shown_to_nobody() -> None:
    config = of(**{f"{OWN}plain.sasl.jaas.config": PLAIN_LINE})
    assert config.describe(f"{OWN}plain.sasl.jaas.config").value is None
    assert "hunter" not in repr(config.describe_all())
    assert "hunter" not in repr(sasl_settings(config, "SASL_PLAINTEXT"))


def test_a_password_changes_while_the_broker_runs() -> None:
    key = f"{OWN}plain.sasl.jaas.config"
    config = of(**{"password.encoder.secret": "s"})
    config.check_update({}, {key: PLAIN_LINE.replace("hunter3", "hunter4")}, cluster_wide=False)
    with pytest.raises(KafkaError, match="does not end with a semicolon") as caught:
        config.check_update({}, {key: PLAIN_LINE[:-1]}, cluster_wide=False)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert "hunter" not in str(caught.value)
    config.apply_dynamic({key: PLAIN_LINE.replace("hunter3", "hunter4")}, {})
    assert sasl_settings(config, "SASL_PLAINTEXT").passwords["alice"] == "hunter4"


# GSSAPI

KEYTAB = 'useKeyTab=true storeKey=true keyTab="/k" principal="kafka/b@EXAMPLE"'
KERBEROS_LINE = f"{KERBEROS_MODULE} required {KEYTAB};"
GSSAPI = {
    "sasl.enabled.mechanisms": "GSSAPI",
    "sasl.mechanism.inter.broker.protocol": "GSSAPI",
    f"{OWN}gssapi.sasl.jaas.config": KERBEROS_LINE,
    "sasl.kerberos.service.name": "kafka",
}


def test_a_listener_with_gssapi_has_a_keytab_rules_and_a_service() -> None:
    rules = "RULE:[1:$1@$0](.*@OTHER)s/@.*//, DEFAULT"
    found = own_login(of(**GSSAPI, **{f"{OWN}sasl.kerberos.principal.to.local.rules": rules}), "SASL_PLAINTEXT")
    assert isinstance(found, KerberosSettings)
    assert found.keytab == Keytab(f"{OWN}gssapi.sasl.jaas.config", "kafka/b@EXAMPLE", "/k")
    assert (found.service, found.renewal) == ("kafka", Renewal(0.8, 0.05, 60))
    assert found.rules.short_name("alice@OTHER", "EXAMPLE") == "alice"


def test_the_service_may_stand_in_the_line() -> None:
    line = KERBEROS_LINE.replace(";", " serviceName=broker;")
    config = of(**{**GSSAPI, f"{OWN}gssapi.sasl.jaas.config": line, "sasl.kerberos.service.name": ""})
    kerberos = sasl_settings(config, "SASL_PLAINTEXT").kerberos
    assert kerberos is not None
    assert kerberos.service == "broker"


@pytest.mark.parametrize(
    ("more", "key", "reason"),
    [
        ({f"{OWN}gssapi.sasl.jaas.config": SCRAM_LINE}, f"{OWN}gssapi.sasl.jaas.config", "GSSAPI needs com.sun"),
        ({"sasl.kerberos.service.name": ""}, "sasl.kerberos.service.name", "GSSAPI needs it"),
        (
            {f"{OWN}gssapi.sasl.jaas.config": KERBEROS_LINE.replace(";", " serviceName=broker;")},
            "sasl.kerberos.service.name",
            "the serviceName of listener.name.sasl_plaintext.gssapi.sasl.jaas.config, 'broker', or none",
        ),
        (
            {f"{OWN}gssapi.sasl.jaas.config": f"{KERBEROS_MODULE} required useTicketCache=true;"},
            f"{OWN}gssapi.sasl.jaas.config",
            "useTicketCache is not served",
        ),
        (
            {f"{OWN}gssapi.sasl.jaas.config": KERBEROS_LINE.replace(";", " isInitiator=false;")},
            f"{OWN}gssapi.sasl.jaas.config",
            "without isInitiator=false",
        ),
        (
            {"sasl.kerberos.principal.to.local.rules": "RULE:[1:$1"},
            "sasl.kerberos.principal.to.local.rules",
            "is neither DEFAULT nor RULE:",
        ),
        (
            {f"{OWN}sasl.kerberos.principal.to.local.rules": "DEFAULT,RULE:[1:$2]"},
            f"{OWN}sasl.kerberos.principal.to.local.rules",
            "names component 2 of 1",
        ),
    ],
)
def test_keys_of_kerberos_that_do_not_fit_together_are_refused(more: dict[str, str], key: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        of(**{**GSSAPI, **more})
    assert caught.value.key == key


def test_keys_of_kerberos_are_not_looked_at_without_gssapi() -> None:
    assert sasl_settings(of(**{"sasl.kerberos.principal.to.local.rules": "no rule"}), "SASL_PLAINTEXT").kerberos is None

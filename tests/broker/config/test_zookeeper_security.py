"""The keys about who the broker is towards ZooKeeper: what fits together, and what is said about the rest."""

from __future__ import annotations

import pytest

from ottla_broker.config import BrokerConfig, ConfigError
from ottla_broker.config.zookeeper_security import JAAS_KEY, SET_ACL, zookeeper_login
from ottla_broker.security.sasl.jaas import DIGEST_MODULE, KERBEROS_MODULE, PLAIN_MODULE

LOGIN = {JAAS_KEY: f'{DIGEST_MODULE} required username="kafka" password="hunter2";'}
CERTIFICATE = {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.keystore.location": "/broker.pem"}
ACLS = {SET_ACL: "true"}


def test_the_login_is_read_and_hidden() -> None:
    config = BrokerConfig.from_mapping(LOGIN)
    login = zookeeper_login(config)
    assert login is not None
    assert (login.mechanism, login.username, login.password) == ("DIGEST-MD5", "kafka", "hunter2")
    assert "hunter2" not in repr(login)
    shown = config.describe(JAAS_KEY)
    assert shown.value is None and shown.is_sensitive
    assert zookeeper_login(BrokerConfig.from_mapping({})) is None


@pytest.mark.parametrize("values", [LOGIN, CERTIFICATE, LOGIN | CERTIFICATE])
def test_acls_of_znodes_are_for_a_broker_that_zookeeper_knows(values: dict[str, str]) -> None:
    assert BrokerConfig.from_mapping(ACLS | values).by_name[SET_ACL] is True


@pytest.mark.parametrize(
    "values", [{}, {"zookeeper.ssl.client.enable": "true"}, CERTIFICATE | {"zookeeper.ssl.client.enable": "false"}]
)
def test_acls_of_znodes_are_refused_for_a_broker_that_it_does_not_know(values: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"give ottla\.zookeeper\.sasl\.jaas\.config, or zookeeper\.ssl") as caught:
        BrokerConfig.from_mapping(ACLS | values)
    assert caught.value.key == SET_ACL


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{DIGEST_MODULE} required username=kafka;", "it has no password"),
        (f'{DIGEST_MODULE} required username="" password=hunter2;', "it has no username"),
        (f"{DIGEST_MODULE} required password=hunter2", "does not end with a semicolon"),
        (f"{PLAIN_MODULE} required username=kafka password=hunter2;", f"towards ZooKeeper needs {DIGEST_MODULE}"),
        (f"{KERBEROS_MODULE} required useKeyTab=true password=hunter2;", r"Kerberos \(GSSAPI\) towards ZooKeeper"),
        ("Client { };", "stands none of required"),
    ],
)  # fmt: skip
def test_a_login_that_cannot_be_used_is_refused_without_its_password(line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        BrokerConfig.from_mapping({JAAS_KEY: line})
    assert caught.value.key == JAAS_KEY
    assert "hunter2" not in str(caught.value)

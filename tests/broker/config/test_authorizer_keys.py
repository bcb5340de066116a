"""The keys of AclAuthorizer."""

from __future__ import annotations

import pytest

from ottla_broker.config import BrokerConfig
from ottla_broker.config.authorizer_keys import super_users
from ottla_broker.config.types import ConfigError
from ottla_broker.security.principals import Principal

ACL_AUTHORIZER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "zookeeper.connect": "z:2181/a"}


def config(**values: str) -> BrokerConfig:
    return BrokerConfig.from_mapping(
        {**ACL_AUTHORIZER, **{key.replace("_", "."): text for key, text in values.items()}}
    )


def test_super_users_are_types_and_names_between_semicolons() -> None:
    found = super_users(config(super_users=" User:admin; User:CN=broker,O=Example ;;User:a:b;"))
    assert found == (Principal("User", "admin"), Principal("User", "CN=broker,O=Example"), Principal("User", "a:b"))
    assert super_users(config()) == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("User:a;admin", "'admin' has no type: write it before the name, such as User:admin"),
        (":admin", "':admin' has no type: write it before the name, such as User:admin"),
        ("User:", "'User:' is nobody: name each user"),
        ("User:*", "'User:*' is nobody: name each user; there is no wildcard here"),
        ("Group:admins", "'Group:admins' is nobody: the type of every principal is User"),
        ("User:CN=broker, O=Example", "has no spaces behind its commas"),
    ],
)
def test_a_super_user_that_nobody_can_be_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config(super_users=text)
    assert "super.users" in str(refused.value)
    assert reason in str(refused.value)


def test_a_name_with_spaces_may_come_of_a_rule() -> None:
    values = {"super.users": "User:CN=a, O=b", "ssl.principal.mapping.rules": "RULE:^(.*),(.*)$/$1, $2/"}
    assert super_users(BrokerConfig.from_mapping({**ACL_AUTHORIZER, **values})) == (Principal("User", "CN=a, O=b"),)


def test_without_acl_authorizer_its_keys_are_left_alone() -> None:
    BrokerConfig.from_mapping({"super.users": "admin", "authorizer.zookeeper.url": "elsewhere:2181"})


def test_the_session_of_the_authorizer_is_that_of_the_broker() -> None:
    same = {
        "authorizer.zookeeper.url": "z:2181/a",
        "authorizer.zookeeper.session.timeout.ms": "18000",
        "authorizer.zookeeper.max.in.flight.requests": "10",
        "authorizer.zookeeper.ssl.client.enable": "false",
    }
    assert BrokerConfig.from_mapping({**ACL_AUTHORIZER, **same}).unknown_keys == ()
    for key, text, words in (
        ("authorizer.zookeeper.url", "elsewhere:2181", "elsewhere:2181"),
        (
            "authorizer.zookeeper.connection.timeout.ms",
            "1",
            "the value of zookeeper.connection.timeout.ms, or left out",
        ),
        ("authorizer.zookeeper.ssl.client.enable", "true", "in the broker's session"),
    ):
        with pytest.raises(ConfigError, match=key) as refused:
            BrokerConfig.from_mapping({**ACL_AUTHORIZER, key: text})
        assert words in str(refused.value)


def test_a_password_of_that_session_is_not_shown() -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.from_mapping({**ACL_AUTHORIZER, "authorizer.zookeeper.ssl.keystore.password": "very-secret"})
    assert "very-secret" not in str(refused.value)

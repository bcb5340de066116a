"""The keys of OAUTHBEARER on a listener: whose prefix wins, what is missing, and that nobody gets in unsigned."""

from __future__ import annotations

import pytest

from ottla_broker.config import BrokerConfig
from ottla_broker.config.sasl import own_login, sasl_settings
from ottla_broker.config.sasl_tokens import ALLOW_UNSECURED, JWKS_URL, TOKEN_URL
from ottla_broker.config.types import ConfigError
from ottla_broker.security.oauth.addresses import Address
from ottla_broker.security.oauth.claims import TokenRules
from ottla_broker.security.oauth.key_refreshes import RefreshTimes
from ottla_broker.security.oauth.logins import ClientGrant, RenewalTimes, TokenFile, TokenLogin
from ottla_broker.security.oauth.unsecured import UnsecuredClaims, UnsecuredRules
from ottla_broker.security.oauth.validation import SignedTokens
from ottla_broker.security.sasl.jaas import OAUTHBEARER_MODULE, PLAIN_MODULE
from ottla_broker.security.tls_settings import TlsSettings

LISTENER = "SASL_PLAINTEXT"
OF_LISTENER = "listener.name.sasl_plaintext."
OF_MECHANISM = f"{OF_LISTENER}oauthbearer."
JAAS = f"{OF_MECHANISM}sasl.jaas.config"
SERVER_CLASS = f"{OF_MECHANISM}sasl.server.callback.handler.class"
LOGIN_CLASS = f"{OF_MECHANISM}sasl.login.callback.handler.class"
PACKAGE = "org.apache.kafka.common.security.oauthbearer"
KEYS = {
    "listeners": "PLAINTEXT://:9092,SASL_PLAINTEXT://:9093",
    "advertised.listeners": "PLAINTEXT://b:9092,SASL_PLAINTEXT://b:9093",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    JAAS: f"{OAUTHBEARER_MODULE} required;",
    JWKS_URL: "https://idp.example/keys",
}
BETWEEN_BROKERS = {
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    JAAS: f'{OAUTHBEARER_MODULE} required clientId="broker" clientSecret="hunter" scope="kafka" extension_a="b";',
    TOKEN_URL: "http://idp.example/token",
}


def of(*without: str, **more: str) -> BrokerConfig:
    return BrokerConfig.from_mapping({name: value for name, value in {**KEYS, **more}.items() if name not in without})


def signed(config: BrokerConfig) -> SignedTokens:
    found = sasl_settings(config, LISTENER).tokens
    assert isinstance(found, SignedTokens)
    return found


def test_the_defaults_are_those_of_apache_kafka() -> None:
    found = signed(of())
    assert found.address == Address(url="https://idp.example/keys")
    assert found.times == RefreshTimes(3_600_000, 100, 10_000)
    assert found.rules == TokenRules((), None, "scope", "sub", 30)
    assert isinstance(found.tls, TlsSettings)
    assert found.tls.verifies_names and found.tls.verifies_certificates and found.tls.trust_store is None
    assert signed(of(**{JWKS_URL: "file:///keys.json"})).tls is None
    assert signed(of(**{JWKS_URL: "http://idp/keys"})).tls is None


@pytest.mark.parametrize("prefix", ["", OF_LISTENER, OF_MECHANISM])
def test_each_key_may_have_the_prefix_of_the_listener_or_of_its_mechanism(prefix: str) -> None:
    given = {
        "jwks.endpoint.url": "http://other/keys",
        "jwks.endpoint.refresh.ms": "1",
        "jwks.endpoint.retry.backoff.ms": "2",
        "jwks.endpoint.retry.backoff.max.ms": "3",
        "expected.audience": "kafka,other",
        "expected.issuer": "https://idp",
        "scope.claim.name": "roles",
        "sub.claim.name": "client",
        "clock.skew.seconds": "7",
    }
    found = signed(of(**{f"{prefix}sasl.oauthbearer.{name}": value for name, value in given.items()}))
    assert found.address == Address(url="http://other/keys")
    assert found.times == RefreshTimes(1, 2, 3)
    assert found.rules == TokenRules(("kafka", "other"), "https://idp", "roles", "client", 7)


def test_the_key_of_the_mechanism_wins() -> None:
    key = "sasl.oauthbearer.clock.skew.seconds"
    assert signed(of(**{key: "1", OF_LISTENER + key: "2", OF_MECHANISM + key: "3"})).rules.skew_s == 3
    assert signed(of(**{key: "1", OF_LISTENER + key: "2"})).rules.skew_s == 2


def test_the_trust_store_of_the_identity_provider_is_an_option_of_the_jaas_line() -> None:
    line = f'{OAUTHBEARER_MODULE} required ssl.truststore.location="/idp.pem" ssl.truststore.type="PEM";'
    store = {"ssl.truststore.location": "/clients.pem", "ssl.truststore.type": "PEM"}
    tls = signed(of(**{JAAS: line, **store})).tls
    assert tls is not None and tls.trust_store is not None and tls.trust_store.location == "/idp.pem"
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.type: must be of JKS") as caught:
        of(**{JAAS: f'{OAUTHBEARER_MODULE} required ssl.truststore.location="/x" ssl.truststore.type="hunter";'})
    assert caught.value.key == JAAS


def test_unsigned_tokens_are_taken_where_the_own_key_says_so_and_no_keys_are_named() -> None:
    line = f'{OAUTHBEARER_MODULE} required unsecuredValidatorRequiredScope="a b";'
    allowed = {ALLOW_UNSECURED: "true", JAAS: line}
    assert sasl_settings(of(JWKS_URL, **allowed), LISTENER).tokens == UnsecuredRules(required_scope=("a", "b"))
    assert isinstance(sasl_settings(of(**allowed), LISTENER).tokens, SignedTokens)


@pytest.mark.parametrize(
    ("without", "more", "key", "reason"),
    [
        (JWKS_URL, {}, JWKS_URL, f"(?s)without them anybody could be anybody.*{ALLOW_UNSECURED}=true"),
        (JWKS_URL, {f"{OF_LISTENER}{JWKS_URL}": ""}, f"{OF_LISTENER}{JWKS_URL}", "the address of the keys"),
        (
            JWKS_URL,
            {SERVER_CLASS: f"{PACKAGE}.OAuthBearerValidatorCallbackHandler", ALLOW_UNSECURED: "true"},
            JWKS_URL,
            "the address of the keys",
        ),
        ("", {JWKS_URL: "idp/keys"}, JWKS_URL, "an address such as"),
        ("", {f"{OF_MECHANISM}{JWKS_URL}": "ftp://idp"}, f"{OF_MECHANISM}{JWKS_URL}", "an address such as"),
        ("", {JAAS: f"{PLAIN_MODULE} required;"}, JAAS, "PlainLoginModule cannot be used"),
        (
            JWKS_URL,
            {ALLOW_UNSECURED: "true", JAAS: f"{OAUTHBEARER_MODULE} required unsecuredValidatorAllowableClockSkewMs=x;"},
            JAAS,
            "unsecuredValidatorAllowableClockSkewMs is no number",
        ),
        (
            "",
            {"sasl.oauthbearer.clock.skew.seconds": "-1"},
            "sasl.oauthbearer.clock.skew.seconds",
            "at least 0",
        ),
        (
            "",
            {"sasl.oauthbearer.jwks.endpoint.refresh.ms": "-1"},
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            "at least 0",
        ),
        ("", {"sasl.oauthbearer.sub.claim.name": " "}, "sasl.oauthbearer.sub.claim.name", "the name of a claim"),
        (
            "",
            {SERVER_CLASS: f"{PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"},
            SERVER_CLASS,
            f"{PACKAGE}.OAuthBearerValidatorCallbackHandler, or leave it out: other Java classes cannot",
        ),
        ("", {LOGIN_CLASS: "org.example.Login"}, LOGIN_CLASS, "OAuthBearerLoginCallbackHandler, or leave it out"),
        (
            "",
            {"sasl.server.callback.handler.class": f"{PACKAGE}.OAuthBearerValidatorCallbackHandler"},
            "sasl.server.callback.handler.class",
            "or leave it out",
        ),
    ],
)
def test_what_would_let_others_in_or_nobody_is_refused(
    without: str, more: dict[str, str], key: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        of(without, **more)
    assert caught.value.key == key


@pytest.mark.parametrize("package", [PACKAGE, f"{PACKAGE}.secured"])
def test_the_classes_of_apache_kafka_may_be_named(package: str) -> None:
    named = {
        SERVER_CLASS: f"{package}.OAuthBearerValidatorCallbackHandler",
        LOGIN_CLASS: f"{package}.OAuthBearerLoginCallbackHandler",
    }
    assert signed(of(**named)) == signed(of())


# Between brokers


def test_brokers_log_in_to_each_other_by_a_token() -> None:
    times = {"sasl.login.refresh.window.factor": "0.5", "sasl.login.connect.timeout.ms": "1500"}
    found = own_login(of(**BETWEEN_BROKERS, **times), LISTENER)
    assert isinstance(found, TokenLogin)
    origin = ClientGrant(Address(url="http://idp.example/token"), "broker", "hunter", "kafka", None, 1.5, 10.0)
    assert found == TokenLogin(origin, (("a", "b"),), RenewalTimes(0.5, 0.05, 60, 300))
    file = own_login(of(**{**BETWEEN_BROKERS, TOKEN_URL: "file:///run/token"}), LISTENER)
    assert isinstance(file, TokenLogin) and file.origin == TokenFile("/run/token")


def test_brokers_show_unsigned_tokens_where_the_own_key_says_so() -> None:
    line = f'{OAUTHBEARER_MODULE} required unsecuredLoginStringClaim_sub="broker";'
    unsecured = {**BETWEEN_BROKERS, JAAS: line, ALLOW_UNSECURED: "true"}
    found = own_login(of(JWKS_URL, TOKEN_URL, **unsecured), LISTENER)
    assert isinstance(found, TokenLogin) and found.origin == UnsecuredClaims((("sub", "broker"),))


@pytest.mark.parametrize(
    ("more", "key", "reason"),
    [
        ({TOKEN_URL: ""}, TOKEN_URL, "where brokers get the token with which they log in to each other"),
        ({TOKEN_URL: "idp"}, TOKEN_URL, "an address such as"),
        ({JAAS: f"{OAUTHBEARER_MODULE} required clientId=broker;"}, JAAS, "it has no clientSecret"),
        ({TOKEN_URL: "", ALLOW_UNSECURED: "true"}, JAAS, "it has no unsecuredLoginStringClaim_sub"),
        ({"sasl.mechanism.inter.broker.protocol": "PLAIN"}, "sasl.mechanism.inter.broker.protocol", "OAUTHBEARER"),
    ],
)
def test_brokers_without_a_token_of_their_own_do_not_start(more: dict[str, str], key: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        of(**{**BETWEEN_BROKERS, **more})
    assert caught.value.key == key
    assert "hunter" not in str(caught.value)


def test_secrets_are_shown_to_nobody() -> None:
    config = of(**BETWEEN_BROKERS)
    assert "hunter" not in repr(config.describe_all())
    assert "hunter" not in repr(sasl_settings(config, LISTENER)) + repr(own_login(config, LISTENER))

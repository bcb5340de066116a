"""The keys and JAAS options of OAUTHBEARER on one listener: which tokens it takes, and which one brokers show. Pure.

    listener.name.x.oauthbearer.sasl.jaas.config=…OAuthBearerLoginModule required;
    listener.name.x.oauthbearer.sasl.oauthbearer.jwks.endpoint.url=https://idp.example/keys

Each key may stand for the mechanism of a listener, for a listener, or for all. Signed tokens are checked where the keys
to check them are named: Apache Kafka takes unsigned ones unless a class is named as well. Here they are taken where a
key of Ottla's own says so, and by no default.

Source: org.apache.kafka.common.security.oauthbearer.internals.secured.ConfigurationUtils, JaasOptionsUtils,
AccessTokenRetrieverFactory (KIP-255, KIP-768).
"""

from __future__ import annotations

from typing import Any

from ottla_broker.config.listener_keys import ListenerKeys
from ottla_broker.config.types import ConfigError
from ottla_broker.security.oauth.addresses import Address, parse_address
from ottla_broker.security.oauth.claims import TokenRules
from ottla_broker.security.oauth.key_refreshes import RefreshTimes
from ottla_broker.security.oauth.logins import RenewalTimes, TokenLogin, token_login
from ottla_broker.security.oauth.provider_tls import provider_tls
from ottla_broker.security.oauth.unsecured import unsecured_rules
from ottla_broker.security.oauth.validation import SignedTokens, TokenValidation
from ottla_broker.security.sasl.jaas import JaasEntry
from ottla_broker.security.sasl.mechanism import OAUTHBEARER
from ottla_broker.security.tls_settings import TlsError

ALLOW_UNSECURED = "ottla.sasl.oauthbearer.allow.unsecured.tokens"
JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
_JAAS = "sasl.jaas.config"
_PACKAGES = (
    "org.apache.kafka.common.security.oauthbearer.secured",
    "org.apache.kafka.common.security.oauthbearer",
)
SERVED_CLASSES = {
    "sasl.server.callback.handler.class": tuple(f"{one}.OAuthBearerValidatorCallbackHandler" for one in _PACKAGES),
    "sasl.login.callback.handler.class": tuple(f"{one}.OAuthBearerLoginCallbackHandler" for one in _PACKAGES),
}
"""By key: Apache Kafka's classes whose work is done without Java. Named for the mechanism of a listener."""


def token_validation(keys: ListenerKeys, entry: JaasEntry) -> TokenValidation:
    """Which tokens a listener takes.

    Raises:
        ConfigError: neither keys for signed tokens are named nor unsigned ones allowed, or a value cannot be used.
    """
    url = _value(keys, JWKS_URL)
    named = keys.value_of_mechanism(OAUTHBEARER, "sasl.server.callback.handler.class")
    if not url:
        if named or not keys.value(ALLOW_UNSECURED):
            raise ConfigError(
                _name(keys, JWKS_URL),
                None,
                "the address of the keys with which tokens are signed: OAUTHBEARER is enabled, and without them "
                f"anybody could be anybody (for tests alone: {ALLOW_UNSECURED}=true)",
            )
        try:
            return unsecured_rules(entry.options)
        except ValueError as error:
            raise ConfigError(keys.of_mechanism(OAUTHBEARER, _JAAS), None, str(error)) from None
    address = _address(keys, JWKS_URL, url)
    return SignedTokens(
        address,
        RefreshTimes(
            *(
                _at_least(keys, f"sasl.oauthbearer.jwks.endpoint.{name}", 0)
                for name in ("refresh.ms", "retry.backoff.ms", "retry.backoff.max.ms")
            )
        ),
        TokenRules(
            tuple(_value(keys, "sasl.oauthbearer.expected.audience") or ()),
            _value(keys, "sasl.oauthbearer.expected.issuer") or None,
            _claim_name(keys, "sasl.oauthbearer.scope.claim.name"),
            _claim_name(keys, "sasl.oauthbearer.sub.claim.name"),
            _at_least(keys, "sasl.oauthbearer.clock.skew.seconds", 0),
        ),
        _provider_tls(keys, entry, address),
    )


def broker_token(keys: ListenerKeys, entry: JaasEntry) -> TokenLogin:
    """The token that brokers show each other.

    Raises:
        ConfigError: it says not where the token comes from, or a value cannot be used.
    """
    url = _value(keys, TOKEN_URL)
    address = _address(keys, TOKEN_URL, url) if url else None
    if address is None and not keys.value(ALLOW_UNSECURED):
        raise ConfigError(
            _name(keys, TOKEN_URL),
            None,
            "where brokers get the token with which they log in to each other: an address of the identity provider, "
            "with clientId and clientSecret in the JAAS line, or a file with the token",
        )
    try:
        return token_login(
            address,
            entry.options,
            None if address is None else _provider_tls(keys, entry, address),
            RenewalTimes(
                _value(keys, "sasl.login.refresh.window.factor"),
                _value(keys, "sasl.login.refresh.window.jitter"),
                _value(keys, "sasl.login.refresh.min.period.seconds"),
                _value(keys, "sasl.login.refresh.buffer.seconds"),
            ),
            connect_ms=_value(keys, "sasl.login.connect.timeout.ms"),
            read_ms=_value(keys, "sasl.login.read.timeout.ms"),
        )
    except ValueError as error:
        raise ConfigError(keys.of_mechanism(OAUTHBEARER, _JAAS), None, str(error)) from None


def _value(keys: ListenerKeys, key: str) -> Any:
    own = keys.value_of_mechanism(OAUTHBEARER, key)
    return keys.value(key) if own is None else own


def _name(keys: ListenerKeys, key: str) -> str:
    """The key that `_value` is from."""
    own = keys.value_of_mechanism(OAUTHBEARER, key)
    return keys.name(key) if own is None else keys.of_mechanism(OAUTHBEARER, key)


def _at_least(keys: ListenerKeys, key: str, least: int) -> int:
    found = _value(keys, key)
    if found < least:
        raise ConfigError(_name(keys, key), found, f"at least {least}")
    return int(found)


def _claim_name(keys: ListenerKeys, key: str) -> str:
    found = (_value(keys, key) or "").strip()
    if not found:
        raise ConfigError(_name(keys, key), found, "the name of a claim")
    return str(found)


def _address(keys: ListenerKeys, key: str, url: str) -> Address:
    try:
        return parse_address(url)
    except ValueError as error:
        raise ConfigError(_name(keys, key), None, str(error)) from None


def _provider_tls(keys: ListenerKeys, entry: JaasEntry, address: Address) -> Any:
    try:
        return provider_tls(address, entry.options)
    except TlsError as error:
        raise ConfigError(keys.of_mechanism(OAUTHBEARER, _JAAS), None, str(error)) from None

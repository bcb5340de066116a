"""How a client logs in: the `sasl.*` keys of Java's clients or of librdkafka. Pure.

    name and password   sasl.jaas.config, or sasl.username and sasl.password
    token               sasl.oauthbearer.token.endpoint.url, with clientId and clientSecret in sasl.jaas.config, or with
                        sasl.oauthbearer.method=oidc and sasl.oauthbearer.client.id and .client.secret; or a file

A token that nobody has signed is for tests: enable.sasl.oauthbearer.unsecure.jwt, librdkafka's key, allows it.

Source: org.apache.kafka.common.config.SaslConfigs; librdkafka, CONFIGURATION.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla_broker.security.oauth.addresses import parse_address
from ottla_broker.security.oauth.logins import TokenLogin, token_login
from ottla_broker.security.oauth.provider_tls import provider_tls
from ottla_broker.security.sasl.jaas import JaasError, check_module, module_of, parse_jaas
from ottla_broker.security.sasl.login import SaslLogin
from ottla_broker.security.sasl.mechanism import MECHANISMS, OAUTHBEARER
from ottla_broker.security.tls_settings import TlsError

_MECHANISM_KEYS = ("sasl.mechanism", "sasl.mechanisms")
_JAAS_CONFIG = "sasl.jaas.config"
_PASSWORD = "sasl.password"
_CLASS = "sasl.login.callback.handler.class"
_URL = "sasl.oauthbearer.token.endpoint.url"
_UNSECURED = "enable.sasl.oauthbearer.unsecure.jwt"
_METHOD = "sasl.oauthbearer.method"
_OPTIONS = {
    "sasl.oauthbearer.client.id": "clientId",
    "sasl.oauthbearer.client.secret": "clientSecret",
    "sasl.oauthbearer.scope": "scope",
}
"""librdkafka's keys, and the options of a JAAS line that mean the same."""
_EXTENSIONS = "sasl.oauthbearer.extensions"
_OF_TOKENS = (_CLASS, _URL, _UNSECURED, _METHOD, *_OPTIONS, _EXTENSIONS)
_CLASSES = (
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
)

LOGIN_KEYS = (*_MECHANISM_KEYS, _JAAS_CONFIG, "sasl.username", _PASSWORD, *_OF_TOKENS)
"""Those that may be given."""
SECRET_LOGIN_KEYS = (_JAAS_CONFIG, _PASSWORD, "sasl.oauthbearer.client.secret")
"""Those whose values are never shown."""


def client_login(given: Mapping[str, str]) -> SaslLogin | TokenLogin:
    """What the keys say. Raises TlsError: a value cannot be used, or keys do not fit together."""
    mechanism = _mechanism(given)
    if mechanism == OAUTHBEARER:
        return _token(given)
    for key in _OF_TOKENS:
        if given.get(key):
            raise TlsError(key, "", f"is for {OAUTHBEARER}, and the mechanism is {mechanism}")
    options = _jaas_options(given, mechanism)
    user, password = given.get("sasl.username", ""), given.get(_PASSWORD, "")
    if options is not None:
        for key in ("sasl.username", _PASSWORD):
            if key in given:
                raise TlsError(key, "", f"must not be given beside {_JAAS_CONFIG}, which means the same")
        if options.get("tokenauth", "false").lower() == "true":
            raise TlsError(_JAAS_CONFIG, "", "tokenauth: a delegation token is not taken here, log in as a user")
        user, password = options.get("username", ""), options.get("password", "")
    for name, value in (("username", user), ("password", password)):
        if not value:
            key = f"sasl.{name}" if options is None else _JAAS_CONFIG
            raise TlsError(key, "", f"is not given, nor {_JAAS_CONFIG}" if options is None else f"has no {name}")
    return SaslLogin(mechanism, user, password)


def _mechanism(given: Mapping[str, str]) -> str:
    found = [key for key in _MECHANISM_KEYS if given.get(key)]
    if not found:
        raise TlsError("sasl.mechanism", "", f"is not given: of {', '.join(MECHANISMS)}")
    if len(found) > 1:
        raise TlsError(found[1], "", f"must not be given beside {found[0]}, which means the same")
    mechanism = given[found[0]].strip().upper()
    if mechanism not in MECHANISMS:
        raise TlsError(found[0], "", f"must be of {', '.join(MECHANISMS)}, not {given[found[0]]!r}")
    return mechanism


def _jaas_options(given: Mapping[str, str], mechanism: str) -> Mapping[str, str] | None:
    """None without a JAAS line."""
    text = given.get(_JAAS_CONFIG)
    if not text:
        return None
    try:
        entry = parse_jaas(text)
        check_module(entry, module_of(mechanism), mechanism)
    except JaasError as error:
        raise TlsError(_JAAS_CONFIG, "", str(error)) from None
    return entry.options


def _token(given: Mapping[str, str]) -> TokenLogin:
    for key in ("sasl.username", _PASSWORD):
        if given.get(key):
            raise TlsError(key, "", f"has no effect with {OAUTHBEARER}")
    if given.get(_CLASS, _CLASSES[0]) not in _CLASSES:
        raise TlsError(_CLASS, "", f"must be {' or '.join(_CLASSES)}: other Java classes cannot be loaded")
    if given.get(_METHOD, "oidc") not in ("oidc", "default"):
        raise TlsError(_METHOD, "", "must be oidc")
    options = _jaas_options(given, OAUTHBEARER)
    if options is None:
        options = _librdkafka_options(given)
    elif found := [key for key in (*_OPTIONS, _EXTENSIONS) if given.get(key)]:
        raise TlsError(found[0], "", f"must not be given beside {_JAAS_CONFIG}, which means the same")
    url, allows_unsecured = given.get(_URL), given.get(_UNSECURED, "false").strip().lower()
    if allows_unsecured not in ("true", "false"):
        raise TlsError(_UNSECURED, "", "must be true or false")
    if not url and allows_unsecured == "false":
        raise TlsError(_URL, "", "is not given: the address that gives tokens, or a file with one")
    key = _JAAS_CONFIG if _JAAS_CONFIG in given else _URL
    try:
        address = parse_address(url) if url else None
    except ValueError as error:
        raise TlsError(_URL, "", f"must be {error}") from None
    try:
        return token_login(address, options, None if address is None else provider_tls(address, options))
    except TlsError as error:
        raise TlsError(key, "", str(error)) from None
    except ValueError as error:
        raise TlsError(key, "", str(error)) from None


def _librdkafka_options(given: Mapping[str, str]) -> dict[str, str]:
    options = {option: given[key] for key, option in _OPTIONS.items() if given.get(key)}
    for pair in filter(None, given.get(_EXTENSIONS, "").split(",")):
        name, equals, value = pair.partition("=")
        if not equals:
            raise TlsError(_EXTENSIONS, "", "must be NAME=VALUE, with commas between")
        options[f"extension_{name}"] = value
    return options

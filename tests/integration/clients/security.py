"""How a client reaches a listener that is not PLAINTEXT, in the words of the Java client, with stores in PEM.

Each driver translates it into its client's own options.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from ottla_broker.security.oauth.addresses import parse_address
from ottla_broker.security.oauth.blocking_tokens import BlockingTokens
from ottla_broker.security.oauth.logins import TokenLogin, token_login
from ottla_broker.security.sasl.jaas import OAUTHBEARER_MODULE, parse_jaas
from ottla_broker.security.sasl.mechanism import OAUTHBEARER
from ottla_broker.security.sasl.oauthbearer import OAuthBearerClient
from tests.integration.wire import Wire

Security: TypeAlias = "Mapping[str, str]"
"""`security.protocol`, `ssl.truststore.location`, `ssl.keystore.location`, `sasl.mechanism`, `sasl.jaas.config`, ..."""

PLAIN: Security = MappingProxyType({})

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def tls_context(security: Security) -> ssl.SSLContext | None:
    """For clients that use Python's own TLS; None for a connection without."""
    if security.get("security.protocol", "PLAINTEXT") not in ("SSL", "SASL_SSL"):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(security["ssl.truststore.location"])
    if "ssl.keystore.location" in security:
        context.load_cert_chain(security["ssl.keystore.location"])
    if "ssl.enabled.protocols" in security:
        versions = [_VERSIONS[name] for name in security["ssl.enabled.protocols"].split(",")]
        context.minimum_version, context.maximum_version = min(versions), max(versions)
    return context


class Login(NamedTuple):
    """How a client logs in by SASL."""

    mechanism: str
    user: str
    password: str


def sasl_login(security: Security) -> Login | None:
    """For clients that have no JAAS lines; None for a connection without SASL."""
    if not security.get("security.protocol", "PLAINTEXT").startswith("SASL") or token_grant(security) is not None:
        return None
    options = parse_jaas(security["sasl.jaas.config"]).options
    return Login(security["sasl.mechanism"], options["username"], options["password"])


TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
_LOGIN_CLASS = "sasl.login.callback.handler.class"


class TokenGrant(NamedTuple):
    """How a client gets the token that it logs in with."""

    url: str
    client_id: str
    client_secret: str
    scope: str

    @property
    def login(self) -> TokenLogin:
        return token_login(
            parse_address(self.url),
            {"clientId": self.client_id, "clientSecret": self.client_secret, "scope": self.scope},
            None,
        )


def token_grant(security: Security) -> TokenGrant | None:
    """For clients that have no JAAS lines; None for a connection without OAUTHBEARER."""
    if security.get("sasl.mechanism") != OAUTHBEARER:
        return None
    options = parse_jaas(security["sasl.jaas.config"]).options
    return TokenGrant(security[TOKEN_URL], options["clientId"], options["clientSecret"], options["scope"])


def by_token(protocol: str, url: str, client_id: str, client_secret: str) -> dict[str, str]:
    """Of a client, but for TLS."""
    line = f'{OAUTHBEARER_MODULE} required clientId="{client_id}" clientSecret="{client_secret}" scope="kafka";'
    return {
        "security.protocol": protocol,
        "sasl.mechanism": OAUTHBEARER,
        "sasl.jaas.config": line,
        _LOGIN_CLASS: "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
        TOKEN_URL: url,
    }


def wire(address: str, security: Security) -> Wire:
    """A connection by plain sockets, logged in."""
    found = Wire(address, tls=tls_context(security))
    login, grant = sasl_login(security), token_grant(security)
    if login is not None:
        found.log_in(*login)
    elif grant is not None:
        found.log_in_by(OAUTHBEARER, OAuthBearerClient(BlockingTokens().token(grant.login), {}))
    return found

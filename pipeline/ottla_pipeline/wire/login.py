"""Logs in to a broker by SASL, before anything else is asked for on a connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import error_name
from ottla_broker.protocol.generated.sasl_authenticate import SaslAuthenticateRequest
from ottla_broker.protocol.generated.sasl_handshake import SaslHandshakeRequest
from ottla_broker.security.oauth.blocking_tokens import BlockingTokens
from ottla_broker.security.oauth.logins import TokenLogin
from ottla_broker.security.sasl.login import LoginExchanges, SaslLogin
from ottla_broker.security.sasl.mechanism import Challenge, ClientMechanism, Failed
from ottla_broker.security.sasl.oauthbearer import OAuthBearerClient
from ottla_pipeline.errors import LoginRefused

_EXCHANGES = LoginExchanges()
"""Of this process: the keys of a password are derived once."""
_TOKENS = BlockingTokens()
"""Of this process: a token serves until most of its life is over."""


def log_in(ask: Callable[[ApiKey, Any], Any], login: SaslLogin | TokenLogin, address: str) -> int:
    """Gives the lifetime of the session in milliseconds; 0 without an end.

    Raises:
        LoginRefused: the broker does not have the mechanism, or does not let the user in.
        OSError: what `ask` raises, or there is no token to log in with.
    """
    client = _begin(login)
    handshake = ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=login.mechanism))
    if handshake.error_code:
        offered = ", ".join(handshake.mechanisms) or "none"
        raise LoginRefused(f"{address} does not have {login.mechanism}; its mechanisms: {offered}")
    token, lifetime_ms = b"", 0
    while isinstance(step := client.step(token), Challenge):
        answer = ask(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=step.token))
        if answer.error_code:
            reason = answer.error_message or error_name(answer.error_code)
            raise LoginRefused(f"{address} does not let {login.username!r} in: {reason}")
        token, lifetime_ms = bytes(answer.auth_bytes), answer.session_lifetime_ms
    if isinstance(step, Failed):
        raise LoginRefused(f"{address}: {step.message or login.mechanism + ' has failed'}")
    return int(lifetime_ms)


def _begin(login: SaslLogin | TokenLogin) -> ClientMechanism:
    if isinstance(login, TokenLogin):
        return OAuthBearerClient(_TOKENS.token(login), dict(login.extensions))
    return _EXCHANGES.begin(login)

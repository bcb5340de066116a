"""Logs in to a broker by SASL, before anything else is asked for on a connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import error_name
from ottla_broker.protocol.generated.sasl_authenticate import SaslAuthenticateRequest
from ottla_broker.protocol.generated.sasl_handshake import SaslHandshakeRequest
from ottla_broker.security.sasl.login import LoginExchanges, SaslLogin
from ottla_broker.security.sasl.mechanism import Challenge, Failed
from ottla_pipeline.errors import LoginRefused

_EXCHANGES = LoginExchanges()
"""Of this process: the keys of a password are derived once."""


def log_in(ask: Callable[[ApiKey, Any], Any], login: SaslLogin, address: str) -> int:
    """Gives the lifetime of the session in milliseconds; 0 without an end.

    Raises:
        LoginRefused: the broker does not have the mechanism, or does not let the user in.
        OSError: what `ask` raises.
    """
    handshake = ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=login.mechanism))
    if handshake.error_code:
        offered = ", ".join(handshake.mechanisms) or "none"
        raise LoginRefused(f"{address} does not have {login.mechanism}; its mechanisms: {offered}")
    client, token, lifetime_ms = _EXCHANGES.begin(login), b"", 0
    while isinstance(step := client.step(token), Challenge):
        answer = ask(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=step.token))
        if answer.error_code:
            reason = answer.error_message or error_name(answer.error_code)
            raise LoginRefused(f"{address} does not let {login.username!r} in: {reason}")
        token, lifetime_ms = bytes(answer.auth_bytes), answer.session_lifetime_ms
    if isinstance(step, Failed):
        raise LoginRefused(f"{address}: {step.message or login.mechanism + ' has failed'}")
    return int(lifetime_ms)

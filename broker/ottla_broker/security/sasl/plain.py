"""PLAIN: the user's name and password in one token (RFC 4616). Only over TLS is it a secret from who listens. Pure.

Source: org.apache.kafka.common.security.plain.internals.PlainSaslServer, PlainServerCallbackHandler.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping

from ottla_broker.security.principals import USER, Principal
from ottla_broker.security.sasl.mechanism import (
    Authenticated,
    Challenge,
    ClientStep,
    Complete,
    Failed,
    ServerStep,
)

_PREFIX = "user_"
_NOBODY = "\0"
"""Compared with where there is no such user; no password has it."""


def passwords_of(options: Mapping[str, str]) -> dict[str, str]:
    """The users of PlainLoginModule, from its options: `user_alice="alice-secret"`.

    >>> passwords_of({"username": "admin", "password": "x", "user_alice": "y"})
    {'alice': 'y'}
    """
    return {name.removeprefix(_PREFIX): value for name, value in options.items() if name.startswith(_PREFIX)}


class PlainServer:
    """See `ServerMechanism`.

    Args:
        passwords: by user, those in force at the time.
    """

    def __init__(self, passwords: Callable[[], Mapping[str, str]]) -> None:
        self._passwords = passwords
        self._is_spent = False

    def step(self, token: bytes) -> ServerStep:
        if self._is_spent:
            return Failed()
        self._is_spent = True
        parts = token.decode(errors="replace").split("\0", 3)
        if len(parts) != 3:
            return Failed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            return Failed("Authentication failed: username not specified")
        if not password:
            return Failed("Authentication failed: password not specified")
        expected = self._passwords().get(user)
        is_right = hmac.compare_digest(_digest(password), _digest(_NOBODY if expected is None else expected))
        if expected is None or not is_right:
            return Failed("Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            return Failed("Authentication failed: Client requested an authorization id that is different from username")
        return Authenticated(Principal(USER, user))


def _digest(password: str) -> bytes:
    """So that the length of a password takes no time either."""
    return hashlib.sha256(password.encode(errors="surrogatepass")).digest()


class PlainClient:
    """See `ClientMechanism`."""

    def __init__(self, user: str, password: str) -> None:
        self._token = f"\0{user}\0{password}".encode(errors="surrogatepass")
        self._is_sent = False

    def step(self, token: bytes) -> ClientStep:
        if not self._is_sent:
            self._is_sent = True
            return Challenge(self._token)
        return Failed("the server has sent a token where PLAIN has none") if token else Complete()

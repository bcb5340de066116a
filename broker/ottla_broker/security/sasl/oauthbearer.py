"""OAUTHBEARER: an access token in one message (RFC 7628). Only over TLS is it a secret from who listens. Pure.

    client: n,,^Aauth=Bearer TOKEN^A^A                 server: nothing, and it is in
                                                       server: {"status":"invalid_token"}
    client: ^A                                         server: fails with that text

^A is the byte 1. Between the header and the end may stand extensions, as NAME=VALUE^A (KIP-342). They have to be well
formed, and have no effect, as with Apache Kafka's own validators.

Source: org.apache.kafka.common.security.oauthbearer.internals: OAuthBearerSaslServer, OAuthBearerClientInitialResponse,
OAuthBearerSaslClient.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.security.principals import USER, Principal
from ottla_broker.security.sasl.mechanism import (
    Authenticated,
    Challenge,
    ClientStep,
    Complete,
    Failed,
    ServerStep,
    Spent,
)

LONGEST_MESSAGE: Final = 24 * 1024
"""In bytes, with extensions. To find that one of them is malformed takes 3 ms at most."""
_MOST_TOKENS: Final = 5
"""Of one exchange, none of which is taken: each is answered at once, and the delay of a failure comes with the last."""
_END: Final = "\x01"
_KEY = "[A-Za-z]+"
_VALUE = r"[\x21-\x7e \t\r\n]+"
_INITIAL = re.compile(
    r"n,(?:a=(?P<authorization>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01"
    rf"(?P<pairs>(?:{_KEY}={_VALUE}\x01)*)\x01"
)
_AUTH = re.compile(r"(?P<scheme>[A-Za-z0-9_]+) +(?P<token>[-_.A-Za-z0-9]+)")
TOKEN = re.compile(r"[-_.A-Za-z0-9]+")
"""What a token consists of."""


@dataclass(frozen=True, slots=True)
class AcceptedToken:
    """A token that is taken.

    Args:
        lifetime_ms: after which it ends.
    """

    user: str
    lifetime_ms: int


@dataclass(frozen=True, slots=True)
class RefusedToken:
    """A token that is not taken, by the words of RFC 7628.

    Args:
        status: "invalid_token" or "insufficient_scope".
        scope: that is needed; "" where that is not told.
    """

    status: str = "invalid_token"
    scope: str = ""

    @property
    def json(self) -> str:
        """As Apache Kafka writes it.

        >>> RefusedToken("insufficient_scope", "read").json
        '{"status":"insufficient_scope", "scope":"read"}'
        """
        scope = f', "scope":"{self.scope}"' if self.scope else ""
        return f'{{"status":"{self.status}"{scope}}}'


class OAuthBearerServer:
    """See `ServerMechanism`.

    Args:
        validate: what a token is worth.
    """

    def __init__(self, validate: Callable[[str], AcceptedToken | RefusedToken]) -> None:
        self._validate = validate
        self._refusal: str | None = None
        self._tokens_left = _MOST_TOKENS
        self._step: Callable[[bytes], ServerStep] = self._message

    def step(self, token: bytes) -> ServerStep:
        step, self._step = self._step, Spent().step
        return step(token)

    def _message(self, message: bytes) -> ServerStep:
        if self._refusal is not None and message == _END.encode():
            return Failed(self._refusal)
        found = parse_message(message)
        if found is None or not self._tokens_left:
            return Failed()
        self._tokens_left -= 1
        outcome = self._validate(found.token)
        if isinstance(outcome, RefusedToken):
            self._refusal = outcome.json
            self._step = self._message
            return Challenge(self._refusal.encode())
        if found.authorization_id not in ("", outcome.user):
            return Failed(
                f"Authentication failed: Client requested an authorization id ({_shown(found.authorization_id)}) that "
                f"is different from the token's principal name ({_shown(outcome.user)})"
            )
        return Authenticated(Principal(USER, outcome.user), outcome.lifetime_ms)


class OAuthBearerClient:
    """See `ClientMechanism`.

    Args:
        token: that is shown.
        extensions: that go with it.
    """

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        pairs = {"auth": f"Bearer {token}", **extensions}
        self._message = "n,," + _END + "".join(f"{name}={value}{_END}" for name, value in pairs.items()) + _END
        self._refusal = ""
        self._step: Callable[[bytes], ClientStep] = self._first

    def step(self, token: bytes) -> ClientStep:
        step, self._step = self._step, Spent().step
        return step(token)

    def _first(self, token: bytes) -> ClientStep:
        self._step = self._answered
        return Challenge(self._message.encode())

    def _answered(self, token: bytes) -> ClientStep:
        if not token:
            return Complete()
        self._step = self._refused
        return Challenge(_END.encode())

    def _refused(self, token: bytes) -> ClientStep:
        return Failed("the server has refused the token, and does not close the connection")


@dataclass(frozen=True, slots=True)
class InitialMessage:
    """What a client begins with."""

    authorization_id: str
    token: str = field(repr=False)
    extensions: Mapping[str, str] = field(repr=False)


def parse_message(message: bytes) -> InitialMessage | None:
    """None for what is no initial message, and for a longer one than `LONGEST_MESSAGE`.

    >>> parse_message(b"n,a=alice,\\x01auth=Bearer abc\\x01\\x01").authorization_id
    'alice'
    """
    if len(message) > LONGEST_MESSAGE or not message.isascii():
        return None
    match = _INITIAL.fullmatch(message.decode("ascii"))
    if match is None:
        return None
    pairs = dict(pair.split("=", 1) for pair in match["pairs"].split(_END) if pair)
    auth = _AUTH.fullmatch(pairs.pop("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        return None
    return InitialMessage(match["authorization"] or "", auth["token"], pairs)


def is_extension(name: str, value: str) -> bool:
    """Whether a client may send it."""
    return re.fullmatch(_KEY, name) is not None and name != "auth" and re.fullmatch(_VALUE, value) is not None


def _shown(text: str) -> str:
    return "".join(one if one.isprintable() else "?" for one in text)

"""A SASL mechanism, as both sides of a connection see it: tokens in, tokens or an outcome out. Pure.

    server                                       client
    step(token) -> Challenge(token)              step(b"") -> Challenge(first token)
    step(token) -> Authenticated | Failed        step(token) -> Challenge(token) | Complete | Failed

An object serves one exchange; a step after its outcome fails. No bytes make `step` raise. What Failed says is told to
the peer: no secret is in it, and not whether a user exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from ottla_broker.security.principals import Principal

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
GSSAPI: Final = "GSSAPI"
OAUTHBEARER: Final = "OAUTHBEARER"

MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)
"""Those that are served, to brokers and by clients."""
OF_BROKERS: Final = (GSSAPI,)
"""Those that listeners of brokers have as well."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """The exchange goes on: the token is for the other side."""

    token: bytes


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The client is who it says.

    Args:
        lifetime_ms: after which its credentials are worth nothing; None when they have no end.
        token: the last one for the client.
    """

    principal: Principal
    lifetime_ms: int | None = None
    token: bytes = b""


@dataclass(frozen=True, slots=True)
class Failed:
    """The exchange has ended without success.

    Args:
        message: for the peer; "" where it is told no more than that the credentials are not valid.
        detail: for this side's log alone.
        is_told: False for a server that says nothing: the peer is to try again.
    """

    message: str = ""
    detail: str = ""
    is_told: bool = True


@dataclass(frozen=True, slots=True)
class Complete:
    """The server has proved what it had to; nothing more is sent."""


ServerStep: TypeAlias = Challenge | Authenticated | Failed
ClientStep: TypeAlias = Challenge | Complete | Failed


class ServerMechanism(Protocol):
    """The side that a client logs in to."""

    def step(self, token: bytes) -> ServerStep:
        """Takes the client's next token. One of GSSAPI reads files: it is not for the event loop."""
        ...


class ClientMechanism(Protocol):
    """The side that logs in. Its first step takes b""."""

    def step(self, token: bytes) -> ClientStep:
        """Takes the server's next token. May take milliseconds, those that derive a key from a password."""
        ...


class Spent:
    """What an exchange is after its outcome, on either side."""

    def step(self, token: bytes) -> Failed:
        return Failed()

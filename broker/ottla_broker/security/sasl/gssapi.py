"""GSSAPI with Kerberos: tickets of a key distribution center instead of passwords (RFC 4752). Pure.

    client: the ticket for the service              server: its proof that it could read it
    client: b""                                     server: what may protect messages, wrapped
    client: what shall protect them, wrapped        server: b"", or a failure

Nothing protects messages behind the exchange: TLS does that, or nobody. Tickets are read and made by the Kerberos
library, behind `SecurityContext` (`ottla_broker.security.kerberos`), whose steps read files and, on the client's side,
ask the key distribution center: they are not for the event loop.

Source: com.sun.security.sasl.gsskerb.GssKrb5Server and GssKrb5Client; SaslServerCallbackHandler, by which a client may
name any authorization id: who it is is in its ticket alone. Clients name their own principal, nobody, or the service.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from ottla_broker.security.kerberos_rules import NoShortName
from ottla_broker.security.principals import USER, Principal
from ottla_broker.security.sasl.mechanism import (
    GSSAPI,
    Authenticated,
    Challenge,
    ClientStep,
    Complete,
    Failed,
    ServerStep,
    Spent,
)

_NO_LAYER: Final = 1
"""The bit of messages that nothing protects; 2 is integrity, 4 confidentiality."""
_OFFER: Final = bytes((_NO_LAYER, 0, 0, 0))
"""From either side: the layers, and the longest message with one, in bytes, which is 0 where none is served."""
_SHORTEST: Final = len(_OFFER)


class KerberosFailure(Exception):
    """A ticket, a keytab or a key distribution center is not as it has to be; the message says how.

    Args:
        passes: the same client may well succeed when it tries again.
    """

    def __init__(self, message: str, *, passes: bool = False) -> None:
        super().__init__(message)
        self.passes = passes


class SecurityContext(Protocol):
    """One side of a context of GSS-API (RFC 2743). Every method raises KerberosFailure."""

    @property
    def is_established(self) -> bool: ...

    @property
    def peer(self) -> str:
        """The principal of the other side, such as alice@EXAMPLE, once the context is established."""
        ...

    def step(self, token: bytes) -> bytes:
        """Takes the other side's token, b"" for the first of a client. Gives the next one for it; b"" for none."""
        ...

    def wrap(self, message: bytes) -> bytes:
        """The message with what proves where it comes from."""
        ...

    def unwrap(self, token: bytes) -> bytes:
        """The message of the other side."""
        ...


@dataclass(frozen=True, slots=True)
class KerberosLogin:
    """How a client logs in by GSSAPI.

    Args:
        initiate: makes this side of a context with the service on a host, by its name.
        turn: held during a step, which may wait for a key distribution center: a thread or two do, and not all.
    """

    initiate: Callable[[str], SecurityContext]
    turn: AbstractAsyncContextManager[object]
    mechanism: str = GSSAPI


class GssapiServer:
    """See `ServerMechanism`. Its steps may take milliseconds.

    Args:
        accept: makes this side of a context; raises KerberosFailure.
        short_name: of a principal; raises NoShortName.
    """

    def __init__(self, accept: Callable[[], SecurityContext], short_name: Callable[[str], str]) -> None:
        self._accept = accept
        self._short_name = short_name
        self._context: SecurityContext | None = None
        self._step: Callable[[bytes], ServerStep] = self._establish

    def step(self, token: bytes) -> ServerStep:
        step, self._step = self._step, Spent().step
        try:
            return step(token)
        except KerberosFailure as failure:
            return Failed(detail=str(failure), is_told=not failure.passes)

    def _establish(self, token: bytes) -> ServerStep:
        if self._context is None:
            self._context = self._accept()
        answer = self._context.step(token)
        if not self._context.is_established:
            self._step = self._establish
            return Challenge(answer)
        if not answer:
            return self._offer(b"")
        self._step = self._offer
        return Challenge(answer)

    def _offer(self, token: bytes) -> ServerStep:
        if token:
            return Failed(detail="the client has sent a token where it has none")
        assert self._context is not None
        self._step = self._choose
        return Challenge(self._context.wrap(_OFFER))

    def _choose(self, token: bytes) -> ServerStep:
        assert self._context is not None
        chosen = self._context.unwrap(token)
        if len(chosen) < _SHORTEST or not chosen[0] & _NO_LAYER:
            return Failed(detail="the client wants messages to be protected, which GSSAPI does not do here")
        try:
            return Authenticated(Principal(USER, self._short_name(self._context.peer)))
        except NoShortName as error:
            return Failed(detail=str(error))


class GssapiClient:
    """See `ClientMechanism`. Its steps may take as long as a key distribution center does not answer.

    Args:
        initiate: makes this side of a context with the service; raises KerberosFailure.
    """

    def __init__(self, initiate: Callable[[], SecurityContext]) -> None:
        self._initiate = initiate
        self._context: SecurityContext | None = None
        self._step: Callable[[bytes], ClientStep] = self._establish

    def step(self, token: bytes) -> ClientStep:
        step, self._step = self._step, Spent().step
        try:
            return step(token)
        except KerberosFailure as failure:
            return Failed(str(failure))

    def _establish(self, token: bytes) -> ClientStep:
        if self._context is None:
            self._context = self._initiate()
        answer = self._context.step(token)
        self._step = self._choose if self._context.is_established else self._establish
        return Challenge(answer)

    def _choose(self, token: bytes) -> ClientStep:
        assert self._context is not None
        offered = self._context.unwrap(token)
        if len(offered) < _SHORTEST or not offered[0] & _NO_LAYER:
            return Failed("the server wants messages to be protected, which GSSAPI does not do here")
        self._step = self._end
        return Challenge(self._context.wrap(_OFFER))

    def _end(self, token: bytes) -> ClientStep:
        return Failed("the server has sent a token where GSSAPI has none") if token else Complete()

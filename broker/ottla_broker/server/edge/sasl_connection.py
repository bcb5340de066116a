"""SaslConnection: stands before the ClientConnection of a SASL listener, which gets frames once it has a principal.

It carries out what the table of `authentication` decides: it answers ApiVersions, SaslHandshake and SaslAuthenticate,
waits before it tells of a failure, and ends sessions (KIP-368). Once a client is authenticated a frame costs one
comparison of times. A mechanism that reads files takes its steps beside the event loop: nothing is read meanwhile, and
what it makes of a token is dropped when the connection has ended. Not here: mechanisms (`ottla_broker.security.sasl`),
and which of them a listener has (`sasl_listeners`).

A client that authenticates again may have requests in flight: its ClientConnection keeps SaslHandshake until they are
answered, as any other request, and then gives it back (`ClientConnection.reauthenticate`).
"""

from __future__ import annotations

import logging
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, TypeAlias

from ottla_broker.authorization.access import Access
from ottla_broker.ports.clock import Timer
from ottla_broker.ports.network import Chunk, Connection
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.sasl_authenticate import SaslAuthenticateResponse
from ottla_broker.protocol.generated.sasl_handshake import SaslHandshakeResponse
from ottla_broker.security.principal_builder import NoPrincipal
from ottla_broker.security.principals import ANONYMOUS, Principal
from ottla_broker.security.sasl.mechanism import Authenticated, Challenge, Failed, ServerMechanism, ServerStep
from ottla_broker.server.edge.authentication import (
    AuthenticateReceived,
    Authentication,
    AuthenticationDecision,
    AuthenticationEffect,
    AuthenticationEvent,
    AuthenticationState,
    DelayOver,
    HandshakeReceived,
    LimitReached,
    MechanismAnswered,
    OtherReceived,
    SessionEnded,
    TokenReceived,
    VersionsAnswered,
    VersionsReceived,
    decide,
)
from ottla_broker.server.handler_api import RequestContext

logger = logging.getLogger("ottla.server")

_REQUEST_START = struct.Struct(">hhi")  # api key, api version, correlation id
_HANDSHAKE, _VERSIONS, _AUTHENTICATE = (
    int(key) for key in (ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS, ApiKey.SASL_AUTHENTICATE)
)
_E = AuthenticationEffect
_S = AuthenticationState


TakeStep: TypeAlias = Callable[[ServerMechanism, bytes, Callable[[ServerStep], None]], None]
"""Gives a mechanism its token, and calls back on the event loop with what it makes of it."""


class AuthenticationOutcomes(Protocol):
    """Counts what becomes of the connections of one listener."""

    def succeeded(self, *, again: bool) -> None: ...

    def failed(self, *, again: bool) -> None: ...

    def expired(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SaslRules:
    """What holds for new connections of one listener.

    Args:
        mechanisms: makes the server's side of each enabled mechanism, by name.
        max_reauth_ms: `connections.max.reauth.ms` of each; 0 for sessions without an end.
        largest_bytes: of a frame before authentication.
        largest_request_bytes: of a frame behind it.
        failure_delay_s: before a failure is told.
        limit_s: a client that has not authenticated after so long is closed.
        beside_the_loop: how a step is taken by the mechanisms whose steps read files.
    """

    mechanisms: Mapping[str, Callable[[], ServerMechanism]]
    max_reauth_ms: Mapping[str, int]
    largest_bytes: int
    largest_request_bytes: int
    failure_delay_s: float
    limit_s: float
    outcomes: AuthenticationOutcomes
    beside_the_loop: Mapping[str, TakeStep] = field(default_factory=dict)


class AuthenticatedConnection(Protocol):
    """The ClientConnection, as it is seen from here."""

    listener: str
    number: int
    peer: tuple[str, int]
    client_software: tuple[str, str]

    def on_frame(self, frame: memoryview) -> None: ...

    def on_sent(self) -> None: ...

    def on_close(self, reason: str) -> None: ...

    def authenticated(self, principal: Principal) -> None: ...

    def pause(self) -> None: ...

    def read_on(self) -> None: ...

    def fail(self, reason: str) -> None: ...


class _VersionsSource:
    """The `RequestSource` of an ApiVersions request before authentication; its handler asks for no right."""

    is_privileged = False
    has_cluster_action = False
    principal = ANONYMOUS
    principal_name = ANONYMOUS.name
    access: Access | None = None

    def __init__(self, client: AuthenticatedConnection, connection: Connection, answer: Callable[..., None]) -> None:
        self.listener = client.listener
        self.number = client.number
        self.peer = client.peer
        self.client_software = client.client_software
        self.fail = client.fail
        self.complete = answer
        self._connection = connection

    @property
    def is_closed(self) -> bool:
        return self._connection.is_closed


class SaslConnection:
    """A `ConnectionHandler`.

    Args:
        dispatch: takes an ApiVersions request: its context, the frame, and where the body begins.
        monotonic: Clock.monotonic.
        call_later: Clock.call_later.
        build_principal: gives the principal in place of that of a mechanism; NoPrincipal where it has none. None: there
            is no other.
    """

    __slots__ = (
        "_authentication",
        "_build_principal",
        "_call_later",
        "_client",
        "_connection",
        "_dispatch",
        "_is_stepping",
        "_mechanism",
        "_monotonic",
        "_pending",
        "_request",
        "_rules",
        "_served_until",
        "_step",
        "_timer",
        "_waiting",
    )

    def __init__(
        self,
        client: AuthenticatedConnection,
        connection: Connection,
        rules: SaslRules,
        dispatch: Callable[[RequestContext, memoryview, int], None],
        monotonic: Callable[[], float],
        call_later: Callable[..., Timer],
        build_principal: Callable[[str, Principal], Principal] | None = None,
    ) -> None:
        self._client = client
        self._connection = connection
        self._rules = rules
        self._dispatch = dispatch
        self._monotonic = monotonic
        self._call_later = call_later
        self._build_principal = build_principal
        self._authentication = Authentication()
        self._served_until = -math.inf
        """Frames that come before are the client's."""
        self._mechanism: ServerMechanism | None = None
        self._step: ServerStep = Failed()
        """What the mechanism has made of the last token."""
        self._is_stepping = False
        """The mechanism works at a token beside the loop."""
        self._request = (0, 0, 0)
        """API, version and correlation id of the request in hand."""
        self._pending: list[Chunk] = []
        """The answer to a failure, until its delay is over."""
        self._waiting: list[memoryview] = []
        """What has come while ApiVersions is answered or the mechanism works: one frame, since nothing is read then."""
        connection.limit_frames(rules.largest_bytes)
        self._timer: Timer | None = call_later(rules.limit_s, self._limit_reached)
        """Of the time limit, then of the delay of a failure."""

    def on_frame(self, frame: memoryview) -> None:
        if self._monotonic() < self._served_until:
            self._client.on_frame(frame)
        else:
            self._receive(frame)

    def on_sent(self) -> None:
        if self._authentication.state is not _S.REFUSED:  # it would read on
            self._client.on_sent()

    def on_close(self, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()
        self._client.on_close(reason)

    def reauthenticate(self, frame: memoryview) -> bool:
        """Takes a SaslHandshake of an authenticated client, before whom no other request waits; False: it is served."""
        self._request, body = _start(frame)
        decision = self._decide(self._handshake(frame, body))
        return _E.SERVE not in decision.effects

    # -- frames --------------------------------------------------------------------------------------------------

    def _receive(self, frame: memoryview) -> None:
        """A frame of a client without a principal, or whose session is over."""
        state = self._authentication.state
        if state is _S.AUTHENTICATED:
            self._decide(SessionEnded())
            self._receive(frame)
        elif state is _S.ANSWERING_VERSIONS or self._is_stepping:
            self._waiting.append(frame)
            self._client.pause()
        elif state is _S.BARE_TOKENS:
            self._decide(TokenReceived(), bytes(frame))
        else:
            self._request, body = _start(frame)
            api_key = self._request[0]
            if state is _S.EXPIRED and api_key == _HANDSHAKE:
                self._client.on_frame(frame)  # it comes back when it is its turn
            elif api_key == _VERSIONS:
                self._decide(VersionsReceived())
                if self._authentication.state is _S.ANSWERING_VERSIONS:
                    self._answer_versions(frame, body)
            elif api_key == _HANDSHAKE:
                self._decide(self._handshake(frame, body))
            elif api_key == _AUTHENTICATE and (token := _token(self._request[1], frame, body)) is not None:
                self._decide(AuthenticateReceived(), token)
            else:
                self._decide(OtherReceived())

    def _handshake(self, frame: memoryview, body: int) -> AuthenticationEvent:
        version = self._request[1]
        try:
            mechanism = codec.module(_HANDSHAKE).read_request(version, frame, body).mechanism
        except codec.DecodeError:
            return OtherReceived()
        return HandshakeReceived(version, mechanism, mechanism in self._rules.mechanisms, self._monotonic())

    def _answer_versions(self, frame: memoryview, body: int) -> None:
        _, version, correlation_id = self._request
        source = _VersionsSource(self._client, self._connection, self._versions_answered)
        context = RequestContext(source, _VERSIONS, version, correlation_id, None, self._monotonic())
        self._client.pause()
        self._dispatch(context, frame, body)

    def _versions_answered(self, context: RequestContext, response: Any) -> None:
        self._client.client_software = context.connection.client_software
        self._send(
            codec.frame_response(context.api_key, context.api_version, context.correlation_id, response)  # type: ignore[arg-type]  # no range of a file
        )
        self._decide(VersionsAnswered(bool(response.error_code)))
        self._go_on()

    def _go_on(self) -> None:
        """Takes what has waited, then reads again."""
        waiting, self._waiting = self._waiting, []
        for frame in waiting:
            self.on_frame(frame)
        if not self._is_stepping and self._authentication.state not in (_S.ANSWERING_VERSIONS, _S.REFUSED):
            self._client.read_on()

    # -- decisions -----------------------------------------------------------------------------------------------

    def _decide(self, event: AuthenticationEvent, token: bytes = b"") -> AuthenticationDecision:
        before = self._authentication
        decision = decide(before, event)
        self._authentication = decision.authentication
        if decision.authentication.state is not _S.AUTHENTICATED and before.state in (_S.AUTHENTICATED, _S.EXPIRED):
            self._serve_no_more()
        is_late = _E.CLOSE_LATER in decision.effects
        for effect in decision.effects:
            if effect is _E.ANSWER_HANDSHAKE:
                response = SaslHandshakeResponse(
                    error_code=int(decision.error), mechanisms=list(self._rules.mechanisms)
                )
                self._answer(response, is_late=is_late)
            elif effect is _E.BEGIN_MECHANISM:
                self._mechanism = self._rules.mechanisms[self._authentication.mechanism]()
            elif effect is _E.GIVE_TOKEN:
                self._give(token)
            elif effect is _E.ANSWER_TOKEN:
                self._answer_token(before, decision, is_late=is_late)
            elif effect is _E.ANSWER_REQUEST:
                self._answer_misplaced(decision.error)
            elif effect is _E.ADMIT:
                self._admit(before)
            elif effect is _E.CLOSE_LATER:
                self._refuse(before, decision.reason)
            elif effect is _E.CLOSE:
                self._close(before, decision.reason)
        return decision

    def _serve_no_more(self) -> None:
        """Its session is over, or it authenticates again, for which it has as long as for the first time."""
        self._served_until = -math.inf
        if self._authentication.state in (_S.TOKENS, _S.BARE_TOKENS, _S.OTHER_MECHANISM):
            self._connection.limit_frames(self._rules.largest_bytes)
            self._timer = self._call_later(self._rules.limit_s, self._limit_reached)

    def _give(self, token: bytes) -> None:
        assert self._mechanism is not None
        take = self._rules.beside_the_loop.get(self._authentication.mechanism)
        if take is None:
            self._stepped(self._mechanism.step(token))
            return
        self._is_stepping = True
        self._client.pause()
        take(self._mechanism, token, self._stepped_beside)

    def _stepped_beside(self, step: ServerStep) -> None:
        self._is_stepping = False
        if not self._connection.is_closed:  # else its time limit, or the client, has ended it
            self._stepped(step)
            self._go_on()

    def _stepped(self, step: ServerStep) -> None:
        self._step = self._with_built_principal(step)
        self._decide(MechanismAnswered(self._step, self._lifetime_ms()))

    def _with_built_principal(self, step: ServerStep) -> ServerStep:
        if self._build_principal is None or not isinstance(step, Authenticated):
            return step
        try:
            return replace(step, principal=self._build_principal(self._authentication.mechanism, step.principal))
        except NoPrincipal as error:
            logger.warning("no principal for %s:%d on %s: %s", *self._client.peer, self._client.listener, error)
            return Failed()

    def _lifetime_ms(self) -> int | None:
        """How long the session lasts that begins now; None without an end."""
        step = self._step
        if not isinstance(step, Authenticated):
            return None
        longest = self._rules.max_reauth_ms.get(self._authentication.mechanism, 0)
        ends = [end for end in (step.lifetime_ms, longest if longest > 0 else None) if end is not None]
        return max(0, min(ends)) if ends else None

    def _answer_token(self, before: Authentication, decision: AuthenticationDecision, *, is_late: bool) -> None:
        token = self._step.token if isinstance(self._step, Challenge | Authenticated) and not is_late else b""
        if before.state is _S.BARE_TOKENS:
            self._send([len(token).to_bytes(4, "big") + token])
            return
        response = SaslAuthenticateResponse(
            error_code=int(decision.error),
            error_message=decision.reason,
            auth_bytes=token,
            session_lifetime_ms=0 if is_late else self._lifetime_ms() or 0,
        )
        self._answer(response, is_late=is_late)

    def _answer_misplaced(self, error: ErrorCode) -> None:
        """Answers a request of any API. Nothing is answered where the request cannot be read, or its response
        has no error code at the top."""
        api_key, version, _ = self._request
        try:
            spec = codec.spec(api_key)
            response = getattr(codec.module(api_key), f"{spec.name}Response")()
        except KeyError:
            return
        if not (spec.min_version <= version <= spec.max_version and hasattr(response, "error_code")):
            return
        try:
            without = codec.frame_response(*self._request, response)
            response.error_code = int(error)
            answer: Any = codec.frame_response(*self._request, response)
        except codec.EncodeError:
            return  # this version has no place for it, and refuses to leave it out
        if answer != without:  # else this version leaves it out
            self._pending = answer

    def _answer(self, response: object, *, is_late: bool) -> None:
        chunks: Any = codec.frame_response(*self._request, response)
        if is_late:
            self._pending = chunks
        else:
            self._send(chunks)

    def _send(self, chunks: list[Chunk]) -> None:
        self._connection.send(chunks, now=True)

    def _admit(self, before: Authentication) -> None:
        authentication = self._authentication
        assert authentication.principal is not None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lifetime_ms = self._lifetime_ms()
        self._served_until = math.inf if lifetime_ms is None else self._monotonic() + lifetime_ms / 1000
        self._mechanism, self._step = None, Failed()
        self._connection.limit_frames(self._rules.largest_request_bytes)
        if before.principal is None or before.principal.by_token != authentication.principal.by_token:
            self._client.authenticated(authentication.principal)
        self._rules.outcomes.succeeded(again=before.principal is not None)

    def _refuse(self, before: Authentication, reason: str) -> None:
        self._mechanism = None
        self._client.pause()
        self._rules.outcomes.failed(again=before.principal is not None)
        if isinstance(self._step, Failed) and self._step.detail:
            reason = f"{reason} ({self._step.detail})"
        logger.info("failed %s from %s:%d on %s: %s", before.attempt, *self._client.peer, self._client.listener, reason)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._call_later(self._rules.failure_delay_s, self._delay_over)

    def _delay_over(self) -> None:
        self._timer = None
        if not self._connection.is_closed:
            if self._pending:
                self._send(self._pending)
                self._connection.close_after_send()
            self._decide(DelayOver())

    def _close(self, before: Authentication, reason: str) -> None:
        if before.state is _S.EXPIRED:
            self._rules.outcomes.expired()
        elif before.state is not _S.REFUSED:
            self._rules.outcomes.failed(again=before.principal is not None)
        if reason:
            self._client.fail(reason)
        elif not self._pending:
            self._connection.close()

    def _limit_reached(self) -> None:
        self._timer = None
        if not self._connection.is_closed:
            self._decide(LimitReached())


_NO_REQUEST: Final = ((-1, 0, 0), 0)


def _start(frame: memoryview) -> tuple[tuple[int, int, int], int]:
    """API, version and correlation id of a request, and where its body begins; API -1 for what is none.

    An ApiVersions request of an unknown version is one all the same (KIP-511).
    """
    if len(frame) < _REQUEST_START.size:
        return _NO_REQUEST
    start = _REQUEST_START.unpack_from(frame)
    try:
        return start, codec.read_request_header(frame).body_offset
    except codec.DecodeError:
        return (start, _REQUEST_START.size) if start[0] == _VERSIONS else _NO_REQUEST


def _token(version: int, frame: memoryview, body: int) -> bytes | None:
    """The token of a SaslAuthenticate request; None when it cannot be read."""
    try:
        return bytes(codec.module(_AUTHENTICATE).read_request(version, frame, body).auth_bytes)
    except codec.DecodeError:
        return None

"""The authentication of one connection on a SASL listener, as one table of states and events.

`decide` takes where a connection stands and an event, and returns where it stands then, the effects that
`sasl_connection` carries out, and the reason. Pure: no clock, no socket, no await. Every pair of state and event has a
row in `TABLE`, or `REFUSED` says why it has none.

    NEW ──ApiVersions──▶ ANSWERING_VERSIONS ──answered──▶ VERSIONS_KNOWN      (an error in the answer: NEW again)
    NEW, VERSIONS_KNOWN ──SaslHandshake 0──▶ BARE_TOKENS ──┐
                        ──SaslHandshake 1──▶ TOKENS ───────┴──the mechanism is content──▶ AUTHENTICATED
    AUTHENTICATED ──its session ends──▶ EXPIRED
    AUTHENTICATED, EXPIRED ──SaslHandshake──▶ BARE_TOKENS or TOKENS, with the principal before; OTHER_MECHANISM
    whatever goes wrong ──▶ REFUSED, whose answer waits ──the delay is over──▶ CLOSED

    what comes       NEW        VERSIONS_KNOWN  TOKENS           BARE_TOKENS  AUTHENTICATED   EXPIRED
    ApiVersions      answered   closed          34, closed       (a token)    served          closed
    SaslHandshake    answered   answered        34, closed       (a token)    begins again    begins again
    SaslAuthenticate closed     closed          to the mechanism (a token)    served: 34      closed
    any other        closed     closed          34, closed       (a token)    served          closed

34 is ILLEGAL_SASL_STATE. A session has an end where `connections.max.reauth.ms` or the credential gives it one; without
an end, and within a second of the last, SaslHandshake is served too: its handler answers 34.

Source: org.apache.kafka.common.security.authenticator.SaslServerAuthenticator, KafkaChannel (KIP-152, KIP-368); every
row was seen on Apache Kafka 3.9.1.

    >>> now = Authentication()
    >>> now, effects, _, _ = decide(now, HandshakeReceived(1, "PLAIN", is_enabled=True, at=0.0))
    >>> now.state.value, [effect.value for effect in effects]
    ('tokens', ['answer the handshake', 'begin the mechanism'])
    >>> now = decide(now, AuthenticateReceived()).authentication
    >>> now, effects, _, _ = decide(now, MechanismAnswered(Authenticated(Principal("User", "alice")), None))
    >>> now.state.value, str(now.principal), [effect.value for effect in effects]
    ('authenticated', 'User:alice', ['answer the token', 'admit the principal'])
    >>> decide(now, OtherReceived()).effects[0].value
    'serve the request'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.security.principals import Principal
from ottla_broker.security.sasl.mechanism import Authenticated, Challenge, Failed, ServerStep

_SHORTEST_BETWEEN_S: Final = 1.0
"""Source: KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS."""


class AuthenticationState(Enum):
    NEW = "new"
    ANSWERING_VERSIONS = "answering versions"
    VERSIONS_KNOWN = "versions known"
    BARE_TOKENS = "bare tokens"
    TOKENS = "tokens"
    OTHER_MECHANISM = "other mechanism"
    """It began again with another mechanism than before."""
    AUTHENTICATED = "authenticated"
    EXPIRED = "expired"
    REFUSED = "refused"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Authentication:
    """Where a connection stands.

    Args:
        principal: who it is; stays while it authenticates again.
        mechanism: the one in use, or used last.
        session_ends: whether its session has an end.
        began_again_at: when it last authenticated again, Clock.monotonic; None for never.
    """

    state: AuthenticationState = AuthenticationState.NEW
    principal: Principal | None = None
    mechanism: str = ""
    session_ends: bool = False
    began_again_at: float | None = None

    @property
    def attempt(self) -> str:
        """As messages have it."""
        return "authentication" if self.principal is None else "re-authentication"


# Events


@dataclass(frozen=True, slots=True)
class VersionsReceived:
    """An ApiVersions request of any version."""


@dataclass(frozen=True, slots=True)
class VersionsAnswered:
    is_error: bool


@dataclass(frozen=True, slots=True)
class HandshakeReceived:
    """A SaslHandshake request.

    Args:
        is_enabled: the listener has the mechanism.
        at: Clock.monotonic.
    """

    version: int
    mechanism: str
    is_enabled: bool
    at: float


@dataclass(frozen=True, slots=True)
class AuthenticateReceived:
    """A SaslAuthenticate request."""


@dataclass(frozen=True, slots=True)
class TokenReceived:
    """A frame where bare tokens are expected."""


@dataclass(frozen=True, slots=True)
class OtherReceived:
    """A request of another API, or a frame that is no request."""


@dataclass(frozen=True, slots=True)
class MechanismAnswered:
    """What became of a token.

    Args:
        lifetime_ms: of the session that begins; None without an end.
    """

    step: ServerStep
    lifetime_ms: int | None


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The time of the session is over, as its next request shows."""


@dataclass(frozen=True, slots=True)
class LimitReached:
    """The client has taken too long."""


@dataclass(frozen=True, slots=True)
class DelayOver:
    """The delay of a failure is over."""


AuthenticationEvent: TypeAlias = (
    VersionsReceived
    | VersionsAnswered
    | HandshakeReceived
    | AuthenticateReceived
    | TokenReceived
    | OtherReceived
    | MechanismAnswered
    | SessionEnded
    | LimitReached
    | DelayOver
)


# Decisions


class AuthenticationEffect(Enum):
    """What is to be done, in this order."""

    ANSWER_VERSIONS = "answer ApiVersions"
    ANSWER_HANDSHAKE = "answer the handshake"
    """With the error of the decision, at once or when the delay is over."""
    BEGIN_MECHANISM = "begin the mechanism"
    GIVE_TOKEN = "give the token to the mechanism"
    ANSWER_TOKEN = "answer the token"
    """The same."""
    ANSWER_REQUEST = "answer the request"
    """With the error of the decision, where its response has a place for one."""
    ADMIT = "admit the principal"
    SERVE = "serve the request"
    CLOSE_LATER = "close when the delay is over"
    """Nothing is read until then, and what is to be answered waits too."""
    CLOSE = "close"


class AuthenticationDecision(NamedTuple):
    authentication: Authentication
    effects: tuple[AuthenticationEffect, ...] = ()
    reason: str = ""
    """Why it does not go on."""
    error: ErrorCode = ErrorCode.NONE


class UnknownEvent(AssertionError):
    """The state does not know the event: the caller's mistake."""


_Row: TypeAlias = Callable[[Authentication, Any], AuthenticationDecision]
_S = AuthenticationState
_E = AuthenticationEffect


def decide(authentication: Authentication, event: AuthenticationEvent) -> AuthenticationDecision:
    """The row of `TABLE` for this state and event. Raises UnknownEvent."""
    row = TABLE.get((authentication.state, type(event)))
    if row is None:
        raise UnknownEvent(f"{authentication.state} does not know {event}")
    return row(authentication, event)


# Rows


def _answer_versions(now: Authentication, event: VersionsReceived) -> AuthenticationDecision:
    return AuthenticationDecision(replace(now, state=_S.ANSWERING_VERSIONS), (_E.ANSWER_VERSIONS,))


def _versions_answered(now: Authentication, event: VersionsAnswered) -> AuthenticationDecision:
    return AuthenticationDecision(replace(now, state=_S.NEW if event.is_error else _S.VERSIONS_KNOWN))


def _versions_again(now: Authentication, event: VersionsReceived) -> AuthenticationDecision:
    return _closed(now, "a second ApiVersions before authentication")


def _handshake(now: Authentication, event: HandshakeReceived) -> AuthenticationDecision:
    if not event.is_enabled:
        # Who authenticates again is not answered, as by Apache Kafka.
        answer = (_E.ANSWER_HANDSHAKE,) if now.principal is None else ()
        return AuthenticationDecision(
            replace(now, state=_S.REFUSED),
            (*answer, _E.CLOSE_LATER),
            "it asks for a mechanism that the listener does not have",
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        )
    if now.principal is not None and event.mechanism != now.mechanism:
        return AuthenticationDecision(replace(now, state=_S.OTHER_MECHANISM), (_E.ANSWER_HANDSHAKE,))
    state = _S.BARE_TOKENS if event.version == 0 else _S.TOKENS
    return AuthenticationDecision(
        replace(now, state=state, mechanism=event.mechanism), (_E.ANSWER_HANDSHAKE, _E.BEGIN_MECHANISM)
    )


def _begin_again(now: Authentication, event: HandshakeReceived) -> AuthenticationDecision:
    if not now.session_ends or not _may_begin_again(now, event):
        return _serve(now, event)
    return _handshake(replace(now, began_again_at=event.at), event)


def _begin_again_expired(now: Authentication, event: HandshakeReceived) -> AuthenticationDecision:
    if not _may_begin_again(now, event):
        return _expired(now, event)
    return _handshake(replace(now, began_again_at=event.at), event)


def _may_begin_again(now: Authentication, event: HandshakeReceived) -> bool:
    return now.began_again_at is None or event.at - now.began_again_at >= _SHORTEST_BETWEEN_S


def _give_token(now: Authentication, event: AuthenticationEvent) -> AuthenticationDecision:
    return AuthenticationDecision(now, (_E.GIVE_TOKEN,))


def _step(now: Authentication, event: MechanismAnswered) -> AuthenticationDecision:
    match event.step:
        case Challenge():
            return AuthenticationDecision(now, (_E.ANSWER_TOKEN,))
        case Authenticated(principal=principal) if now.principal is not None and principal != now.principal:
            return _failed(
                now,
                f"Cannot change principals during re-authentication from {now.principal.type}.{now.principal.name}: "
                f"{principal.type}.{principal.name}",
            )
        case Authenticated(principal=principal):
            session_ends = event.lifetime_ms is not None
            return AuthenticationDecision(
                replace(now, state=_S.AUTHENTICATED, principal=principal, session_ends=session_ends),
                (_E.ANSWER_TOKEN, _E.ADMIT),
            )
        case Failed(is_told=False):
            return AuthenticationDecision(
                replace(now, state=_S.REFUSED), (_E.CLOSE_LATER,), "the client may try again by another connection"
            )
        case Failed(message=message):
            return _failed(
                now,
                message
                or f"Authentication failed during {now.attempt} due to invalid credentials with SASL mechanism "
                f"{now.mechanism}",
            )


def _failed(now: Authentication, reason: str) -> AuthenticationDecision:
    """Bare tokens have no place for an error."""
    answer = () if now.state is _S.BARE_TOKENS else (_E.ANSWER_TOKEN,)
    return AuthenticationDecision(
        replace(now, state=_S.REFUSED), (*answer, _E.CLOSE_LATER), reason, ErrorCode.SASL_AUTHENTICATION_FAILED
    )


def _out_of_place(now: Authentication, event: AuthenticationEvent) -> AuthenticationDecision:
    return AuthenticationDecision(
        replace(now, state=_S.REFUSED),
        (_E.ANSWER_REQUEST, _E.CLOSE_LATER),
        "another request where SaslAuthenticate is due",
        ErrorCode.ILLEGAL_SASL_STATE,
    )


def _unauthenticated(now: Authentication, event: AuthenticationEvent) -> AuthenticationDecision:
    return AuthenticationDecision(
        replace(now, state=_S.REFUSED),
        (_E.CLOSE_LATER,),
        "neither ApiVersions nor SaslHandshake comes first: does the client use SASL?",
    )


def _changed_mechanism(now: Authentication, event: AuthenticationEvent) -> AuthenticationDecision:
    return AuthenticationDecision(
        replace(now, state=_S.REFUSED), (_E.CLOSE_LATER,), "it authenticates again with another mechanism than before"
    )


def _serve(now: Authentication, event: AuthenticationEvent) -> AuthenticationDecision:
    return AuthenticationDecision(now, (_E.SERVE,))


def _expire(now: Authentication, event: SessionEnded) -> AuthenticationDecision:
    return AuthenticationDecision(replace(now, state=_S.EXPIRED))


def _expired(now: Authentication, event: AuthenticationEvent) -> AuthenticationDecision:
    return _closed(now, "its session is over and it has not authenticated again")


def _late(now: Authentication, event: LimitReached) -> AuthenticationDecision:
    return _closed(now, "it has not authenticated in time")


def _closed(now: Authentication, reason: str) -> AuthenticationDecision:
    return AuthenticationDecision(replace(now, state=_S.CLOSED), (_E.CLOSE,), reason)


def _end(now: Authentication, event: AuthenticationEvent) -> AuthenticationDecision:
    return AuthenticationDecision(replace(now, state=_S.CLOSED), (_E.CLOSE,))


def _nothing(now: Authentication, event: AuthenticationEvent) -> AuthenticationDecision:
    return AuthenticationDecision(now)


# The table


def _rows(
    kinds: Iterable[type[Any]], *parts: tuple[Iterable[AuthenticationState], _Row]
) -> dict[tuple[AuthenticationState, type[Any]], _Row]:
    return {(state, kind): row for kind in kinds for states, row in parts for state in states}


FIRST = (_S.NEW, _S.VERSIONS_KNOWN)
OVER = (_S.REFUSED, _S.CLOSED)
_REQUESTS = (VersionsReceived, HandshakeReceived, AuthenticateReceived, OtherReceived)
_PENDING = (*FIRST, _S.ANSWERING_VERSIONS, _S.BARE_TOKENS, _S.TOKENS, _S.OTHER_MECHANISM)

TABLE: Mapping[tuple[AuthenticationState, type[Any]], _Row] = MappingProxyType(
    {
        **_rows(
            _REQUESTS,
            (FIRST, _unauthenticated),
            ((_S.TOKENS,), _out_of_place),
            ((_S.OTHER_MECHANISM,), _changed_mechanism),
            ((_S.AUTHENTICATED,), _serve),
            ((_S.EXPIRED,), _expired),
            (OVER, _nothing),
        ),
        **_rows((VersionsReceived,), ((_S.NEW,), _answer_versions), ((_S.VERSIONS_KNOWN,), _versions_again)),
        **_rows((VersionsAnswered,), ((_S.ANSWERING_VERSIONS,), _versions_answered), (OVER, _nothing)),
        **_rows(
            (HandshakeReceived,),
            (FIRST, _handshake),
            ((_S.AUTHENTICATED,), _begin_again),
            ((_S.EXPIRED,), _begin_again_expired),
        ),
        **_rows((AuthenticateReceived,), ((_S.TOKENS,), _give_token)),
        **_rows((TokenReceived,), ((_S.BARE_TOKENS,), _give_token)),
        **_rows((MechanismAnswered,), ((_S.TOKENS, _S.BARE_TOKENS), _step)),
        **_rows((SessionEnded,), ((_S.AUTHENTICATED,), _expire)),
        **_rows((LimitReached,), (_PENDING, _late), ((_S.AUTHENTICATED, _S.EXPIRED, *OVER), _nothing)),
        **_rows((DelayOver,), ((_S.REFUSED,), _end), ((_S.CLOSED,), _nothing)),
    }
)

REFUSED: Mapping[type[Any], str] = MappingProxyType(
    {
        **dict.fromkeys(_REQUESTS, "nothing is read while ApiVersions is answered, and bare tokens are no requests"),
        VersionsAnswered: "ApiVersions is answered before anything else is read",
        TokenReceived: "a frame is a bare token only where those are expected",
        MechanismAnswered: "a mechanism answers before anything else is read, or is not heard any more",
        SessionEnded: "a session ends while it is in force",
        DelayOver: "only what is refused waits",
    }
)
"""Why the states that have no row in `TABLE` do not know the event."""

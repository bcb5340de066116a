"""What the claims of a token have to say, and who its bearer is then. Pure: the signature is `signatures`' matter.

    iss  sub  jti     text, where they are there; iss that of sasl.oauthbearer.expected.issuer
    aud               text or a list of it, one of sasl.oauthbearer.expected.audience; without that key none
    exp  iat          needed; seconds since the epoch
    exp  nbf          now is between them, with sasl.oauthbearer.clock.skew.seconds on either side

Source: org.apache.kafka.common.security.oauthbearer.internals.secured.ValidatorAccessTokenValidator and
ClaimValidationUtils (KIP-768); org.jose4j.jwt.consumer.JwtConsumer, which refuses a token for others as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla_broker.security.oauth.compact import TokenError

_MOST_SECONDS: Final = 2**53
"""Of a time that is taken: what a double holds exactly, and its milliseconds fit into 64 bits."""
_JAVA_SPACE: Final = "".join(map(chr, range(33)))
"""What `String.trim` of Java removes."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What `check_claims` asks for.

    Args:
        audiences: of which a token names one; empty: it names none.
        issuer: None for any.
        scope_claim: the name of the claim with the scope.
        subject_claim: the name of the claim with the user.
        skew_s: by which the clocks of the issuer and of this broker may differ.
    """

    audiences: tuple[str, ...] = ()
    issuer: str | None = None
    scope_claim: str = "scope"
    subject_claim: str = "sub"
    skew_s: int = 30


@dataclass(frozen=True, slots=True)
class Bearer:
    """Who has shown a token.

    Args:
        ends_ms: when the token ends, in milliseconds since the epoch.
    """

    user: str
    ends_ms: int


def check_claims(claims: Mapping[str, Any], rules: TokenRules, now_s: float) -> Bearer:
    """The bearer of a token with these claims.

    Args:
        now_s: seconds since the epoch.

    Raises:
        TokenError: a claim is missing, of another type, or says that the token is not for now or for here.
    """
    for name in ("iss", "sub", "jti"):
        if name in claims and not isinstance(claims[name], str):
            raise TokenError(f"claim {name} is not text")
    _check_audience(claims.get("aud"), rules.audiences)
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise TokenError("claim iss is not sasl.oauthbearer.expected.issuer")
    ends = _check_times(claims, rules.skew_s, now_s)
    _check_scope(claims.get(rules.scope_claim), rules.scope_claim)
    return Bearer(_text(claims.get(rules.subject_claim), rules.subject_claim), ends * 1000)


def seconds(claims: Mapping[str, Any], name: str) -> int | None:
    """A claim that is a time in seconds since the epoch; None without it. Raises TokenError."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenError(f"claim {name} is no number")
    if not 0 <= value < _MOST_SECONDS:  # nor infinity, nor what is no number
        raise TokenError(f"claim {name} is no time in seconds since 1970")
    return int(value)


def _check_audience(named: Any, audiences: tuple[str, ...]) -> None:
    names = [named] if isinstance(named, str) else [] if named is None else named
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TokenError("claim aud is neither text nor a list of texts")
    if not audiences:
        if named is not None:
            raise TokenError("it has claim aud, and sasl.oauthbearer.expected.audience names no audience")
    elif not set(names) & set(audiences):
        raise TokenError("claim aud has none of sasl.oauthbearer.expected.audience")


def _check_times(claims: Mapping[str, Any], skew_s: int, now_s: float) -> int:
    """The end of the token."""
    ends, begins, issued = seconds(claims, "exp"), seconds(claims, "nbf"), seconds(claims, "iat")
    if ends is None:
        raise TokenError("it has no claim exp")
    if issued is None:
        raise TokenError("it has no claim iat")
    if int(now_s) - skew_s >= ends:
        raise TokenError("it has expired")
    if ends < issued or (begins is not None and ends < begins):
        raise TokenError("claim exp is before its claim iat or nbf")
    if begins is not None and int(now_s) + skew_s < begins:
        raise TokenError("claim nbf says that it is not valid yet")
    return ends


def _check_scope(scope: Any, name: str) -> None:
    """Text or a list of different texts; whatever else it is, is none. No scope is asked for."""
    if isinstance(scope, str):
        _text(scope, name)
    elif isinstance(scope, list):
        texts = [_text(one, name) for one in scope]
        if len(set(texts)) != len(texts):
            raise TokenError(f"claim {name} has one scope twice")


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise TokenError(f"it has no claim {name} that is text")
    text = value.strip(_JAVA_SPACE)
    if not text:
        raise TokenError(f"claim {name} is empty")
    return text

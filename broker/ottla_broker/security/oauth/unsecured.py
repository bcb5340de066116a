"""Tokens that nobody has signed (KIP-255): anybody makes one for any user. For tests and development alone. Pure.

Source: org.apache.kafka.common.security.oauthbearer.internals.unsecured: OAuthBearerUnsecuredValidatorCallbackHandler,
OAuthBearerUnsecuredJws, OAuthBearerValidationUtils, OAuthBearerUnsecuredLoginCallbackHandler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla_broker.security.oauth.claims import Bearer, seconds
from ottla_broker.security.oauth.compact import CompactToken, TokenError, write_compact

_VALIDATOR = "unsecuredValidator"
_LOGIN = "unsecuredLogin"
_STRING_CLAIM = f"{_LOGIN}StringClaim_"
_DEFAULT_LIFETIME_S = 3600


class InsufficientScope(TokenError):
    """The token does not have a scope that is asked for.

    Args:
        scope: all that are asked for, as Apache Kafka writes a set.
    """

    def __init__(self, scope: str) -> None:
        self.scope = scope
        super().__init__("it does not have each scope of unsecuredValidatorRequiredScope")


@dataclass(frozen=True, slots=True)
class UnsecuredRules:
    """The options of a JAAS line for these tokens.

    Args:
        skew_ms: by which clocks may differ.
    """

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    skew_ms: int = 0


def unsecured_rules(options: Mapping[str, str]) -> UnsecuredRules:
    """Raises ValueError: unsecuredValidatorAllowableClockSkewMs is no number of milliseconds."""
    skew = options.get(f"{_VALIDATOR}AllowableClockSkewMs", "").strip() or "0"
    if not (skew.isascii() and skew.isdecimal() and len(skew) < 10):
        raise ValueError(f"{_VALIDATOR}AllowableClockSkewMs is no number of milliseconds")
    return UnsecuredRules(
        options.get(f"{_VALIDATOR}PrincipalClaimName", "").strip() or "sub",
        options.get(f"{_VALIDATOR}ScopeClaimName", "").strip() or "scope",
        tuple(options.get(f"{_VALIDATOR}RequiredScope", "").split()),
        int(skew),
    )


def check_unsecured(token: CompactToken, rules: UnsecuredRules, now_ms: int) -> Bearer:
    """The bearer of a token.

    Args:
        now_ms: milliseconds since the epoch.

    Raises:
        InsufficientScope: see there.
        TokenError: it is signed, has ended, is not valid yet, or a claim is missing or of another type.
    """
    if token.header.get("alg") != "none" or token.signature:
        raise TokenError("it is signed, and sasl.oauthbearer.jwks.endpoint.url is not given")
    claims = token.claims
    user = claims.get(rules.principal_claim)
    if not isinstance(user, str) or not user.strip():
        raise TokenError(f"it has no claim {rules.principal_claim} that is text")
    issued, ends = seconds(claims, "iat"), seconds(claims, "exp")
    if issued is not None and issued * 1000 > now_ms + rules.skew_ms:
        raise TokenError("claim iat is in the future")
    if ends is None:
        raise TokenError("it has no claim exp")
    if now_ms - rules.skew_ms >= ends * 1000:
        raise TokenError("it has expired")
    if issued is not None and ends <= issued:
        raise TokenError("claim exp is not behind its claim iat")
    if not set(rules.required_scope) <= _scope(claims.get(rules.scope_claim)):
        raise InsufficientScope(f"[{', '.join(rules.required_scope)}]")
    return Bearer(user, ends * 1000)


@dataclass(frozen=True, slots=True)
class UnsecuredClaims:
    """What a client that makes such a token says in it.

    Args:
        lifetime_s: how long it is valid.
    """

    texts: tuple[tuple[str, str], ...]
    lifetime_s: int = _DEFAULT_LIFETIME_S

    def token(self, now_ms: int) -> str:
        """A token from now on."""
        claims = {**dict(self.texts), "iat": now_ms / 1000, "exp": now_ms / 1000 + self.lifetime_s}
        return write_compact({"alg": "none"}, claims)


def unsecured_claims(options: Mapping[str, str]) -> UnsecuredClaims | None:
    """The claims by a JAAS line; None where it has no user for such a token.

    Raises:
        ValueError: it has an option for them that is not served, or whose value cannot be used.
    """
    texts = tuple(
        (name.removeprefix(_STRING_CLAIM), value) for name, value in options.items() if name.startswith(_STRING_CLAIM)
    )
    lifetime = options.get(f"{_LOGIN}LifetimeSeconds", str(_DEFAULT_LIFETIME_S)).strip()
    for name in options:
        if name.startswith(_LOGIN) and not name.startswith(_STRING_CLAIM) and name != f"{_LOGIN}LifetimeSeconds":
            raise ValueError(f"{name} is not served: {_STRING_CLAIM}NAME and {_LOGIN}LifetimeSeconds are")
    if not dict(texts).get("sub"):
        return None
    if not (lifetime.isascii() and lifetime.isdecimal() and 0 < len(lifetime) < 10 and int(lifetime)):
        raise ValueError(f"{_LOGIN}LifetimeSeconds is no number of seconds")
    return UnsecuredClaims(texts, int(lifetime))


def _scope(value: Any) -> set[str]:
    """A text is one scope, also with a space in it."""
    if isinstance(value, str):
        return {value.strip()}
    if isinstance(value, list):
        return {one.strip() for one in value if isinstance(one, str)}
    return set()

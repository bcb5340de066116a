"""Delegation tokens: who may do what with one, when it ends, and how its holder logs in (KIP-48, KIP-373). Pure.

    created 12:00, max.lifetime 7 d, expiry.time 1 d    expires tomorrow 12:00, at the latest in 7 d
    renewed tomorrow at 11:00                           expires a day after that
    renewed on the seventh day                          expires at the end of the seven days
    expired with a negative period                      is gone

A token has an id and an hmac: HMAC-SHA-512 of the id, with the secret that all brokers share
(delegation.token.secret.key). Whoever has both logs in by SCRAM, as the token's owner: the id is the name, the hmac in
Base64 the password. The hmac is stored nowhere.

Not here: where tokens are kept (`server.store.stored_tokens`), rights that ACLs give.

Source: kafka.server.DelegationTokenManager, DelegationTokenManagerZk; TokenInformation.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.security.principals import Principal
from ottla_broker.security.sasl.scram import FEWEST_ITERATIONS, ScramAlgorithm, ScramCredential

_LATEST_MS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """Times in milliseconds since the epoch.

    Args:
        requester: who asked for it; the owner, or whoever may create tokens for the owner.
        max_timestamp_ms: it cannot be renewed beyond that.
    """

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiry_timestamp_ms: int

    @property
    def end_ms(self) -> int:
        """When it ends, as it is stored now."""
        return min(self.max_timestamp_ms, self.expiry_timestamp_ms)

    def is_expired(self, now_ms: int) -> bool:
        """
        >>> alice = Principal("User", "alice")
        >>> token = DelegationToken("id", alice, alice, (), 0, 3, 2)
        >>> token.is_expired(2), token.is_expired(3)
        (False, True)
        """
        return self.end_ms < now_ms

    def is_of(self, principal: Principal) -> bool:
        """Owner, requester or renewer: may renew, expire and see it. Source: TokenInformation.ownerOrRenewer."""
        return principal in (self.owner, self.requester, *self.renewers)


@dataclass(frozen=True, slots=True)
class TokenPeriods:
    """In milliseconds: `delegation.token.max.lifetime.ms` and `delegation.token.expiry.time.ms`."""

    longest_ms: int
    renewal_ms: int


def new_token(
    token_id: str,
    owner: Principal,
    requester: Principal,
    renewers: tuple[Principal, ...],
    asked_ms: int,
    now_ms: int,
    periods: TokenPeriods,
) -> DelegationToken:
    """
    >>> alice = Principal("User", "alice")
    >>> token = new_token("id", alice, alice, (), -1, 1000, TokenPeriods(longest_ms=70, renewal_ms=10))
    >>> token.issue_timestamp_ms, token.expiry_timestamp_ms, token.max_timestamp_ms
    (1000, 1010, 1070)

    Args:
        asked_ms: for how long it may be renewed, as asked for; the longest that there is for 0 or less.
    """
    longest = min(asked_ms, periods.longest_ms) if asked_ms > 0 else periods.longest_ms
    latest = min(now_ms + longest, _LATEST_MS)
    return DelegationToken(
        token_id, owner, requester, renewers, now_ms, latest, min(latest, now_ms + periods.renewal_ms)
    )


def renewed(
    token: DelegationToken, principal: Principal, period_ms: int, now_ms: int, periods: TokenPeriods
) -> DelegationToken:
    """The token with its next expiry.

    Args:
        period_ms: from now on; a negative one is that of the broker.

    Raises:
        KafkaError: in this order DELEGATION_TOKEN_OWNER_MISMATCH, DELEGATION_TOKEN_EXPIRED.
    """
    _check_owner(token, principal)
    _check_expiry(token, now_ms)
    return _until(token, now_ms + (periods.renewal_ms if period_ms < 0 else period_ms))


def expired(token: DelegationToken, principal: Principal, period_ms: int, now_ms: int) -> DelegationToken | None:
    """The token with another expiry; None when it is to be removed.

    Args:
        period_ms: from now on; a negative one ends it at once.

    Raises:
        KafkaError: in this order DELEGATION_TOKEN_OWNER_MISMATCH, DELEGATION_TOKEN_EXPIRED (not for a negative period).
    """
    _check_owner(token, principal)
    if period_ms < 0:
        return None
    _check_expiry(token, now_ms)
    return _until(token, now_ms + period_ms)


def is_described(
    token: DelegationToken,
    principal: Principal,
    owners: Collection[Principal] | None,
    may_see: Callable[[DelegationToken], bool],
) -> bool:
    """Whether DescribeDelegationToken shows it.

    Args:
        owners: those who are asked for: of whom it is; None for all.
        may_see: whether a right lets the principal see a token that is not its own.
    """
    if owners is not None and not any(map(token.is_of, owners)):
        return False
    return token.is_of(principal) or may_see(token)


class TokenSecret:
    """delegation.token.secret.key, which no `repr` shows."""

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        self._key = key.encode()

    def hmac(self, token_id: str) -> bytes:
        """
        >>> TokenSecret("secret").hmac("id-1").hex()[:16]
        'f1315f646619ac07'
        """
        return hmac.digest(self._key, token_id.encode(), "sha512")

    def credential(self, algorithm: ScramAlgorithm, token_id: str, salt: bytes) -> ScramCredential:
        """With which the holder of the hmac logs in. Takes milliseconds."""
        password = base64.b64encode(self.hmac(token_id)).decode()
        return ScramCredential.of(algorithm, password, salt, FEWEST_ITERATIONS)


def _check_owner(token: DelegationToken, principal: Principal) -> None:
    if not token.is_of(principal):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _check_expiry(token: DelegationToken, now_ms: int) -> None:
    if token.is_expired(now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)


def _until(token: DelegationToken, expiry_ms: int) -> DelegationToken:
    return replace(token, expiry_timestamp_ms=min(token.max_timestamp_ms, expiry_ms))

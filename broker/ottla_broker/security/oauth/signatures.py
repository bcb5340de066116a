"""The keys with which tokens are signed (JWKS), and the check of a signature by them. Pure.

Only keys of pairs are taken, and only the algorithms named here: a token without a signature, or one that is signed
with what is public, gets nobody in. What a key of the set says about itself (`kty`, `crv`, `alg`, `use`, `key_ops`)
holds. Imported by a broker that checks tokens, and by no other: joserfc and cryptography take 15 MB.

Source: RFC 7517, RFC 7518; org.jose4j.jwk.VerificationJwkSelector, JwksFileVerificationKeyResolver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from ottla_broker.security.oauth.compact import CompactToken, TokenError, json_object

_KEY_OF: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", ())),
    "ES256": ("EC", ("P-256",)),
    "ES384": ("EC", ("P-384",)),
    "ES512": ("EC", ("P-521",)),
    "EdDSA": ("OKP", ("Ed25519", "Ed448")),
}
ALGORITHMS: Final = tuple(_KEY_OF)
"""Those that are taken. `none` and HS256 to HS512 are not among them."""
_TYPES: Final[Mapping[str, tuple[Any, tuple[str, ...]]]] = {
    "RSA": (RSAKey, ("n", "e")),
    "EC": (ECKey, ("crv", "x", "y")),
    "OKP": (OKPKey, ("crv", "x")),
}
_CURVES: Final = frozenset(curve for _, curves in _KEY_OF.values() for curve in curves)
_MOST_KEYS: Final = 100
_FEWEST_RSA_BITS: Final = 2048
_MOST_RSA_BITS: Final = 8192
_RSA_LENGTHS: Final = range(342, 1367)
"""Of a modulus of so many bits in Base64url."""
_MOST_TRIED: Final = 4
"""So many keys that fit are tried for one token."""


class KeySetError(ValueError):
    """A set of keys that cannot be used. The message has no part of it."""


class UnknownKey(TokenError):
    """The set has no key that the token could be signed with.

    Args:
        key_id: its `kid`; "" without one.
    """

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id
        super().__init__("no key of sasl.oauthbearer.jwks.endpoint.url is the one that it is signed with")


@dataclass(frozen=True, slots=True)
class _VerificationKey:
    key_id: str | None
    kind: str
    curve: str
    algorithm: str | None
    key: Any = field(repr=False)

    def fits(self, key_id: str | None, algorithm: str) -> bool:
        kind, curves = _KEY_OF[algorithm]
        return (
            (key_id is None or key_id == self.key_id)
            and kind == self.kind
            and (not curves or self.curve in curves)
            and self.algorithm in (None, algorithm)
        )


class VerificationKeys:
    """The keys of one set."""

    def __init__(self, keys: Sequence[_VerificationKey] = ()) -> None:
        self._keys = tuple(keys)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def ids(self) -> tuple[str | None, ...]:
        """The `kid` of each."""
        return tuple(key.key_id for key in self._keys)

    def check(self, token: CompactToken) -> None:
        """Whether the token is signed with one of them. Takes 30 µs with RSA of 2048 bits.

        Raises:
            UnknownKey: none of them can be the one.
            TokenError: its algorithm is not taken, or the signature is not right.
        """
        header = token.header
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise TokenError(f"its algorithm is none of {', '.join(ALGORITHMS)}")
        if key_id is not None and not isinstance(key_id, str):
            raise TokenError("kid in its header is not text")
        if "crit" in header:
            raise TokenError("its header has crit: no extension is known")
        fitting = [key for key in self._keys if key.fits(key_id, algorithm)]
        if not fitting:
            raise UnknownKey(key_id or "")
        if not any(_is_signed(token, algorithm, key.key) for key in fitting[:_MOST_TRIED]):
            raise TokenError("its signature is not right")


def read_keys(content: bytes) -> VerificationKeys:
    """The keys of a JWKS that can be used; others in it, as those for encryption, are left out.

    Raises:
        KeySetError: it is no JWKS, or none of its keys can be used.
    """
    try:
        entries = json_object(content, "the set").get("keys")
    except TokenError as error:
        raise KeySetError(str(error)) from None
    if not isinstance(entries, list):
        raise KeySetError("it has no list of keys, so it is no JWKS")
    if len(entries) > _MOST_KEYS:
        raise KeySetError(f"it has {len(entries)} keys, more than {_MOST_KEYS}")
    keys = [key for key in map(_read, entries) if key is not None]
    if not keys:
        raise KeySetError(
            f"none of its {len(entries)} keys can be used: RSA of {_FEWEST_RSA_BITS} bits and more, "
            f"{', '.join(sorted(_CURVES))}, for signatures"
        )
    return VerificationKeys(keys)


def _read(entry: Any) -> _VerificationKey | None:
    if not isinstance(entry, dict):
        return None
    kind, curve, algorithm = (entry.get(name, "") for name in ("kty", "crv", "alg"))
    key_id, use, operations = entry.get("kid"), entry.get("use", "sig"), entry.get("key_ops", ["verify"])
    if not all(isinstance(one, str) for one in (kind, curve, algorithm, "" if key_id is None else key_id)):
        return None
    if kind not in _TYPES or algorithm not in ("", *ALGORITHMS):
        return None
    if use != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return None
    made, members = _TYPES[kind]
    if not all(isinstance(entry.get(name), str) for name in members):
        return None
    if (curve not in _CURVES) if "crv" in members else (len(entry["n"]) not in _RSA_LENGTHS):
        return None
    try:
        # Of a set that has private keys as well, only the public ones are taken.
        key: Any = made.import_key({"kty": kind, **{name: entry[name] for name in members}})
        public = key.public_key
    except (JoseError, ValueError, KeyError, TypeError):
        return None
    if isinstance(public, RSAPublicKey) and not _FEWEST_RSA_BITS <= public.key_size <= _MOST_RSA_BITS:
        return None
    return _VerificationKey(key_id, kind, curve if "crv" in members else "", algorithm or None, key)


def _is_signed(token: CompactToken, algorithm: str, key: Any) -> bool:
    model = JWSRegistry.algorithms[algorithm]
    try:
        model.check_key(key)
        return bool(model.verify(token.signed, token.signature, key))
    except (JoseError, ValueError, TypeError):  # a signature that is none of its algorithm
        return False

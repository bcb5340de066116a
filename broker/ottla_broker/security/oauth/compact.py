"""JSON web tokens in their compact form: header and claims of a text, without a look at its signature. Pure.

    BASE64URL(header) . BASE64URL(claims) . BASE64URL(signature)

Names that stand twice in an object are refused: two readers could see two values.

Source: RFC 7515, RFC 7519; org.apache.kafka.common.security.oauthbearer.internals.secured.SerializedJwt.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

LONGEST_TOKEN: Final = 16 * 1024
"""In characters: ten times that of a user in a hundred groups. To read a longer one costs the loop more than to refuse
it."""
_SEGMENT = re.compile(r"[A-Za-z0-9_-]*")


class TokenError(ValueError):
    """A token that is not taken. The message has no part of it."""


@dataclass(frozen=True, slots=True)
class CompactToken:
    """A token that has been read, and nothing of which is known to be true.

    Args:
        signed: the bytes that the signature is about.
    """

    header: Mapping[str, Any] = field(repr=False)
    claims: Mapping[str, Any] = field(repr=False)
    signed: bytes = field(repr=False)
    signature: bytes = field(repr=False)


def parse_compact(text: str) -> CompactToken:
    """Raises TokenError."""
    if len(text) > LONGEST_TOKEN:
        raise TokenError(f"it has {len(text)} characters, more than {LONGEST_TOKEN}")
    segments = text.split(".")
    if len(segments) != 3:
        raise TokenError(f"it has {len(segments)} parts, and a JSON web token three")
    header, claims, signature = (
        _decoded(segment, name) for segment, name in zip(segments, ("header", "claims", "signature"), strict=True)
    )
    signed = f"{segments[0]}.{segments[1]}".encode("ascii")
    return CompactToken(json_object(header, "its header"), json_object(claims, "its claims"), signed, signature)


def write_compact(header: Mapping[str, Any], claims: Mapping[str, Any], signature: bytes = b"") -> str:
    """The text of a token.

    >>> write_compact({"alg": "none"}, {"sub": "alice"})
    'eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9.'
    """
    parts = (json.dumps(part, separators=(",", ":")).encode() for part in (header, claims))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (*parts, signature))


def json_object(data: bytes, what: str) -> dict[str, Any]:
    """A JSON object by RFC 8259 whose names are different.

    Args:
        what: it is, for messages.

    Raises:
        TokenError: it is none.
    """
    try:
        found = json.loads(data.decode(), object_pairs_hook=_without_duplicates, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:  # a text that is not UTF-8 or JSON, a number of 5000 digits
        reason = str(error) if isinstance(error, TokenError) else "no JSON"
        raise TokenError(f"{what} cannot be read: {reason}") from None
    if not isinstance(found, dict):
        raise TokenError(f"{what} cannot be read: no JSON object")
    return found


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise TokenError("a name stands twice")
    return found


def _no_number(constant: str) -> NoReturn:
    raise TokenError("NaN and Infinity are no numbers of JSON")


def _decoded(segment: str, name: str) -> bytes:
    if _SEGMENT.fullmatch(segment) is None:
        raise TokenError(f"its {name} is not in Base64url")
    try:
        return base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    except binascii.Error:
        raise TokenError(f"its {name} is not in Base64url") from None

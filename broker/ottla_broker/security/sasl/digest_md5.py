"""SASL DIGEST-MD5 (RFC 2831), the client's half, as ZooKeeper's servers speak it. Pure; listeners do not have it.

    server: realm="zk-sasl-md5",nonce="NONCE",charset=utf-8,algorithm=md5-sess
    client: username="USER",realm="zk-sasl-md5",nonce="NONCE",cnonce="CNONCE",...,response=PROOF
    server: rspauth=PROOF

Each side proves that it knows the password, the server too: a client that does not check `rspauth` may talk to anybody.
MD5 is what the mechanism is made of. Whoever reads an exchange may try passwords on it: TLS hides it.

Not served: integrity and confidentiality (`qop` beside `auth`), which ZooKeeper does not offer, and later exchanges
with the same nonce.

Source: RFC 2831; org.apache.zookeeper.util.SecurityUtils, which fixes service and host.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from typing import Final

DIGEST_MD5: Final = "DIGEST-MD5"
DIGEST_URI: Final = "zookeeper/zk-sasl-md5"
LONGEST_CHALLENGE: Final = 2048
"""In bytes (RFC 2831, 2.1.1)."""
_COUNT = b"00000001"
_DIRECTIVE = re.compile(rb'[\s,]*([A-Za-z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))\s*(?=,|\Z)', re.DOTALL)
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)


class DigestError(ValueError):
    """What a server has sent cannot be answered or is no proof; the message has no secret."""


@dataclass(frozen=True, slots=True)
class DigestResponse:
    """The client's message, and the `rspauth` that a server with the same password sends."""

    token: bytes = field(repr=False)
    expected: bytes = field(repr=False)


def respond(
    challenge: bytes, username: str, password: str, *, uri: str = DIGEST_URI, cnonce: str = ""
) -> DigestResponse:
    """Answers the first message of a server.

    Args:
        uri: service and host of the server.
        cnonce: the client's nonce; drawn when it is empty.

    Raises:
        DigestError: the challenge is malformed, asks for what is not served, or there is no MD5 here.
    """
    found = _directives(challenge)
    nonces, realms = found.get("nonce", []), found.get("realm", [])
    if len(nonces) != 1:
        raise DigestError("the challenge of the server has not one nonce")
    if found.get("algorithm") != [b"md5-sess"]:
        raise DigestError("the server wants another algorithm than md5-sess")
    if b"auth" not in found.get("qop", [b"auth"])[0].replace(b" ", b"").split(b","):
        raise DigestError("the server wants more than authentication (qop)")
    nonce, realm = nonces[0], realms[0] if realms else b""
    drawn = (cnonce or secrets.token_urlsafe(24)).encode()
    name = username.encode()
    is_utf_8 = found.get("charset") == [b"utf-8"]
    if not is_utf_8 and not (username.isascii() and password.isascii()):
        raise DigestError("the server does not take a username and password beyond ASCII (charset)")
    key = _md5(b":".join((_octets(username), _realm_octets(realm), _octets(password))))
    session_key = _md5(b":".join((key, nonce, drawn))).hex().encode()

    def proof(start: bytes) -> bytes:
        target = _md5(start + b":" + uri.encode()).hex().encode()
        return _md5(b":".join((session_key, nonce, _COUNT, drawn, b"auth", target))).hex().encode()

    parts = [
        *([b"charset=utf-8"] if is_utf_8 else []),
        b"username=" + _quoted(name),
        *([b"realm=" + _quoted(realm)] if realms else []),
        b"nonce=" + _quoted(nonce),
        b"nc=" + _COUNT,
        b"cnonce=" + _quoted(drawn),
        b"digest-uri=" + _quoted(uri.encode()),
        b"response=" + proof(b"AUTHENTICATE"),
        b"qop=auth",
    ]
    return DigestResponse(b",".join(parts), proof(b""))


def check_proof(answer: bytes, response: DigestResponse) -> None:
    """Checks the last message of a server. Raises DigestError unless it proves that the server knows the password."""
    proofs = _directives(answer).get("rspauth", []) if answer else []
    if len(proofs) != 1 or not hmac.compare_digest(proofs[0], response.expected):
        raise DigestError("the server does not prove that it knows the password")


def _directives(message: bytes) -> dict[str, list[bytes]]:
    """The values by name.

    >>> _directives(b'realm="a\\\\"b", nonce="x",algorithm=md5-sess')
    {'realm': [b'a"b'], 'nonce': [b'x'], 'algorithm': [b'md5-sess']}
    """
    found: dict[str, list[bytes]] = {}
    end = 0
    if len(message) <= LONGEST_CHALLENGE:
        while match := _DIRECTIVE.match(message, end):
            end = match.end()
            name, quoted, plain = match.groups()
            value = plain if quoted is None else _ESCAPE.sub(rb"\1", quoted)
            found.setdefault(name.decode().lower(), []).append(value)
    if not found or message[end:].strip(b" \t\r\n,"):
        raise DigestError("the server has sent a message that is none of DIGEST-MD5")
    return found


def _quoted(value: bytes) -> bytes:
    return b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def _octets(text: str) -> bytes:
    """ISO 8859-1 where it has all characters, else UTF-8 (RFC 2831, 2.1.2.1)."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _realm_octets(realm: bytes) -> bytes:
    try:
        return _octets(realm.decode())
    except UnicodeDecodeError:
        return realm


def _md5(data: bytes) -> bytes:
    try:
        return hashlib.md5(data).digest()
    except ValueError:
        raise DigestError("this process has no MD5 (FIPS); a TLS client certificate needs none") from None

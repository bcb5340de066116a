"""OAUTHBEARER's messages for `sasl`: tokens by name, right and wrong in each way, and new each time.

What differs, and is not among them: claims that are not UTF-8, which Apache Kafka takes with another character in their
place; a list of scopes with one that is no text, and a message of another scheme than Bearer, on which it closes the
connection without an answer; a token that is signed by HMAC with a key of the set, which it takes if the set has one.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Mapping
from typing import Any

from tests.tokens import Signer, claims, compact, jwks

RSA, RSA_512, PSS, EC, EC_521 = (
    Signer(name, algorithm)
    for name, algorithm in (("rs", "RS256"), ("rs512", "RS512"), ("ps", "PS256"), ("ec", "ES256"), ("ec521", "ES512"))
)
STRANGER = Signer("rs")
KEYS = jwks(RSA, RSA_512, PSS, EC, EC_521)
AUDIENCE, ISSUER = "kafka", "https://idp.example"


def message(token: str, *, authorization: str = "", extensions: str = "") -> bytes:
    header = f"n,a={authorization}," if authorization else "n,,"
    return f"{header}\x01auth=Bearer {token}\x01{extensions}\x01".encode()


def _now(seconds: float) -> int:
    return int(time.time() + seconds)


def _hmac(data: bytes) -> bytes:
    return hmac.new(RSA.public()["n"].encode(), data, hashlib.sha256).digest()


def _tampered() -> str:
    header, _, signature = RSA.token().split(".")
    return f"{header}.{RSA.token(sub='bob').split('.')[1]}.{signature}"


def _claims(**more: Any) -> Callable[[], bytes]:
    return lambda: message(RSA.token(**more))


def _raw(body: bytes) -> Callable[[], bytes]:
    return lambda: message(RSA.compact(body))


def _unsigned(**more: Any) -> Callable[[], bytes]:
    return lambda: message(compact({"alg": "none"}, claims(**more)))


SIGNED: Mapping[str, Callable[[], bytes]] = {
    "RSA": _claims(),
    "RSA and SHA-512": lambda: message(RSA_512.token()),
    "PSS": lambda: message(PSS.token()),
    "P-256": lambda: message(EC.token()),
    "P-521": lambda: message(EC_521.token()),
    "short": lambda: message(RSA.token(exp=_now(2))),
    "its user as authorization id": lambda: message(RSA.token(), authorization="alice"),
    "another authorization id": lambda: message(RSA.token(), authorization="bob"),
    "another authorization id, expired": lambda: message(RSA.token(exp=_now(-100), iat=_now(-200)), authorization="b"),
    "extensions": lambda: message(RSA.token(), extensions="a=b\x01traceId=7 8\x01"),
    "header with more in it": lambda: message(RSA.token(header={"alg": "RS256", "kid": "rs", "typ": "at+jwt", "x": 1})),
    "expired": lambda: message(RSA.token(exp=_now(-100), iat=_now(-200))),
    "expired within the skew": lambda: message(RSA.token(exp=_now(-10), iat=_now(-200))),
    "not valid yet": lambda: message(RSA.token(nbf=_now(100), exp=_now(200))),
    "nearly valid": lambda: message(RSA.token(nbf=_now(10))),
    "issued in the future": lambda: message(RSA.token(iat=_now(100), exp=_now(200))),
    "issued behind its end": lambda: message(RSA.token(iat=_now(300), exp=_now(200))),
    "valid behind its end": lambda: message(RSA.token(nbf=_now(20), exp=_now(10))),
    **{f"without {name}": _claims(**{name: None}) for name in ("exp", "iat", "sub")},
    **{f"{name} is text": _claims(**{name: "1"}) for name in ("exp", "iat", "nbf")},
    **{f"{name} is a number": _claims(**{name: 7}) for name in ("sub", "iss", "jti", "aud", "scope")},
    **{f"{name} is a list": _claims(**{name: ["alice"]}) for name in ("sub", "iss", "exp", "scope", "aud")},
    "exp is true": _claims(exp=True),
    "exp has a fraction": lambda: message(RSA.token(exp=_now(60) + 0.5)),
    "sub is empty": _claims(sub=""),
    "sub is a space": _claims(sub=" "),
    "sub has spaces around": _claims(sub=" alice "),
    "sub is not ASCII": _claims(sub="ž"),
    "aud": _claims(aud="kafka"),
    "iss": _claims(iss="anybody"),
    "scope": _claims(scope="a b"),
    "scope is empty": _claims(scope=""),
    "scope twice": _claims(scope=["a", "a"]),
    "scopes": _claims(scope=["a", "b"]),
    "sub twice": _raw(b'{"sub":"alice","sub":"bob","iat":1,"exp":9999999999}'),
    "claims are a list": _raw(b"[]"),
    "claims are no JSON": _raw(b"alice"),
    "kid is missing": lambda: message(RSA.token(header={"alg": "RS256"})),
    "key is for another algorithm": lambda: message(RSA.token(header={"alg": "RS256", "kid": "rs512"})),
    "PSS by an RS256 key": lambda: message(RSA.compact(claims(), {"alg": "PS256", "kid": "rs"})),
    "kid is a number": lambda: message(RSA.token(header={"alg": "RS256", "kid": 7})),
    "claims are deep": _raw(b'{"a":' * 2000 + b"1" + b"}" * 2000),
    "not signed": _unsigned(),
    "not signed, with a signature": lambda: message(compact({"alg": "none"}, claims(), RSA.sign)),
    "signed by the public key": lambda: message(compact({"alg": "HS256", "kid": "rs"}, claims(), _hmac)),
    "signed by a stranger": lambda: message(STRANGER.token()),
    "tampered": lambda: message(_tampered()),
    "signature is missing": lambda: message(compact({"alg": "RS256", "kid": "rs"}, claims())),
    "signature is short": lambda: message(compact({"alg": "RS256", "kid": "rs"}, claims(), lambda _: b"x")),
    "curve of another key": lambda: message(EC.token(header={"alg": "ES512", "kid": "ec"})),
    "unknown key": lambda: message(RSA.token(header={"alg": "RS256", "kid": "unknown"})),
    "crit": lambda: message(RSA.token(header={"alg": "RS256", "kid": "rs", "crit": ["x"], "x": 1})),
    "alg is missing": lambda: message(RSA.token(header={"kid": "rs"})),
    "own key": lambda: message(STRANGER.token(header={"alg": "RS256", "kid": "rs", "jwk": STRANGER.public()})),
    "one part": lambda: message("a"),
    "two parts": lambda: message("a.b"),
    "four parts": lambda: message("a.b.c.d"),
    "dots": lambda: message(".."),
    "parts that are nothing": lambda: message("a.b.c"),
}
"""For a listener with `KEYS`."""

STRICT: Mapping[str, Callable[[], bytes]] = {
    "right": _claims(aud=AUDIENCE, iss=ISSUER),
    "one of the audiences": _claims(aud=["x", AUDIENCE], iss=ISSUER),
    "another audience": _claims(aud="x", iss=ISSUER),
    "no audience": _claims(iss=ISSUER),
    "audience is a number": _claims(aud=[7], iss=ISSUER),
    "another issuer": _claims(aud=AUDIENCE, iss=ISSUER + "/"),
    "no issuer": _claims(aud=AUDIENCE),
}
"""For one that expects `AUDIENCE` and `ISSUER`."""

UNSIGNED: Mapping[str, Callable[[], bytes]] = {
    "right": _unsigned(scope=["read", "write"]),
    "scope is text": _unsigned(scope="read write"),
    "scope is missing": _unsigned(),
    "scope is another": _unsigned(scope=["read"]),
    "scopes": _unsigned(scope=["read", "write", "x"]),
    "signed": lambda: message(RSA.token(scope=["read", "write"])),
    "expired": lambda: message(compact({"alg": "none"}, claims(scope=["read", "write"], exp=_now(-1), iat=None))),
    "issued in the future": lambda: message(
        compact({"alg": "none"}, claims(scope=["read", "write"], iat=_now(50), exp=_now(99)))
    ),
    "without exp": _unsigned(scope=["read", "write"], exp=None),
    "without iat": _unsigned(scope=["read", "write"], iat=None),
    "without sub": _unsigned(scope=["read", "write"], sub=None),
    "sub is a number": _unsigned(scope=["read", "write"], sub=7),
    "aud": _unsigned(scope=["read", "write"], aud="x"),
}
"""For one that takes tokens that nobody has signed, with the scope "read write"."""

MALFORMED: tuple[bytes, ...] = (
    b"",
    b"\x01",
    b"zzz",
    b"n,,\x01\x01",
    b"n,,\x01auth=Bearer\x01\x01",
    b"n,,\x01auth=Bearer a b\x01\x01",
    b"n,,\x01auth=Bearer a",
    b"n,,\x01auth=bearer   a.b.c\x01\x01",
    b"n,,\x01auth=Bearer x\x01auth=Bearer a.b.c\x01\x01",
    b"y,,\x01auth=Bearer a.b.c\x01\x01",
    b"p=tls-unique,,\x01auth=Bearer a.b.c\x01\x01",
    b"n,,\x01a1=b\x01auth=Bearer a.b.c\x01\x01",
    b"n,,\x01a=\x01auth=Bearer a.b.c\x01\x01",
    b"n,,\x01a=\xff\x01auth=Bearer a.b.c\x01\x01",
    b"n,a=a,b,\x01auth=Bearer a.b.c\x01\x01",
)
"""No initial messages."""

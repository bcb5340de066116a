"""Signatures of tokens: what is not signed by a key of the set gets nobody in, however it is made."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import ECKey, OctKey, OKPKey

from ottla_broker.security.oauth.compact import TokenError, parse_compact
from ottla_broker.security.oauth.signatures import ALGORITHMS, KeySetError, UnknownKey, VerificationKeys, read_keys
from tests.tokens import Signer, claims, compact, encoded, jwks

SIGNERS = {algorithm: Signer(algorithm, algorithm) for algorithm in ALGORITHMS}
ONE = SIGNERS["RS256"]
EC = SIGNERS["ES256"]
PEM = ONE.key.public_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
ALL = read_keys(jwks(*SIGNERS.values()))


def refused(text: str, keys: VerificationKeys = ALL) -> str:
    with pytest.raises(TokenError) as caught:
        keys.check(parse_compact(text))
    assert not any(part in str(caught.value) for part in text.split(".") if len(part) > 8)
    return str(caught.value)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_signature_of_each_algorithm_is_right_for_its_token_alone(algorithm: str) -> None:
    token = SIGNERS[algorithm].token(header={"alg": algorithm, "kid": algorithm, "typ": "at+jwt", "nonce": "x" * 900})
    ALL.check(parse_compact(token))
    header, _, signature = token.split(".")
    other = SIGNERS[algorithm].token(sub="bob").split(".")[1]
    assert refused(f"{header}.{other}.{signature}") == "its signature is not right"
    assert refused(f"{header}.{other}.") == "its signature is not right"


def _hmac(key: bytes, name: str = "sha256") -> Any:
    return lambda data: hmac.new(key, data, name).digest()


@pytest.mark.parametrize(
    ("header", "sign"),
    [
        ({"alg": "none"}, lambda _: b""),
        ({"alg": "None", "kid": "RS256"}, lambda _: b""),
        ({"alg": "nOnE", "kid": "RS256"}, ONE.sign),
        ({"kid": "RS256"}, ONE.sign),
        ({"alg": None, "kid": "RS256"}, ONE.sign),
        ({"alg": ["RS256"], "kid": "RS256"}, ONE.sign),
        ({"alg": {}, "kid": "RS256"}, ONE.sign),
        ({"alg": "RS1", "kid": "RS256"}, ONE.sign),
        ({"alg": "HS256", "kid": "RS256"}, _hmac(PEM)),
        ({"alg": "HS256", "kid": "RS256"}, _hmac(b"")),
        ({"alg": "HS512"}, _hmac(PEM, "sha512")),
        ({"alg": "ES256K", "kid": "ES256"}, EC.sign),
        ({"alg": "dir"}, ONE.sign),
    ],
)
def test_an_algorithm_that_is_not_named_is_refused(header: Any, sign: Any) -> None:
    assert refused(compact(header, claims(), sign)).startswith("its algorithm is none of RS256")


def test_a_token_without_a_signature_is_none_of_any_algorithm() -> None:
    for algorithm in ALGORITHMS:
        assert refused(compact({"alg": algorithm, "kid": algorithm}, claims())) == "its signature is not right"


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"alg": "RS256", "kid": "RS256", "crit": ["exp"]}, "its header has crit"),
        ({"alg": "RS256", "kid": "RS256", "crit": [], "b64": False}, "its header has crit"),
        ({"alg": "RS256", "kid": 7}, "kid in its header is not text"),
        ({"alg": "RS256", "kid": ["RS256"]}, "kid in its header is not text"),
        ({"alg": "RS256", "kid": "unknown"}, "no key of"),
        ({"alg": "RS256", "kid": ""}, "no key of"),
        ({"alg": "RS512", "kid": "RS256"}, "no key of"),
        ({"alg": "PS256", "kid": "RS256"}, "no key of"),
        ({"alg": "ES256", "kid": "RS256"}, "no key of"),
    ],
)
def test_a_key_that_is_not_there_or_not_for_the_algorithm_is_none(header: Any, reason: str) -> None:
    assert reason in refused(ONE.token(header=header))


def test_a_token_cannot_bring_its_own_key() -> None:
    own = Signer("own")
    for more in ({"jwk": own.public()}, {"jku": "https://evil.example/keys"}, {"x5c": ["AAAA"]}, {"x5u": "https://e"}):
        assert "no key of" in refused(own.token(header={"alg": "RS256", "kid": "own", **more}))
        assert "not right" in refused(own.token(header={"alg": "RS256", "kid": "RS256", **more}))


def test_without_a_kid_each_key_that_fits_is_tried_and_few_at_most() -> None:
    signers = [Signer(None if number else "first") for number in range(3)]
    keys = read_keys(jwks(*signers))
    for signer in signers:
        keys.check(parse_compact(signer.token(header={"alg": "RS256"})))
    assert "not right" in refused(ONE.token(header={"alg": "RS256"}), keys)
    repeated = [ONE.public(kid=str(number)) for number in range(4)]
    last = read_keys(json.dumps({"keys": [*repeated, signers[0].public()]}).encode())
    assert "not right" in refused(signers[0].token(header={"alg": "RS256"}), last)
    last.check(parse_compact(signers[0].token()))


def test_of_two_keys_with_one_kid_either_is_right() -> None:
    old, new = Signer("one"), Signer("one")
    keys = read_keys(jwks(old, new))
    for signer in (old, new):
        keys.check(parse_compact(signer.token()))


def test_an_unknown_key_is_told_by_its_id() -> None:
    with pytest.raises(UnknownKey) as caught:
        ALL.check(parse_compact(ONE.token(header={"alg": "RS256", "kid": "unknown"})))
    assert caught.value.key_id == "unknown"
    with pytest.raises(UnknownKey) as caught:
        VerificationKeys().check(parse_compact(ONE.token(header={"alg": "RS256"})))
    assert caught.value.key_id == ""


def _numbers(bits: int) -> dict[str, str]:
    """Of a small key."""
    number = rsa.generate_private_key(65537, bits).public_key().public_numbers().n
    return {"n": encoded(number.to_bytes((bits + 7) // 8, "big"))}


OTHER_CURVE = ECKey.generate_key("secp256k1")


@pytest.mark.parametrize(
    "entry",
    [
        ONE.public(use="enc"),
        ONE.public(use=7),
        ONE.public(key_ops=["sign"]),
        ONE.public(key_ops="verify"),
        ONE.public(alg="HS256"),
        ONE.public(alg="RSA-OAEP"),
        ONE.public(alg=["RS256"]),
        ONE.public(kid=7),
        ONE.public(kty="oct"),
        ONE.public(kty=["RSA"]),
        ONE.public(kty=None),
        ONE.public(n=None),
        ONE.public(n=7),
        ONE.public(n=""),
        ONE.public(n="ž"),
        ONE.public(e="AA"),
        ONE.public(e="Ag"),
        EC.public(crv="P-384"),
        EC.public(crv="secp256k1"),
        EC.public(crv=None),
        EC.public(crv=["P-256"]),
        EC.public(x=EC.public()["y"]),
        Signer("x", "ES256", OTHER_CURVE).public(),
        {**ONE.public(), **_numbers(1024)},
        {**ONE.public(), **_numbers(2040)},
        Signer("x", "EdDSA", OKPKey.generate_key("X25519")).public(),
        {**OctKey.generate_key(256).as_dict(), "alg": "RS256", "use": "sig"},
        {},
        "RSA",
        7,
        None,
    ],
)
def test_a_key_that_cannot_be_used_is_left_out(entry: Any) -> None:
    with pytest.raises(KeySetError, match="none of its 1 keys can be used"):
        read_keys(json.dumps({"keys": [entry]}).encode())
    assert read_keys(json.dumps({"keys": [entry, EC.public()]}).encode()).ids == ("ES256",)


def test_the_curve_of_a_key_is_that_of_the_algorithm() -> None:
    """A key without `alg` is for its own curve alone."""
    small, large = Signer("one", "ES256"), Signer("one", "ES512")
    keys = read_keys(json.dumps({"keys": [large.public(alg=None)]}).encode())
    assert "no key of" in refused(small.token(), keys)
    keys.check(parse_compact(large.token()))


def test_private_members_of_a_set_are_not_taken() -> None:
    keys = read_keys(json.dumps({"keys": [{**ONE.key.as_dict(private=True), "kid": "RS256"}]}).encode())
    keys.check(parse_compact(ONE.token()))
    assert not keys._keys[0].key.is_private


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no JSON"),
        (b"<html><body>Sign in</body></html>", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[]", "no JSON object"),
        (b"{}", "no list of keys"),
        (b'{"keys":{}}', "no list of keys"),
        (b'{"keys":[]}', "none of its 0 keys"),
        (b'{"keys":[],"keys":[]}', "a name stands twice"),
        (b'{"keys":' + b"[" * 100_000, "no JSON"),
        (json.dumps({"keys": [{}] * 101}).encode(), "101 keys, more than 100"),
    ],
)
def test_what_is_no_set_of_keys_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(KeySetError, match=reason):
        read_keys(content)


@given(st.binary(max_size=200), st.sampled_from(ALGORITHMS), st.booleans())
def test_no_signature_raises_anything_else(signature: bytes, algorithm: str, is_named: bool) -> None:
    header = {"alg": algorithm, **({"kid": algorithm} if is_named else {})}
    assert refused(compact(header, claims(), lambda _: signature)) == "its signature is not right"


_MEMBERS = st.sampled_from(["kty", "n", "e", "crv", "x", "y", "d", "kid", "alg", "use", "key_ops"])
_VALUES = st.sampled_from(["RSA", "EC", "OKP", "P-256", "Ed25519", "AQAB", "", "sig", "RS256"]) | st.text(max_size=4)


@given(st.lists(st.dictionaries(_MEMBERS, _VALUES | st.integers() | st.lists(_VALUES, max_size=2)), max_size=3))
def test_no_set_raises_anything_else(entries: list[dict[str, Any]]) -> None:
    try:
        read_keys(json.dumps({"keys": entries}).encode())
    except KeySetError:
        return


def test_a_digest_is_not_a_signature() -> None:
    assert "not right" in refused(
        compact({"alg": "RS256", "kid": "RS256"}, claims(), lambda data: hashlib.sha256(data).digest())
    )

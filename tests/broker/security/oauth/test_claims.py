"""What the claims of a token have to say: as Apache Kafka's validator asks, and no claim of a wrong type gets by."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.security.oauth.claims import Bearer, TokenRules, check_claims
from ottla_broker.security.oauth.compact import LONGEST_TOKEN, TokenError, parse_compact
from tests.tokens import compact, encoded

NOW = 1_000_000
GOOD = {"sub": "alice", "iat": NOW - 10, "exp": NOW + 60}
FOR_KAFKA = TokenRules(audiences=("kafka", "other"), issuer="https://idp")


def of(**more: Any) -> dict[str, Any]:
    return {name: value for name, value in {**GOOD, **more}.items() if value is not None}


@pytest.mark.parametrize(
    ("more", "rules", "user"),
    [
        ({}, TokenRules(), "alice"),
        ({"sub": " al,ice\t"}, TokenRules(), "al,ice"),
        ({"sub": "ž"}, TokenRules(), "ž"),
        ({"sub": None, "client": "bob"}, TokenRules(subject_claim="client"), "bob"),
        ({"aud": "kafka", "iss": "https://idp"}, FOR_KAFKA, "alice"),
        ({"aud": ["a", "other"], "iss": "https://idp"}, FOR_KAFKA, "alice"),
        ({"exp": NOW - 29, "iat": NOW - 60}, TokenRules(), "alice"),
        ({"exp": NOW + 60.9, "iat": NOW - 0.5}, TokenRules(), "alice"),
        ({"nbf": NOW + 30}, TokenRules(), "alice"),
        ({"iat": NOW + 50}, TokenRules(), "alice"),
        ({"scope": "a b"}, TokenRules(), "alice"),
        ({"scope": ["a", "b"]}, TokenRules(), "alice"),
        ({"scope": 7}, TokenRules(), "alice"),
        ({"roles": [], "scope": ""}, TokenRules(scope_claim="roles"), "alice"),
    ],
)
def test_a_token_for_here_and_now_gets_its_user_in(more: dict[str, Any], rules: TokenRules, user: str) -> None:
    claims = of(**more)
    assert check_claims(claims, rules, NOW) == Bearer(user, int(claims["exp"]) * 1000)


@pytest.mark.parametrize(
    ("more", "rules", "reason"),
    [
        ({"exp": None}, TokenRules(), "no claim exp"),
        ({"exp": NOW - 30}, TokenRules(), "expired"),
        ({"exp": NOW}, TokenRules(skew_s=0), "expired"),
        ({"exp": str(NOW + 60)}, TokenRules(), "claim exp is no number"),
        ({"exp": True}, TokenRules(), "claim exp is no number"),
        ({"exp": [NOW + 60]}, TokenRules(), "claim exp is no number"),
        ({"exp": 1e300}, TokenRules(), "claim exp is no time"),
        ({"exp": float("inf")}, TokenRules(), "claim exp is no time"),
        ({"exp": float("nan")}, TokenRules(), "claim exp is no time"),
        ({"exp": 10**4000}, TokenRules(), "claim exp is no time"),
        ({"exp": -(10**4000)}, TokenRules(), "claim exp is no time"),
        ({"exp": 2**53}, TokenRules(), "claim exp is no time"),
        ({"exp": -1}, TokenRules(), "claim exp is no time"),
        ({"iat": None}, TokenRules(), "no claim iat"),
        ({"iat": "now"}, TokenRules(), "claim iat is no number"),
        ({"iat": NOW + 61}, TokenRules(), "claim exp is before"),
        ({"nbf": NOW + 31}, TokenRules(), "not valid yet"),
        ({"nbf": NOW + 90, "exp": NOW + 80}, TokenRules(), "claim exp is before"),
        ({"nbf": {}}, TokenRules(), "claim nbf is no number"),
        ({"sub": None}, TokenRules(), "no claim sub"),
        ({"sub": ""}, TokenRules(), "claim sub is empty"),
        ({"sub": " \n"}, TokenRules(), "claim sub is empty"),
        ({"sub": 7}, TokenRules(), "claim sub is not text"),
        ({"sub": ["alice"]}, TokenRules(), "claim sub is not text"),
        ({"client": 7}, TokenRules(subject_claim="client"), "no claim client"),
        ({"jti": 7}, TokenRules(), "claim jti is not text"),
        ({"iss": 7}, TokenRules(), "claim iss is not text"),
        ({"aud": "kafka"}, TokenRules(), "names no audience"),
        ({"iss": "https://idp"}, FOR_KAFKA, "none of sasl.oauthbearer.expected.audience"),
        ({"aud": ["else"], "iss": "https://idp"}, FOR_KAFKA, "none of sasl.oauthbearer.expected.audience"),
        ({"aud": 7, "iss": "https://idp"}, FOR_KAFKA, "claim aud is neither"),
        ({"aud": ["kafka", 7], "iss": "https://idp"}, FOR_KAFKA, "claim aud is neither"),
        ({"aud": {"kafka": 1}, "iss": "https://idp"}, FOR_KAFKA, "claim aud is neither"),
        ({"aud": "kafka"}, FOR_KAFKA, "claim iss is not sasl.oauthbearer.expected.issuer"),
        ({"aud": "kafka", "iss": "https://IDP"}, FOR_KAFKA, "claim iss is not"),
        ({"scope": ["a", "a"]}, TokenRules(), "one scope twice"),
        ({"scope": ["a", 7]}, TokenRules(), "claim scope that is text"),
        ({"scope": ["a", " "]}, TokenRules(), "claim scope is empty"),
        ({"scope": ""}, TokenRules(), "claim scope is empty"),
    ],
)
def test_any_other_token_is_refused(more: dict[str, Any], rules: TokenRules, reason: str) -> None:
    with pytest.raises(TokenError, match=reason):
        check_claims(of(**more), rules, NOW)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it has 1 parts"),
        ("a.b", "it has 2 parts"),
        ("a.b.c.d", "it has 4 parts"),
        ("a.b.c", "its header is not in Base64url"),
        ("e30=.e30.", "its header is not in Base64url"),
        ("e30.e30.+", "its signature is not in Base64url"),
        (f"{encoded(b'{}')}.{encoded(b'[]')}.", "its claims cannot be read: no JSON object"),
        (compact(b"\xff", {}), "its header cannot be read: no JSON"),
        (compact({}, b"\xef\xbb\xbf{}"), "its claims cannot be read: no JSON"),
        (compact({}, b'{"sub":"alice","sub":"bob"}'), "its claims cannot be read: a name stands twice"),
        (compact(b'{"alg":"none","alg":"RS256"}', {}), "its header cannot be read: a name stands twice"),
        (compact({}, b'{"exp":NaN}'), "NaN and Infinity"),
        (compact({}, b'{"exp":' + b"9" * 5000 + b"}"), "no JSON"),
        (compact({}, b"[" * 12_000), "no JSON"),
        (compact({}, b'{"a":' * 2_000 + b"1" + b"}" * 2_000), "no JSON"),
        ("a" * (LONGEST_TOKEN + 1), "more than 16384"),
    ],
)
def test_what_is_no_token_is_refused(text: str, reason: str) -> None:
    with pytest.raises(TokenError, match=reason):
        parse_compact(text)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**4000) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["iss", "sub", "aud", "exp", "iat", "nbf", "jti", "scope"]), _JSON), _JSON)
def test_no_claims_raise_anything_else(claims: dict[str, Any], ends: Any) -> None:
    for rules in (TokenRules(), FOR_KAFKA):
        for one in (claims, {**GOOD, **claims}, {**GOOD, "exp": ends}):
            try:
                bearer = check_claims(one, rules, NOW)
            except TokenError:
                continue
            assert bearer.user and bearer.ends_ms / 1000 > NOW - 30


@given(
    st.text(max_size=60)
    | st.lists(st.binary(max_size=20), min_size=3, max_size=3).map(lambda p: ".".join(map(encoded, p)))
)
def test_no_text_raises_anything_else(text: str) -> None:
    try:
        found = parse_compact(text)
    except TokenError as error:
        assert len(text) < 10 or text not in str(error)
    else:
        assert json.dumps(dict(found.claims)) is not None

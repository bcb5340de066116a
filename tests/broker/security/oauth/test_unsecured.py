"""Tokens that nobody has signed: what Apache Kafka asks of them, on both sides."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.security.oauth.claims import Bearer
from ottla_broker.security.oauth.compact import TokenError, parse_compact
from ottla_broker.security.oauth.unsecured import (
    InsufficientScope,
    UnsecuredRules,
    check_unsecured,
    unsecured_claims,
    unsecured_rules,
)
from tests.tokens import compact

NOW_MS = 1_000_000_000
GOOD = {"sub": "alice", "iat": NOW_MS / 1000, "exp": NOW_MS / 1000 + 60}


def check(rules: UnsecuredRules, header: Any = None, signature: bytes = b"", **more: Any) -> Bearer:
    claims = {name: value for name, value in {**GOOD, **more}.items() if value is not None}
    token = compact({"alg": "none"} if header is None else header, claims, lambda _: signature)
    return check_unsecured(parse_compact(token), rules, NOW_MS)


@pytest.mark.parametrize(
    ("rules", "more"),
    [
        (UnsecuredRules(), {}),
        (UnsecuredRules(), {"iat": None, "aud": "anybody"}),
        (UnsecuredRules(skew_ms=60_000), {"exp": NOW_MS / 1000 - 59, "iat": None}),
        (UnsecuredRules(skew_ms=1000), {"iat": NOW_MS / 1000 + 1}),
        (UnsecuredRules("client"), {"client": "alice", "sub": 7}),
        (UnsecuredRules(required_scope=("a", "b")), {"scope": ["b", "a", "c"]}),
        (UnsecuredRules(required_scope=("a",)), {"scope": " a "}),
        (UnsecuredRules(scope_claim="roles", required_scope=("a",)), {"roles": ["a", 7]}),
    ],
)
def test_whom_it_names_gets_in(rules: UnsecuredRules, more: dict[str, Any]) -> None:
    assert check(rules, **more).user == "alice"


@pytest.mark.parametrize(
    ("rules", "more", "reason"),
    [
        (UnsecuredRules(), {"sub": None}, "no claim sub"),
        (UnsecuredRules(), {"sub": " "}, "no claim sub"),
        (UnsecuredRules(), {"sub": 7}, "no claim sub"),
        (UnsecuredRules(), {"exp": None}, "no claim exp"),
        (UnsecuredRules(), {"exp": NOW_MS / 1000, "iat": None}, "expired"),
        (UnsecuredRules(), {"iat": NOW_MS / 1000 + 1}, "in the future"),
        (UnsecuredRules(skew_ms=60_000), {"iat": NOW_MS / 1000, "exp": NOW_MS / 1000}, "not behind"),
        (UnsecuredRules(), {"header": {"alg": "RS256"}}, "it is signed"),
        (UnsecuredRules(), {"header": {}}, "it is signed"),
        (UnsecuredRules(), {"signature": b"x"}, "it is signed"),
    ],
)
def test_any_other_is_refused(rules: UnsecuredRules, more: dict[str, Any], reason: str) -> None:
    with pytest.raises(TokenError, match=reason):
        check(rules, **more)


@pytest.mark.parametrize("scope", [None, "a", "a b", ["a"], 7, {"a": 1, "b": 2}])
def test_a_scope_that_is_missing_is_told(scope: Any) -> None:
    with pytest.raises(InsufficientScope) as caught:
        check(UnsecuredRules(required_scope=("a", "b")), scope=scope)
    assert caught.value.scope == "[a, b]"


def test_the_options_of_a_listener() -> None:
    assert unsecured_rules({}) == UnsecuredRules()
    prefix = "unsecuredValidator"
    options = {"PrincipalClaimName": "p", "ScopeClaimName": "s", "RequiredScope": " a  b", "AllowableClockSkewMs": "5"}
    assert unsecured_rules({prefix + name: value for name, value in options.items()}) == UnsecuredRules(
        "p", "s", ("a", "b"), 5
    )
    for skew in ("-1", "x", "1.5", "²"):
        with pytest.raises(ValueError, match="unsecuredValidatorAllowableClockSkewMs"):
            unsecured_rules({f"{prefix}AllowableClockSkewMs": skew})


def test_the_options_of_a_client() -> None:
    assert unsecured_claims({"username": "x"}) is None
    made = unsecured_claims({"unsecuredLoginStringClaim_sub": "alice", "unsecuredLoginLifetimeSeconds": "9"})
    assert made is not None
    token = parse_compact(made.token(NOW_MS))
    assert check_unsecured(token, UnsecuredRules(), NOW_MS) == Bearer("alice", NOW_MS + 9000)
    with pytest.raises(TokenError, match="expired"):
        check_unsecured(token, UnsecuredRules(), NOW_MS + 9000)
    for name, value in (("LifetimeSeconds", "0"), ("LifetimeSeconds", "x"), ("NumberClaim_x", "1"), ("Nonsense", "")):
        with pytest.raises(ValueError, match=f"unsecuredLogin{name}"):
            unsecured_claims({"unsecuredLoginStringClaim_sub": "alice", f"unsecuredLogin{name}": value})


@given(
    st.dictionaries(
        st.sampled_from(["sub", "exp", "iat", "scope"]),
        st.none() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    )
)
def test_no_claims_raise_anything_else(claims: dict[str, Any]) -> None:
    try:
        check_unsecured(parse_compact(compact({"alg": "none"}, claims)), UnsecuredRules(), NOW_MS)
    except TokenError:
        return

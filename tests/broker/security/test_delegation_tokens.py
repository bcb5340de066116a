"""Who may do what with a delegation token, and when it ends."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.security.delegation_tokens import (
    DelegationToken,
    TokenPeriods,
    TokenSecret,
    expired,
    is_described,
    new_token,
    renewed,
)
from ottla_broker.security.principals import Principal
from ottla_broker.security.sasl.scram import ScramAlgorithm

ALICE, BOB, CAROL, DAVE = (Principal("User", name) for name in ("alice", "bob", "carol", "dave"))
PERIODS = TokenPeriods(longest_ms=7_000, renewal_ms=1_000)
TOKEN = DelegationToken("id", ALICE, BOB, (CAROL,), 10_000, 17_000, 11_000)
MISMATCH, EXPIRED = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, ErrorCode.DELEGATION_TOKEN_EXPIRED
FOREVER = 2**63 - 1


@pytest.mark.parametrize(
    ("asked_ms", "expiry_ms", "latest_ms"),
    [(-1, 1_500, 7_500), (0, 1_500, 7_500), (8_000, 1_500, 7_500), (3_000, 1_500, 3_500), (10, 510, 510)],
)
def test_a_new_token_lives_as_long_as_asked_for_and_not_beyond_the_longest_lifetime(
    asked_ms: int, expiry_ms: int, latest_ms: int
) -> None:
    token = new_token("id", ALICE, ALICE, (), asked_ms, 500, PERIODS)
    assert (token.issue_timestamp_ms, token.expiry_timestamp_ms, token.max_timestamp_ms) == (500, expiry_ms, latest_ms)


@pytest.mark.parametrize(
    ("period_ms", "now_ms", "expiry_ms"),
    [
        (-1, 10_500, 11_500),
        (0, 10_500, 10_500),
        (4_000, 10_500, 14_500),
        (FOREVER, 10_500, 17_000),
        (-1, 11_000, 12_000),
    ],
)
def test_a_renewed_token_ends_a_period_from_now_and_not_behind_its_longest_life(
    period_ms: int, now_ms: int, expiry_ms: int
) -> None:
    assert renewed(TOKEN, ALICE, period_ms, now_ms, PERIODS) == replace(TOKEN, expiry_timestamp_ms=expiry_ms)


def test_a_token_that_has_ended_is_not_renewed_and_only_removed() -> None:
    with pytest.raises(KafkaError) as caught:
        renewed(TOKEN, ALICE, -1, 11_001, PERIODS)
    assert caught.value.code is EXPIRED
    with pytest.raises(KafkaError) as caught:
        expired(TOKEN, ALICE, 0, 11_001)
    assert caught.value.code is EXPIRED
    assert expired(TOKEN, ALICE, -1, 11_001) is None
    assert expired(TOKEN, ALICE, 50, 10_500) == replace(TOKEN, expiry_timestamp_ms=10_550)
    assert expired(TOKEN, ALICE, FOREVER, 10_500) == replace(TOKEN, expiry_timestamp_ms=17_000)


def test_owner_requester_and_renewers_change_a_token_and_nobody_else() -> None:
    for principal in (ALICE, BOB, CAROL):
        assert renewed(TOKEN, principal, -1, 10_500, PERIODS).expiry_timestamp_ms == 11_500
        assert expired(TOKEN, principal, -1, 10_500) is None
    for stranger in (DAVE, Principal("Group", "alice")):
        with pytest.raises(KafkaError) as caught:
            renewed(TOKEN, stranger, -1, 99_999, PERIODS)
        assert caught.value.code is MISMATCH, "before it is said that it has ended"
        with pytest.raises(KafkaError) as caught:
            expired(TOKEN, stranger, -1, 99_999)
        assert caught.value.code is MISMATCH


@pytest.mark.parametrize(
    ("who", "owners", "is_seen"),
    [
        (ALICE, None, True),
        (BOB, None, True),
        (CAROL, None, True),
        (DAVE, None, False),
        (ALICE, [ALICE], True),
        (ALICE, [CAROL], True),
        (ALICE, [DAVE], False),
        (DAVE, [ALICE], False),
    ],
)
def test_a_token_is_shown_to_those_that_it_is_of(who: Principal, owners: list[Principal] | None, is_seen: bool) -> None:
    assert is_described(TOKEN, who, owners, lambda token: False) is is_seen


def test_a_right_shows_a_token_of_others_and_none_that_was_not_asked_for() -> None:
    assert is_described(TOKEN, DAVE, None, lambda token: token.owner == ALICE)
    assert not is_described(TOKEN, DAVE, [DAVE], lambda token: True)


def test_the_hmac_in_base64_is_the_password_and_the_secret_is_in_no_text() -> None:
    secret = TokenSecret("of all brokers")
    password = base64.b64encode(secret.hmac("id")).decode()
    for algorithm in ScramAlgorithm:
        credential = secret.credential(algorithm, "id", b"salt")
        salted = algorithm.salted_password(password, b"salt", credential.iterations)
        assert credential.stored_key == algorithm.digest(algorithm.keyed(salted, b"Client Key"))
    assert "of all brokers" not in repr(secret)


def test_a_principal_that_came_by_a_token_is_the_same() -> None:
    by_token = replace(ALICE, by_token=True)
    assert by_token == ALICE
    assert {ALICE: 1}[by_token] == 1
    assert str(by_token) == "User:alice"

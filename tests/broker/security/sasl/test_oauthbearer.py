"""OAUTHBEARER, with the answers of Apache Kafka: a token gets in, another one hears its status and then fails."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.security.principals import USER, Principal
from ottla_broker.security.sasl.mechanism import Authenticated, Challenge, Complete, Failed
from ottla_broker.security.sasl.oauthbearer import (
    LONGEST_MESSAGE,
    AcceptedToken,
    OAuthBearerClient,
    OAuthBearerServer,
    RefusedToken,
    is_extension,
    parse_message,
)

GOOD = b"n,,\x01auth=Bearer good\x01\x01"
BAD = b"n,,\x01auth=Bearer bad\x01\x01"
IN = Authenticated(Principal(USER, "al,ice"), 7000)
INVALID = Challenge(b'{"status":"invalid_token"}')


def server() -> OAuthBearerServer:
    return OAuthBearerServer(lambda token: AcceptedToken("al,ice", 7000) if token == "good" else RefusedToken())


@pytest.mark.parametrize(
    "message",
    [
        GOOD,
        b"n,,\x01auth=bEARER   good\x01\x01",
        b"n,,\x01logicalCluster=lkc-1\x01auth=Bearer good\x01traceId=a \t\r\n~\x01\x01",
        b"n,,\x01a=b=c\x01a=d\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Bearer bad\x01auth=Bearer good\x01\x01",
    ],
)
def test_a_token_gets_its_user_in_for_as_long_as_it_lives(message: bytes) -> None:
    one = server()
    assert one.step(message) == IN
    assert one.step(message) == Failed(), "an exchange has ended"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"good",
        b"y,,\x01auth=Bearer good\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer good\x01\x01",
        b"n,\x01auth=Bearer good\x01\x01",
        b"n,,auth=Bearer good\x01\x01",
        b"n,,\x01auth=Bearer good\x01",
        b"n,,\x01auth=Bearer good\x01\x01\x01",
        b"n,,\x01auth=Bearer good\x01\x01x",
        b"n,,\x01auth=Bearer good\x01\x01\n",
        b"n,,\x01\x01",
        b"n,,\x01Auth=Bearer good\x01\x01",
        b"n,,\x01auth=good\x01\x01",
        b"n,,\x01auth=Basic good\x01\x01",
        b"n,,\x01auth=Bearer good good\x01\x01",
        b"n,,\x01auth=Bearer g+d\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=\x01\x01",
        b"n,,\x01a1=b\x01auth=Bearer good\x01\x01",
        b"n,,\x01a=\x01auth=Bearer good\x01\x01",
        b"n,,\x01a=\xc5\xbe\x01auth=Bearer good\x01\x01",
        b"n,a=,\x01auth=Bearer good\x01\x01",
        b"n,a=al,ice,\x01auth=Bearer good\x01\x01",
        b"n,a=\xff,\x01auth=Bearer good\x01\x01",
        b"n,,\x01a=" + b"b" * LONGEST_MESSAGE + b"\x01auth=Bearer good\x01\x01",
    ],
)
def test_what_is_no_initial_message_fails_without_a_reason(message: bytes) -> None:
    one = server()
    assert one.step(message) == Failed()
    assert one.step(GOOD) == Failed()


def test_a_token_that_is_not_taken_is_told_first_and_fails_when_the_client_has_heard_it() -> None:
    one = server()
    assert one.step(BAD) == INVALID
    assert one.step(b"\x01") == Failed('{"status":"invalid_token"}')
    assert one.step(GOOD) == Failed()


def test_a_scope_that_is_needed_is_told() -> None:
    one = OAuthBearerServer(lambda _: RefusedToken("insufficient_scope", "read write"))
    assert one.step(GOOD) == Challenge(b'{"status":"insufficient_scope", "scope":"read write"}')
    assert one.step(b"\x01") == Failed('{"status":"insufficient_scope", "scope":"read write"}')


def test_another_token_may_follow_one_that_is_not_taken_and_few_at_most() -> None:
    one = server()
    assert one.step(BAD) == INVALID
    assert one.step(GOOD) == IN
    one = server()
    for _ in range(5):
        assert one.step(BAD) == INVALID
    assert one.step(GOOD) == Failed()
    one = server()
    assert one.step(BAD) == INVALID
    assert one.step(b"x") == Failed(), "which is no token"


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        (b"alice", "(alice) that is different from the token's principal name (al,ice)"),
        (b"al=2Cice", "(al=2Cice) that is different"),
        (b"a\x01\n\x7f", "(a???) that is different"),
    ],
)
def test_an_authorization_id_is_the_user_of_the_token(name: bytes, outcome: str) -> None:
    found = server().step(b"n,a=" + name + b",\x01auth=Bearer good\x01\x01")
    assert isinstance(found, Failed) and outcome in found.message
    assert server().step(b"n,a=" + name + b",\x01auth=Bearer bad\x01\x01") == INVALID
    other = OAuthBearerServer(lambda _: AcceptedToken("alice", 1))
    assert other.step(b"n,a=alice,\x01auth=Bearer good\x01\x01") == Authenticated(Principal(USER, "alice"), 1)


@given(st.lists(st.binary(max_size=40) | st.sampled_from([GOOD, BAD, b"\x01"]), max_size=8))
def test_no_bytes_raise_and_only_the_good_token_gets_in(tokens: list[bytes]) -> None:
    one = server()
    for token in tokens:
        if isinstance(one.step(token), Authenticated):
            assert token == GOOD


@given(
    st.from_regex(r"\An,(a=[a-z,=]{0,4})?,\x01([A-Za-z]{0,3}=[ -~]{0,6}\x01){0,3}(auth=[A-Za-z ]{0,12}\x01)?\x01\Z"),
)
def test_no_message_that_is_nearly_right_raises(message: str) -> None:
    found = parse_message(message.encode())
    assert found is None or (found.token and "auth" not in found.extensions)


def test_both_halves_agree() -> None:
    client = OAuthBearerClient("good", {"traceId": "7"})
    first = client.step(b"")
    assert isinstance(first, Challenge)
    found = parse_message(first.token)
    assert found is not None
    assert (found.token, found.extensions, found.authorization_id) == ("good", {"traceId": "7"}, "")
    assert server().step(first.token) == IN
    assert client.step(b"") == Complete()
    assert isinstance(client.step(b""), Failed)


def test_a_client_takes_the_status_of_a_failure_as_java_does() -> None:
    one, client = server(), OAuthBearerClient("bad", {})
    first = client.step(b"")
    assert isinstance(first, Challenge)
    told = one.step(first.token)
    assert isinstance(told, Challenge)
    heard = client.step(told.token)
    assert heard == Challenge(b"\x01")
    assert one.step(heard.token) == Failed('{"status":"invalid_token"}')
    assert isinstance(client.step(b""), Failed), "a server that goes on has not let it in"


def test_extensions_that_a_client_may_send() -> None:
    assert is_extension("traceId", "a b")
    for name, value in (("auth", "x"), ("a1", "x"), ("", "x"), ("a", ""), ("a", "\x01"), ("a", "ž"), ("a\n", "x")):
        assert not is_extension(name, value)


def test_no_token_is_shown() -> None:
    found = parse_message(b"n,,\x01auth=Bearer hunter\x01x=hunter\x01\x01")
    assert "hunter" not in repr(found)

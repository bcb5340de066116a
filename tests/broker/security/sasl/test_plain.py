"""PLAIN, with the messages of Apache Kafka."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.security.principals import USER, Principal
from ottla_broker.security.sasl.mechanism import Authenticated, Challenge, Complete, Failed
from ottla_broker.security.sasl.plain import PlainClient, PlainServer

USERS = {"alice": "alice-secret", "ž": "ř\ud800", "empty": ""}


def server() -> PlainServer:
    return PlainServer(lambda: USERS)


@pytest.mark.parametrize("token", [b"\0alice\0alice-secret", b"alice\0alice\0alice-secret"])
def test_a_user_gets_in_by_its_password(token: bytes) -> None:
    one = server()
    assert one.step(token) == Authenticated(Principal(USER, "alice"))
    assert one.step(token) == Failed(), "an exchange has ended"


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"\0alice\0no", "Authentication failed: Invalid username or password"),
        (b"\0zed\0alice-secret", "Authentication failed: Invalid username or password"),
        (b"\0zed\0\x01", "Authentication failed: Invalid username or password"),
        (b"bob\0alice\0no", "Authentication failed: Invalid username or password"),
        (
            b"bob\0alice\0alice-secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0\0\0\0\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0x", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0empty\0", "Authentication failed: password not specified"),
    ],
)
def test_whoever_does_not_get_in_hears_why_as_from_apache_kafka(token: bytes, message: str) -> None:
    assert server().step(token) == Failed(message)


def test_the_client_sends_what_the_server_takes() -> None:
    one = PlainClient("alice", "alice-secret")
    sent = one.step(b"")
    assert isinstance(sent, Challenge)
    assert server().step(sent.token) == Authenticated(Principal(USER, "alice"))
    assert one.step(b"") == Complete()


@given(st.lists(st.binary(max_size=60), max_size=3))
def test_no_bytes_make_it_raise(tokens: list[bytes]) -> None:
    one, other = server(), PlainClient("alice", "secret")
    for token in tokens:
        other.step(token)
        assert isinstance(one.step(token), Failed)

"""Both halves of GSSAPI on contexts that are made up: the order of tokens, what is chosen, who it is, and nonsense."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.security.kerberos_rules import KerberosRules
from ottla_broker.security.principals import USER, Principal
from ottla_broker.security.sasl.gssapi import GssapiClient, GssapiServer, KerberosFailure, KerberosLogin
from ottla_broker.security.sasl.login import LoginExchanges
from ottla_broker.security.sasl.mechanism import Authenticated, Challenge, Complete, Failed, ServerStep

RULES = KerberosRules(["DEFAULT"])
SEAL = b"sealed:"


class Context:
    """One side: the client sends `ticket:NAME`, the server `proof`, unless the client wants none."""

    def __init__(self, *, of_client: str = "", is_mutual: bool = True) -> None:
        self._name = of_client
        self._is_mutual = is_mutual
        self.is_established = False
        self.peer = ""

    def step(self, token: bytes) -> bytes:
        if self.is_established:
            raise KerberosFailure("a token behind the last one")
        if self._name and not token:
            self.is_established = not self._is_mutual
            return b"ticket:" + self._name.encode()
        if self._name:
            if token != b"proof":
                raise KerberosFailure("no proof")
            self.is_established = True
            return b""
        if not token.startswith(b"ticket:"):
            raise KerberosFailure("no ticket", passes=token == b"a replay")
        self.peer = token.removeprefix(b"ticket:").decode(errors="replace")
        self.is_established = True
        return b"proof" if self._is_mutual else b""

    def wrap(self, message: bytes) -> bytes:
        return SEAL + message

    def unwrap(self, token: bytes) -> bytes:
        if not token.startswith(SEAL):
            raise KerberosFailure("no seal")
        return token.removeprefix(SEAL)


def server(*, is_mutual: bool = True) -> GssapiServer:
    return GssapiServer(lambda: Context(is_mutual=is_mutual), lambda name: RULES.short_name(name, "EXAMPLE"))


def outcome(*tokens: bytes, is_mutual: bool = True) -> ServerStep:
    """Of the last token."""
    side = server(is_mutual=is_mutual)
    step: ServerStep = Failed()
    for token in tokens:
        step = side.step(token)
    return step


@pytest.mark.parametrize("is_mutual", [True, False])
def test_a_client_gets_in_by_its_short_name(is_mutual: bool) -> None:
    asked: list[str] = []

    def initiate(host: str) -> Context:
        asked.append(host)
        return Context(of_client="alice@EXAMPLE", is_mutual=is_mutual)

    login = KerberosLogin(initiate, nullcontext())
    client, side = LoginExchanges().begin(login, "b.example"), server(is_mutual=is_mutual)
    assert not asked, "nobody is asked for a ticket on the event loop"
    token, sent = b"", 0
    while isinstance(step := client.step(token), Challenge):
        sent += 1
        answer = side.step(step.token)
        assert isinstance(answer, Challenge | Authenticated)
        token = answer.token
    assert isinstance(step, Complete)
    assert answer == Authenticated(Principal(USER, "alice"))
    assert (login.mechanism, asked, sent) == ("GSSAPI", ["b.example"], 3 if is_mutual else 2)
    assert isinstance(client.step(b""), Failed)
    assert isinstance(side.step(b""), Failed)


@pytest.mark.parametrize("authorization_id", [b"", b"alice@EXAMPLE", b"kafka@b.example", b"bob@EXAMPLE"])
def test_whatever_a_client_calls_itself_it_is_who_its_ticket_says(authorization_id: bytes) -> None:
    """As with Apache Kafka: kafka-python and aiokafka name the service."""
    chosen = SEAL + b"\x01\0\0\0" + authorization_id
    assert outcome(b"ticket:alice@EXAMPLE", b"", chosen) == Authenticated(Principal(USER, "alice"))


@pytest.mark.parametrize(
    ("tokens", "detail"),
    [
        ((b"nonsense",), "no ticket"),
        ((b"ticket:alice@EXAMPLE", b"x"), "has sent a token where it has none"),
        ((b"ticket:alice@EXAMPLE", b"", b"x"), "no seal"),
        ((b"ticket:alice@EXAMPLE", b"", SEAL), "messages to be protected"),
        ((b"ticket:alice@EXAMPLE", b"", SEAL + b"\x04\0\0\0"), "messages to be protected"),
        ((b"ticket:alice@OTHER", b"", SEAL + b"\x01\0\0\0"), "no rule of sasl.kerberos.principal.to.local.rules"),
    ],
)
def test_a_failure_says_why_to_the_log_alone(tokens: tuple[bytes, ...], detail: str) -> None:
    step = outcome(*tokens)
    assert isinstance(step, Failed)
    assert (step.message, step.is_told) == ("", True)
    assert detail in step.detail


def test_a_client_is_told_nothing_when_it_may_try_again() -> None:
    assert outcome(b"a replay") == Failed(detail="no ticket", is_told=False)


def test_a_keytab_that_is_gone_is_a_failure() -> None:
    def accept() -> Context:
        raise KerberosFailure("no keytab")

    assert GssapiServer(accept, str).step(b"ticket:a@EXAMPLE") == Failed(detail="no keytab")
    assert GssapiClient(accept).step(b"") == Failed("no keytab")


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [
        ((b"", b"nonsense"), "no proof"),
        ((b"", b"proof", b"nonsense"), "no seal"),
        ((b"", b"proof", SEAL + b"\x06\0\1\0"), "wants messages to be protected"),
        ((b"", b"proof", SEAL), "wants messages to be protected"),
        ((b"", b"proof", SEAL + b"\x07\0\1\0", b"more"), "has sent a token where GSSAPI has none"),
    ],
)
def test_a_client_ends_with_the_reason(tokens: tuple[bytes, ...], reason: str) -> None:
    client = GssapiClient(lambda: Context(of_client="alice@EXAMPLE"))
    steps = [client.step(token) for token in tokens]
    assert isinstance(steps[-1], Failed)
    assert reason in steps[-1].message


pieces = st.sampled_from([b"", b"ticket:alice@EXAMPLE", b"proof", SEAL, SEAL + b"\x01\0\0\0"]) | st.binary(max_size=40)


@given(st.lists(pieces, max_size=6))
def test_no_bytes_make_a_step_raise_or_let_anybody_in_without_a_ticket(tokens: list[bytes]) -> None:
    side, client = server(), GssapiClient(lambda: Context(of_client="alice@EXAMPLE"))
    client.step(b"")
    for token in tokens:
        step = side.step(token)
        assert not isinstance(step, Authenticated) or b"ticket:alice@EXAMPLE" in tokens
        client.step(token)

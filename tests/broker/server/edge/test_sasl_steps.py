"""A mechanism that works beside the event loop: its client waits, others do not, and nothing is read meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import pytest

from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.generated.metadata import MetadataRequest
from ottla_broker.protocol.generated.sasl_authenticate import SaslAuthenticateRequest
from ottla_broker.security.principals import USER, Principal
from ottla_broker.security.sasl.mechanism import PLAIN, Failed, ServerMechanism, ServerStep
from ottla_broker.server.edge.sasl_connection import TakeStep
from tests.broker.server.edge.test_sasl_connection import FAILED, GOOD, LIMIT_S, Listener


class SlowListener(Listener):
    """PLAIN answers when `work` is called."""

    @property
    def beside(self) -> Mapping[str, TakeStep]:
        self.waiting: list[Callable[[], None]] = []
        return {PLAIN: self._take}

    def _take(self, mechanism: ServerMechanism, token: bytes, then: Callable[[ServerStep], None]) -> None:
        self.waiting.append(partial(then, mechanism.step(token)))

    def work(self) -> None:
        self.waiting.pop(0)()


def test_a_client_is_answered_when_the_mechanism_has_worked() -> None:
    one = SlowListener()
    one.handshake()
    assert one.authenticate(GOOD) is None
    assert not one.socket.is_read
    one.work()
    assert one.received().error_code == 0
    assert one.socket.is_read
    assert one.metadata() is not None
    assert one.outcomes.seen == ["succeeded"]


def test_a_bare_token_is_answered_likewise() -> None:
    one = SlowListener()
    one.handshake(version=0)
    one.raw(GOOD)
    assert not one.socket.sent
    one.work()
    assert one.socket.sent.pop() == b"\0\0\0\0"
    assert one.metadata() is not None


def test_what_comes_before_the_answer_waits_for_it_and_is_served_behind() -> None:
    one = SlowListener()
    one.handshake()
    one.authenticate(GOOD)
    one.socket.is_read = True  # a frame that was read already
    one.send(ApiKey.METADATA, 4, MetadataRequest(topics=None))
    assert not one.served
    assert not one.socket.is_read
    one.work()
    assert one.received().error_code == 0
    assert one.received() is not None
    assert one.served == [(ApiKey.METADATA, Principal(USER, "alice"))]


def test_a_second_token_waits_for_its_turn() -> None:
    one = SlowListener()
    one.handshake()
    one.authenticate(b"nonsense")
    one.socket.is_read = True
    one.send(ApiKey.SASL_AUTHENTICATE, 1, SaslAuthenticateRequest(auth_bytes=GOOD))
    assert len(one.waiting) == 1
    one.work()
    assert one.is_refused()
    assert not one.waiting
    assert one.received().error_code == FAILED
    assert one.outcomes.seen == ["failed"]


def test_the_time_limit_holds_while_it_works_and_what_comes_of_it_is_dropped() -> None:
    one = SlowListener()
    one.handshake()
    one.authenticate(GOOD)
    one.wait(LIMIT_S + 0.1)
    assert one.is_closed
    one.work()
    assert not one.socket.sent
    assert one.outcomes.seen == ["failed"]
    assert one.client.principal_name == "ANONYMOUS"


def test_a_client_that_has_gone_is_let_in_by_nobody() -> None:
    one = SlowListener()
    one.handshake()
    one.authenticate(GOOD)
    one.socket.is_closed = True
    one.gate.on_close("")
    one.work()
    assert one.outcomes.seen == []
    assert all(timer.callback is None for timer in one.edge.clock.timers)


def test_a_client_authenticates_again_likewise() -> None:
    one = SlowListener(plain=3000)
    for expected in (["succeeded"], ["succeeded", "again"]):
        one.handshake()
        one.authenticate(GOOD)
        one.work()
        assert one.received().session_lifetime_ms == 3000
        assert one.outcomes.seen == expected
        one.wait(2)
    assert one.metadata() is not None


class RefusingListener(Listener):
    @property
    def beside(self) -> Mapping[str, TakeStep]:
        return {PLAIN: lambda mechanism, token, then: then(self.failed)}

    failed = Failed(detail="the clocks differ")


def test_what_is_for_the_log_alone_is_in_the_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="ottla.server")
    one = RefusingListener()
    one.handshake()
    assert one.authenticate(GOOD) is None
    assert one.is_refused()
    answer = one.received()
    assert answer.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism PLAIN"
    )
    assert f"{answer.error_message} (the clocks differ)" in caplog.text


@pytest.mark.parametrize("version", [0, 1])
def test_a_client_that_may_try_again_is_told_nothing(version: int) -> None:
    """An error would make a client of Java give up."""
    one = RefusingListener()
    one.failed = Failed(detail="a replay", is_told=False)
    one.handshake(version=version)
    one.raw(GOOD) if version == 0 else one.authenticate(GOOD)
    assert one.is_refused()
    assert not one.socket.sent
    assert one.outcomes.seen == ["failed"]

"""How a broker logs in to another: a connection like any other, refused with the reason, logged in again in time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.adapters.network import SocketNetwork
from ottla_broker.ports.clock import Timer
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla_broker.security.oauth.logins import TokenFile, TokenLogin, TokenUnavailable
from ottla_broker.security.principals import USER, Principal
from ottla_broker.security.sasl.gssapi import KerberosLogin
from ottla_broker.security.sasl.login import SaslLogin
from ottla_broker.security.sasl.mechanism import OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from ottla_broker.security.sasl.oauthbearer import AcceptedToken, OAuthBearerServer, RefusedToken
from ottla_broker.security.sasl.plain import PlainServer
from ottla_broker.security.sasl.scram import ScramAlgorithm, ScramCredential, ScramIdentity, ScramServer
from ottla_broker.server.edge.sasl_connection import SaslConnection, SaslRules
from ottla_broker.server.handler_api import RequestContext
from ottla_broker.server.peers.broker_client import BrokerClient, BrokerDisconnected
from ottla_broker.server.peers.sasl_connector import SaslConnector, SaslRefused
from tests.broker.server.edge.test_sasl_connection import Outcomes
from tests.broker.server.edge.test_throttling import Edge

PASSWORD = "b-secret"
TOKEN_LOGIN = TokenLogin(TokenFile("/run/token"), (("a", "b"),))


class Peer:
    """Another broker, which answers Heartbeat when it is told to."""

    def __init__(self, network: SocketNetwork, clock: LoopClock, session_ms: int) -> None:
        self._network = network
        self._clock = clock
        self.outcomes = Outcomes()
        self.waiting: list[RequestContext] = []
        self.arrived = asyncio.Event()
        self.passwords = {"b": PASSWORD}
        self.tokens: list[str] = []
        self.has_no_token = False
        self.is_asked_for_token = asyncio.Event()
        self.may_get_token = asyncio.Event()
        self.may_get_token.set()
        self.takes_tokens = True
        credentials = {one: ScramCredential.of(one, PASSWORD, b"salt", 4096) for one in ScramAlgorithm}

        def scram(algorithm: ScramAlgorithm) -> Callable[[], ScramServer]:
            identity = ScramIdentity(credentials[algorithm], Principal(USER, "b"))
            return lambda: ScramServer(algorithm, lambda name, _: identity if name == "b" else None, b"s")

        self._rules = SaslRules(
            {
                PLAIN: lambda: PlainServer(lambda: self.passwords),
                SCRAM_SHA_256: scram(ScramAlgorithm.SHA_256),
                SCRAM_SHA_512: scram(ScramAlgorithm.SHA_512),
                OAUTHBEARER: lambda: OAuthBearerServer(self._worth),
            },
            dict.fromkeys((PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER), session_ms),
            524288,
            1 << 20,
            0.001,
            60,
            self.outcomes,
        )

    def _worth(self, token: str) -> AcceptedToken | RefusedToken:
        self.tokens.append(token)
        return AcceptedToken("b", 1200) if self.takes_tokens else RefusedToken()

    async def token(self, login: TokenLogin) -> str:
        self.is_asked_for_token.set()
        await self.may_get_token.wait()
        self.is_asked_for_token.clear()
        if self.has_no_token:
            raise TokenUnavailable("no token for b: down")
        return f"good{len(self.tokens) + 1}" if login is TOKEN_LOGIN else ""

    def accept(self, connection: Any) -> SaslConnection:
        edge = Edge()
        client: Any = edge.connection
        client._connection = connection
        edge._dispatch = self._dispatch  # type: ignore[method-assign]
        from dataclasses import replace

        client._environment = replace(client._environment, dispatch=self._dispatch)
        gate = SaslConnection(
            client, connection, self._rules, self._dispatch, self._clock.monotonic, self._clock.call_later
        )
        client.reauthenticate = gate.reauthenticate
        return gate

    def _dispatch(self, context: RequestContext, frame: memoryview, body_offset: int) -> None:
        self.waiting.append(context)
        self.arrived.set()

    async def answer(self) -> None:
        await self.arrived.wait()
        self.arrived.clear()
        for context in self.waiting:
            context.respond(HeartbeatResponse())
        self.waiting.clear()


@asynccontextmanager
async def connected(
    mechanism: str, *, password: str = PASSWORD, session_ms: int = 0
) -> AsyncIterator[tuple[BrokerClient, Peer]]:
    clock = LoopClock()
    network = SocketNetwork()
    peer = Peer(network, clock, session_ms)
    listener = await network.listen("127.0.0.1", 0, peer.accept, max_frame_bytes=1 << 20)
    login = TOKEN_LOGIN if mechanism == OAUTHBEARER else SaslLogin(mechanism, "b", password)
    connector = SaslConnector(network, clock, lambda: login, peer.token)
    client = BrokerClient(connector, clock, "127.0.0.1", listener.port, client_id="c")
    try:
        yield client, peer
    finally:
        client.close()
        network.close()
        clock.cancel_all()


@pytest.mark.parametrize("mechanism", [PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER])
async def test_a_broker_logs_in_and_its_requests_are_served(mechanism: str) -> None:
    async with connected(mechanism) as (client, peer):
        await client.connect()
        asked = client.send(ApiKey.HEARTBEAT, 4, HeartbeatRequest())
        await peer.answer()
        assert (await asked).error_code == 0
        assert peer.outcomes.seen == ["succeeded"]


class TellingClock(LoopClock):
    """Says when the first of its timers has fired."""

    def __init__(self) -> None:
        super().__init__()
        self.fired = asyncio.Event()

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
        def run() -> None:
            callback(*args)
            self.fired.set()

        return super().call_later(delay_s, run)


def _no_handler(connection: Any) -> Any:
    raise AssertionError("nobody has logged in")


async def test_as_many_logins_as_have_a_turn_wait_for_a_key_distribution_center() -> None:
    """So that there are threads for whatever else needs one."""
    clock, network, answers = LoopClock(), SocketNetwork(), threading.Event()
    peer = Peer(network, clock, 0)
    listener = await network.listen("127.0.0.1", 0, peer.accept, max_frame_bytes=1 << 20)
    loop, began = asyncio.get_running_loop(), asyncio.Event()
    waiting, seen = 0, []

    def initiate(host: str) -> Any:
        nonlocal waiting
        waiting += 1
        seen.append(waiting)
        loop.call_soon_threadsafe(began.set)
        answers.wait()
        waiting -= 1
        return SimpleNamespace(step=lambda token: b"ticket", is_established=False)

    login = KerberosLogin(initiate, asyncio.Lock(), PLAIN)
    connector = SaslConnector(network, clock, lambda: login, peer.token)
    connecting = [
        asyncio.create_task(
            connector.connect("127.0.0.1", listener.port, _no_handler, timeout_s=60, max_frame_bytes=1 << 20)
        )
        for _ in range(5)
    ]
    await began.wait()
    answers.set()
    ended = await asyncio.gather(*connecting, return_exceptions=True)
    assert [type(one) for one in ended] == [SaslRefused] * 5
    assert seen == [1] * 5
    network.close()
    clock.cancel_all()


async def test_a_step_that_ends_behind_the_time_limit_logs_nobody_in() -> None:
    """That of a client whose key distribution center does not answer."""
    clock, network, answers = TellingClock(), SocketNetwork(), threading.Event()
    peer = Peer(network, LoopClock(), 0)
    listener = await network.listen("127.0.0.1", 0, peer.accept, max_frame_bytes=1 << 20)

    def initiate(host: str) -> Any:
        answers.wait()
        return SimpleNamespace(step=lambda token: b"ticket", is_established=False)

    connector = SaslConnector(network, clock, lambda: KerberosLogin(initiate, nullcontext(), PLAIN), peer.token)
    connecting = asyncio.create_task(
        connector.connect("127.0.0.1", listener.port, _no_handler, timeout_s=0.2, max_frame_bytes=1 << 20)
    )
    await clock.fired.wait()
    answers.set()
    with pytest.raises(TimeoutError, match="it has not let this broker in in time"):
        await connecting
    network.close()
    clock.cancel_all()


@pytest.mark.parametrize(
    ("mechanism", "reason"),
    [
        (PLAIN, "Authentication failed: Invalid username or password"),
        (SCRAM_SHA_512, "due to invalid credentials with SASL mechanism SCRAM-SHA-512"),
    ],
)
async def test_a_broker_with_a_wrong_password_hears_why(mechanism: str, reason: str) -> None:
    async with connected(mechanism, password="other") as (client, peer):
        with pytest.raises(BrokerDisconnected, match=reason) as caught:
            await client.connect()
        assert "other" not in str(caught.value).replace("the other side", "")
        assert not client.is_connected
        assert peer.outcomes.seen == ["failed"]


async def test_a_broker_hears_which_mechanisms_there_are() -> None:
    async with connected(PLAIN) as (client, peer):
        del peer._rules.mechanisms[PLAIN]  # type: ignore[attr-defined]
        with pytest.raises(BrokerDisconnected, match=r"UNSUPPORTED_SASL_MECHANISM to PLAIN.*SCRAM-SHA-256, SCRAM"):
            await client.connect()


async def test_a_broker_logs_in_again_while_requests_are_in_flight_and_others_wait() -> None:
    async with connected(SCRAM_SHA_256, session_ms=1200) as (client, peer):
        await client.connect()
        for _ in range(3):
            before = len(peer.outcomes.seen)
            first = client.send(ApiKey.HEARTBEAT, 4, HeartbeatRequest())
            await peer.arrived.wait()
            link: Any = client._link
            while link.connection._held is None:  # noqa: ASYNC110 - nothing announces that its time has come
                await asyncio.sleep(0.01)
            second = client.send(ApiKey.HEARTBEAT, 4, HeartbeatRequest())
            await peer.answer()
            assert (await first).error_code == 0
            await peer.answer()
            assert (await second).error_code == 0
            assert peer.outcomes.seen[before:] == (["again"] if before else ["succeeded", "again"])[-1:]
        assert "expired" not in peer.outcomes.seen


async def test_a_password_that_is_not_right_any_more_ends_the_connection() -> None:
    async with connected(PLAIN, session_ms=200) as (client, peer):
        await client.connect()
        peer.passwords["b"] = "another"
        while client.is_connected:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.01)
        assert peer.outcomes.seen == ["succeeded", "failed again"]


async def test_a_broker_logs_in_again_with_another_token_before_the_first_ends() -> None:
    async with connected(OAUTHBEARER) as (client, peer):
        await client.connect()
        while len(peer.tokens) < 3:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.01)
        assert peer.tokens == ["good1", "good2", "good3"]
        assert "failed again" not in peer.outcomes.seen and "expired" not in peer.outcomes.seen
        peer.has_no_token = True
        while client.is_connected:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.01)


async def test_a_broker_without_a_token_or_with_a_bad_one_hears_why() -> None:
    async with connected(OAUTHBEARER) as (client, peer):
        peer.has_no_token = True
        with pytest.raises(BrokerDisconnected, match="no token for b: down"):
            await client.connect()
        peer.has_no_token = False
        peer.takes_tokens = False
        with pytest.raises(BrokerDisconnected, match='"status":"invalid_token"'):
            await client.connect()


async def test_requests_are_sent_on_while_another_token_is_got() -> None:
    async with connected(OAUTHBEARER) as (client, peer):
        await client.connect()
        peer.may_get_token.clear()
        await peer.is_asked_for_token.wait()
        asked = client.send(ApiKey.HEARTBEAT, 4, HeartbeatRequest())
        await peer.answer()
        assert (await asked).error_code == 0
        assert len(peer.tokens) == 1
        peer.may_get_token.set()
        while len(peer.tokens) == 1:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.01)
        assert peer.outcomes.seen == ["succeeded", "again"]

"""SaslConnector: connects to a SASL listener of another broker, logs in, and again before the session ends (KIP-368).

What it gives is a connection like any other: who sends requests by it does not see that one is sent in between. While
it logs in again, what is sent waits; responses of requests in flight come first, as the other broker answers in order.

Own requests have negative correlation ids, which no request of a `BrokerClient` has.

Source: org.apache.kafka.common.security.authenticator.SaslClientAuthenticator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any, Final, NamedTuple

from ottla_broker.ports import Clock
from ottla_broker.ports.clock import Timer
from ottla_broker.ports.network import Chunk, Connection, ConnectionHandler, Connector, HandlerFactory
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import error_name
from ottla_broker.protocol.generated.sasl_authenticate import SaslAuthenticateRequest
from ottla_broker.protocol.generated.sasl_handshake import SaslHandshakeRequest
from ottla_broker.security.oauth.logins import TokenLogin
from ottla_broker.security.sasl.gssapi import KerberosLogin
from ottla_broker.security.sasl.login import LoginExchanges, SaslLogin
from ottla_broker.security.sasl.mechanism import Challenge, ClientMechanism, ClientStep, Failed
from ottla_broker.security.sasl.oauthbearer import OAuthBearerClient

logger = logging.getLogger("ottla.server")

_VERSION: Final = 1
"""Of both requests: brokers of Apache Kafka have it since 2.2."""
_EARLIEST, _LATEST = 0.85, 0.95
"""Parts of a session's life between which it logs in again, as Java's clients do."""
_OVERDUE: Final = "it has not let this broker in in time"
_OWN: Final = 0x80
"""A bit of the first byte of a negative correlation id."""


class SaslRefused(ConnectionError):
    """The other broker does not let this one in."""


class SaslConnector:
    """See the module and `ottla_broker.ports.network.Connector`.

    Args:
        connector: connects without logging in.
        login: in force: the name and password, the ticket, or where a token is from.
        token: gets the token of a login; raises OSError.
    """

    def __init__(
        self,
        connector: Connector,
        clock: Clock,
        login: Callable[[], SaslLogin | KerberosLogin | TokenLogin],
        token: Callable[[TokenLogin], Awaitable[str]],
    ) -> None:
        self._connector = connector
        self._clock = clock
        self._login = login
        self._token = token
        self._exchanges = LoginExchanges()

    async def connect(
        self, host: str, port: int, factory: HandlerFactory, *, timeout_s: float, max_frame_bytes: int
    ) -> Connection:
        session = _LoggedIn(self._clock, partial(self._client, host))
        started = self._clock.monotonic()
        connection = await self._connector.connect(
            host, port, session.attach, timeout_s=timeout_s, max_frame_bytes=max_frame_bytes
        )
        try:
            left_s = timeout_s - (self._clock.monotonic() - started)
            await session.log_in(max(left_s, 0.001))
            if connection.is_closed:
                raise ConnectionError("the other side closed the connection")
        except BaseException:
            connection.close()
            raise
        session.hand_over(factory(session))
        return session

    async def _client(self, host: str) -> _Exchange:
        """This side of a new exchange. Raises OSError."""
        login = self._login()
        if isinstance(login, TokenLogin):
            client = OAuthBearerClient(await self._token(login), dict(login.extensions))
            return _Exchange(login.mechanism, client, nullcontext())
        turn = login.turn if isinstance(login, KerberosLogin) else nullcontext()
        return _Exchange(login.mechanism, self._exchanges.begin(login, host), turn)


class _Exchange(NamedTuple):
    """A new one: the mechanism, this side of it, and what is held during a step."""

    mechanism: str
    client: ClientMechanism
    turn: AbstractAsyncContextManager[object]


class _LoggedIn:
    """A connection that has logged in: for those above a `Connection`, for the one below its `ConnectionHandler`."""

    def __init__(self, clock: Clock, client: Callable[[], Awaitable[_Exchange]]) -> None:
        self._clock = clock
        self._client = client
        self._below: Connection | None = None
        self._above: ConnectionHandler | None = None
        self._answer: asyncio.Future[memoryview] | None = None
        """Of the own request that is in flight."""
        self._is_overdue = False
        self._correlation_id = 0
        self._held: list[tuple[Sequence[Chunk], bool]] | None = None
        """What is sent while it logs in again."""
        self._timer: Timer | None = None
        self._reason: str | None = None
        """Why the connection has ended; None while it is open."""
        self.peer = ("", 0)
        self.local = ("", 0)

    def attach(self, connection: Connection) -> _LoggedIn:
        self._below = connection
        self.peer, self.local = connection.peer, connection.local
        return self

    def hand_over(self, handler: ConnectionHandler) -> None:
        self._above = handler

    @property
    def _connection(self) -> Connection:
        assert self._below is not None
        return self._below

    # The Connection

    @property
    def peer_certificate(self) -> bytes | None:
        return self._connection.peer_certificate

    @property
    def unsent_bytes(self) -> int:
        return self._connection.unsent_bytes

    @property
    def is_closed(self) -> bool:
        return self._connection.is_closed

    def send(self, chunks: Sequence[Chunk], *, now: bool = False) -> None:
        if self._held is None:
            self._connection.send(chunks, now=now)
        else:
            self._held.append((chunks, now))

    def pause(self) -> None:
        self._connection.pause()

    def resume(self) -> None:
        self._connection.resume()

    def limit_frames(self, max_bytes: int) -> None:
        self._connection.limit_frames(max_bytes)

    def close(self) -> None:
        self._connection.close()

    def close_after_send(self) -> None:
        self._connection.close_after_send()

    # The ConnectionHandler

    def on_frame(self, frame: memoryview) -> None:
        if len(frame) >= 4 and frame[0] & _OWN:
            answer, self._answer = self._answer, None
            if answer is not None and not answer.done():
                answer.set_result(frame)
        elif self._above is not None:
            self._above.on_frame(frame)
        else:
            self._connection.close()

    def on_sent(self) -> None:
        if self._above is not None:
            self._above.on_sent()

    def on_close(self, reason: str) -> None:
        self._reason = reason
        if self._timer is not None:
            self._timer.cancel()
        self._held = None
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(ConnectionError(reason or "the other side closed the connection while logging in"))
        if self._above is not None:
            self._above.on_close(reason)

    # Logging in

    async def log_in(self, limit_s: float) -> None:
        """Raises OSError."""
        await self._log_in_by(await self._client(), limit_s)

    async def _log_in_by(self, exchange: _Exchange, limit_s: float) -> None:
        self._is_overdue = False
        timer = self._clock.call_later(limit_s, self._on_overdue)
        try:
            lifetime_ms = await self._exchange(exchange)
        finally:
            timer.cancel()
        if lifetime_ms > 0:
            part = self._clock.random.uniform(_EARLIEST, _LATEST)
            self._timer = self._clock.call_later(part * lifetime_ms / 1000, self._log_in_again, limit_s)

    def _on_overdue(self) -> None:
        self._is_overdue = True  # for a step that ends later: one of GSSAPI waits for others
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(TimeoutError(_OVERDUE))

    def _log_in_again(self, limit_s: float) -> None:
        self._timer = None
        if not self.is_closed:
            self._clock.spawn(self._again(limit_s), name="log in again to a broker")

    async def _again(self, limit_s: float) -> None:
        try:
            begun = await self._client()  # which may take seconds: until then requests are sent on
            self._held = []
            await self._log_in_by(begun, limit_s)
        except OSError as error:
            if not self.is_closed:
                logger.warning("closing a connection to %s:%d, which was to log in again: %s", *self.peer, error)
                self.close()
            return
        held, self._held = self._held, None
        for chunks, now in held or ():
            self._connection.send(chunks, now=now)

    async def _exchange(self, exchange: _Exchange) -> int:
        """Gives the lifetime of the session in milliseconds; 0 without an end."""
        mechanism = exchange.mechanism
        handshake = await self._ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=mechanism))
        if handshake.error_code:
            offered = ", ".join(handshake.mechanisms)
            raise SaslRefused(
                f"it answers {error_name(handshake.error_code)} to {mechanism}; its mechanisms: {offered}"
            )
        token, lifetime_ms = b"", 0
        while isinstance(step := await self._step(exchange, token), Challenge):
            answer = await self._ask(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=step.token))
            if answer.error_code:
                raise SaslRefused(answer.error_message or error_name(answer.error_code))
            token, lifetime_ms = bytes(answer.auth_bytes), answer.session_lifetime_ms
        if isinstance(step, Failed):
            raise SaslRefused(step.message or f"{mechanism} has failed")
        return int(lifetime_ms)

    async def _step(self, exchange: _Exchange, token: bytes) -> ClientStep:
        async with exchange.turn:
            if self._is_overdue:
                raise TimeoutError(_OVERDUE)
            return await self._clock.in_thread(exchange.client.step, token)

    async def _ask(self, api_key: ApiKey, request: Any) -> Any:
        if self._reason is not None or self.is_closed:
            raise ConnectionError(self._reason or "the connection is closed")
        if self._is_overdue:
            raise TimeoutError(_OVERDUE)
        self._correlation_id = self._correlation_id % 0x7FFFFFFF + 1
        correlation_id = self._correlation_id - 0x80000000
        chunks: Any = codec.frame_request(api_key, _VERSION, correlation_id, "sasl", request)
        answer = self._answer = self._clock.create_future()
        self._connection.send(chunks, now=True)
        frame = await answer
        try:
            found, response = codec.read_response_frame(api_key, _VERSION, frame)
        except codec.DecodeError as error:
            raise SaslRefused(f"an answer that is no {api_key.name} response: {error}") from None
        if found != correlation_id:
            raise SaslRefused("an answer to another request")
        return response

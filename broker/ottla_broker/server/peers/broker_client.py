"""BrokerClient: the client side of one connection between brokers; sends requests, gives responses in order.

Replica fetchers, the controller's channels and the controller client use it. Lives here: correlation ids, pipelining,
time limits. Not here: TLS (the connector's), when to connect again and to which broker, versions (the caller follows
inter.broker.protocol.version). On the calling side of the Network and Clock ports.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from ottla_broker.ports import Clock
from ottla_broker.ports.clock import Timer
from ottla_broker.ports.network import Connection, Connector
from ottla_broker.protocol import codec


class BrokerDisconnected(ConnectionError):
    """The connection is closed; whether the other broker handled the request is unknown."""


class BrokerClient:
    """One connection to a broker. Responses come in the order of the requests, several may be in flight.

    `connect` first; after a disconnect every call fails at once, and `connect` may be called again.
    """

    def __init__(
        self,
        connector: Connector,
        clock: Clock,
        host: str,
        port: int,
        *,
        client_id: str,
        connect_timeout_s: float = 10.0,
        request_timeout_s: float = 30.0,
        max_frame_bytes: int = 2**31 - 1,
    ) -> None:
        self._connector = connector
        self._clock = clock
        self.host = host
        self.port = port
        self._client_id = client_id
        self._connect_timeout_s = connect_timeout_s
        self._request_timeout_s = request_timeout_s
        self._max_frame_bytes = max_frame_bytes
        self._link: _EstablishedConnection | None = None
        self._connecting = asyncio.Lock()
        self._closings = 0
        self._correlation_id = 0

    @property
    def is_connected(self) -> bool:
        return self._link is not None and not self._link.is_closed

    async def connect(self) -> None:
        """Raises BrokerDisconnected when the broker does not answer in time, or `close` is called meanwhile.

        Does nothing while connected; concurrent calls wait for the same connection.
        """
        async with self._connecting:
            if not self.is_connected:
                await self._connect()

    async def _connect(self) -> None:
        closings = self._closings
        link = _EstablishedConnection(self)
        try:
            connection = await self._connector.connect(
                self.host,
                self.port,
                link.attach,
                timeout_s=self._connect_timeout_s,
                max_frame_bytes=self._max_frame_bytes,
            )
        except OSError as error:
            raise BrokerDisconnected(f"{self.host}:{self.port} does not answer: {error}") from error
        link.connection = connection
        if closings != self._closings:
            link.end("the client was closed")
        if link.is_closed:
            raise BrokerDisconnected(f"{self.host}:{self.port}: the connection was closed at once")
        self._link = link

    def send(self, api_key: int, version: int, request: Any, *, timeout_s: float | None = None) -> asyncio.Future[Any]:
        """Sends a request; the future gives its decoded response.

        It fails with BrokerDisconnected when the connection closes, and when there is no response within `timeout_s`
        (default: the client's): then the connection is closed, since later responses would come after this one.
        Raises EncodeError for a request that does not fit the version.
        """
        future: asyncio.Future[Any] = self._clock.create_future()
        link = self._link
        if link is None or link.is_closed or link.connection is None:
            future.set_exception(BrokerDisconnected(f"not connected to {self.host}:{self.port}"))
            return future
        self._correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
        chunks = codec.frame_request(api_key, version, self._correlation_id, self._client_id, request)
        limit_s = self._request_timeout_s if timeout_s is None else timeout_s
        link.expect(self._correlation_id, api_key, version, future, limit_s)
        link.connection.send(chunks)  # type: ignore[arg-type]
        return future

    def close(self) -> None:
        """Fails everything in flight, a `connect` too. Idempotent."""
        self._closings += 1
        link, self._link = self._link, None
        if link is not None:
            link.end("the client was closed")


class _EstablishedConnection:
    """One established connection."""

    def __init__(self, client: BrokerClient) -> None:
        self._client = client
        self._clock = client._clock
        self.connection: Connection | None = None
        self.is_closed = False
        self._pending: deque[tuple[int, int, int, asyncio.Future[Any], float]] = deque()
        self._timer: Timer | None = None
        self._timer_due = 0.0

    def attach(self, connection: Connection) -> _EstablishedConnection:
        self.connection = connection
        return self

    def expect(
        self, correlation_id: int, api_key: int, version: int, future: asyncio.Future[Any], limit_s: float
    ) -> None:
        deadline = self._clock.monotonic() + limit_s
        self._pending.append((correlation_id, api_key, version, future, deadline))
        if self._timer is None or deadline < self._timer_due:
            self._arm(deadline, limit_s)

    def _arm(self, due: float, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._clock.call_later(delay_s, self._check_deadline)

    def on_frame(self, frame: memoryview) -> None:
        if self.is_closed:
            return
        if not self._pending:
            self.end("a response without a request")
            return
        expected, api_key, version, future, _ = self._pending.popleft()
        try:
            correlation_id, response = codec.read_response_frame(api_key, version, frame)
        except codec.DecodeError as error:
            self._fail(future, f"a response that is no {codec.spec(api_key).name} v{version} response: {error}")
            self.end("an unreadable response")
            return
        if correlation_id != expected:
            self._fail(future, f"response {correlation_id} where {expected} is due")
            self.end("responses out of order")
            return
        if not future.done():
            future.set_result(response)

    def on_sent(self) -> None:
        return

    def on_close(self, reason: str) -> None:
        self.end(reason or "the other side closed the connection")

    def end(self, reason: str) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.connection is not None:
            self.connection.close()
        while self._pending:
            self._fail(self._pending.popleft()[3], reason)

    def _fail(self, future: asyncio.Future[Any], reason: str) -> None:
        if not future.done():
            future.set_exception(BrokerDisconnected(f"{self._client.host}:{self._client.port}: {reason}"))

    def _check_deadline(self) -> None:
        """The one timer of the connection, set for the request that is due first."""
        self._timer = None
        if self.is_closed or not self._pending:
            return
        due, api_key, version = min((item[4], item[1], item[2]) for item in self._pending)
        left = due - self._clock.monotonic()
        if left <= 0:
            self.end(f"no response in time to {codec.spec(api_key).name} v{version}")
        else:
            self._arm(due, left)

"""One client connection: frames in, requests dispatched in order, answers out in order.

The rule of order (architecture, "The hot path"): answers leave in the order of their requests. Request n+1 is
dispatched when n has been answered, except a Produce after Produces, which is dispatched at once: its offsets are
assigned when the handler returns, and only its write and its replicas are waited for. While a request has to wait,
the connection stops reading, so that a client can never make us hold more than one undispatched frame.

Back-pressure: a client that does not read its answers is not read from either.

A data request may have to wait for its turn among those of all connections (`turns`); the controller's never does.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from typing import TYPE_CHECKING

from ottla_broker.ports.network import Connection
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.server.context import RequestContext
from ottla_broker.server.edge.request_scheduling import CONTROL_APIS

if TYPE_CHECKING:
    from ottla_broker.server.edge.listeners import SocketServer

logger = logging.getLogger("ottla.server")

MAX_PIPELINED_PRODUCES = 128
MAX_UNSENT_BYTES = 1024 * 1024

_PRODUCE = 0
_REQUEST_START = struct.Struct(">hhi")  # api key, api version, correlation id
_ROUTE = struct.Struct(">ii")  # api key and version as one number, correlation id
_ROUTE_BYTES = 8


class ClientConnection:
    """A `ConnectionHandler`. `server` dispatches; this class only keeps the order."""

    __slots__ = (
        "_connection",
        "_in_flight",
        "_is_paused",
        "_monotonic",
        "_routes",
        "_server",
        "_turns",
        "_waiting_frame",
        "is_privileged",
        "last_active",
        "listener",
        "number",
        "peer",
    )

    def __init__(
        self, server: SocketServer, connection: Connection, listener: str, is_privileged: bool, number: int
    ) -> None:
        self._server = server
        self._turns = server.turns
        self._connection = connection
        self.listener = listener
        self.is_privileged = is_privileged
        self.number = number
        """Later connections have higher ones."""
        self.peer = connection.peer
        self._monotonic = server.clock.monotonic
        self.last_active = self._monotonic()
        self._routes: dict[int, tuple[bytes, str | None, int]] = {}
        """By api key and version: the header behind the correlation id as it last came, its client id, and where the
        body begins. A client sends the same header again and again."""
        self._in_flight: deque[RequestContext] = deque()
        self._waiting_frame: memoryview | None = None
        self._is_paused = False

    # ConnectionHandler

    def on_frame(self, frame: memoryview) -> None:
        if self._in_flight and not self._is_pipelined(frame):
            self._waiting_frame = frame
            self._pause()
            return
        self._dispatch(frame)

    def take_turn(self) -> None:
        """The slice of data requests that the waiting one was to wait for has come."""
        frame = self._waiting_frame
        if frame is not None and (not self._in_flight or self._is_pipelined(frame)):
            self._dispatch_waiting(frame)

    def on_sent(self) -> None:
        self._continue()

    def on_close(self, reason: str) -> None:
        self._waiting_frame = None
        self._in_flight.clear()
        if reason:
            logger.info("connection from %s:%d on %s ended: %s", *self.peer, self.listener, reason)
        self._server.on_connection_closed(self)

    # For the requests in flight

    def complete(self, context: RequestContext, response: object | None) -> None:
        """Takes the answer of one request and sends every answer whose turn it is."""
        if context.is_done:
            raise RuntimeError(f"request {context.correlation_id} (api {context.api_key}) was answered twice")
        if response is not None:
            try:
                context.chunks = codec.frame_response(  # type: ignore[assignment]  # its file ranges are the disk's
                    context.api_key, context.api_version, context.correlation_id, response
                )
            except Exception as error:
                logger.exception("the answer to api %d v%d cannot be written", context.api_key, context.api_version)
                self.fail(f"internal error: {error}")
                context.is_done = True
                return
        context.is_done = True
        self._server.observe(context)
        in_flight = self._in_flight
        if self._connection.is_closed:
            self._connection.send(context.chunks)  # drops it, releasing its file ranges
            return
        while in_flight and in_flight[0].is_done:
            chunks = in_flight.popleft().chunks
            if chunks:
                self._connection.send(chunks, now=not in_flight)
        if self._is_paused:
            self._continue()

    def fail(self, reason: str) -> None:
        """Closes at once and logs one line that says why."""
        if not self._connection.is_closed:
            logger.warning("closing connection from %s:%d on %s: %s", *self.peer, self.listener, reason)
            self._connection.close()

    def close(self) -> None:
        self._connection.close()

    @property
    def is_idle(self) -> bool:
        return not self._in_flight and not self._connection.unsent_bytes

    @property
    def has_requests_in_flight(self) -> bool:
        return bool(self._in_flight)

    # Inside

    def _is_pipelined(self, frame: memoryview) -> bool:
        """A Produce after Produces: dispatched although those before it are not answered."""
        in_flight = self._in_flight
        return (
            len(frame) >= 2
            and frame[0] == 0
            and frame[1] == _PRODUCE
            and in_flight[-1].api_key == _PRODUCE
            and len(in_flight) < MAX_PIPELINED_PRODUCES
        )

    def _dispatch(self, frame: memoryview) -> None:
        received_at = self.last_active = self._monotonic()
        route, correlation_id = _ROUTE.unpack_from(frame) if len(frame) >= _ROUTE_BYTES else (-1, 0)
        turns = self._turns
        if received_at >= turns.ends and route >> 16 not in CONTROL_APIS and not turns.may_go_on(received_at):
            self._waiting_frame = frame
            self._pause()
            turns.wait(self)
            return
        known = self._routes.get(route)
        if known is not None and frame[_ROUTE_BYTES : known[2]] == known[0]:
            _, client_id, body_offset = known
        else:
            try:
                header = codec.read_request_header(frame)
            except codec.DecodeError as error:
                self._refuse(frame, error)
                return
            client_id, body_offset = header.client_id, header.body_offset
            self._routes[route] = (bytes(frame[_ROUTE_BYTES:body_offset]), client_id, body_offset)
        context = RequestContext(self, route >> 16, route & 0xFFFF, correlation_id, client_id, received_at)
        self._in_flight.append(context)
        self._server.dispatch(context, frame, body_offset)
        if self._connection.unsent_bytes > MAX_UNSENT_BYTES:
            self._pause()

    def _refuse(self, frame: memoryview, error: codec.DecodeError) -> None:
        """A header that cannot be read. An ApiVersions of an unknown version still gets its answer (KIP-511)."""
        if len(frame) >= _REQUEST_START.size:
            api_key, api_version, correlation_id = _REQUEST_START.unpack_from(frame)
            if api_key == ApiKey.API_VERSIONS:
                context = RequestContext(self, api_key, api_version, correlation_id, None, self.last_active)
                self._in_flight.append(context)
                self._server.dispatch(context, frame, _REQUEST_START.size)
                return
        self.fail(f"unreadable request header: {error}")

    def _pause(self) -> None:
        self._is_paused = True
        self._connection.pause()

    def _continue(self) -> None:
        """Dispatches the waiting request when its turn has come, and reads on unless the peer does not read."""
        if self._connection.is_closed or not self._is_paused:
            return
        if self._connection.unsent_bytes > MAX_UNSENT_BYTES:
            return  # on_sent calls again
        if self._waiting_frame is not None:
            if self._in_flight:
                return  # complete calls again
            self._dispatch_waiting(self._waiting_frame)
            return
        self._is_paused = False
        self._connection.resume()

    def _dispatch_waiting(self, frame: memoryview) -> None:
        self._waiting_frame = None
        self._dispatch(frame)
        # It may have to wait for its turn; take_turn, on_sent and complete call again.
        if self._waiting_frame is not None or self._connection.is_closed:
            return
        if self._connection.unsent_bytes <= MAX_UNSENT_BYTES:
            self._is_paused = False
            self._connection.resume()

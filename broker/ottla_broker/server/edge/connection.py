"""One client connection: frames in, requests dispatched in order, responses out in order.

Responses leave in the order of their requests. Request n+1 is dispatched when n has been answered, except a Produce
after Produces, which is dispatched at once: its offsets are assigned when the handler returns, and only its write and
its replicas are waited for. While a request waits, the connection stops reading, so that a client can never make the
broker hold more than one undispatched frame.

Back-pressure: the broker does not read from a client that does not read its responses, and what those hold is counted
(`response_memory`). A response that is made piece by piece is made as the client reads it.

A throttled client is answered at once, and its connection is muted: not read until the throttle time is over (KIP-219).

A data request may wait for a slice among those of all connections (`request_scheduling`); the controller's never does.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ottla_broker.authorization.access import Access
from ottla_broker.authorization.acls import host_of
from ottla_broker.authorization.authorizer import Authorizer
from ottla_broker.ports.clock import Timer
from ottla_broker.ports.network import Chunk, Connection
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.security.principals import ANONYMOUS, Principal
from ottla_broker.server.edge.error_messages import shorten_error_messages
from ottla_broker.server.edge.request_scheduling import CONTROL_APIS, RequestScheduler
from ottla_broker.server.edge.response_memory import ResponseMemory
from ottla_broker.server.edge.throttling import Throttling
from ottla_broker.server.handler_api import RequestContext, StreamedChunk
from ottla_broker.server.turns import ClientIsGone, LongWork

logger = logging.getLogger("ottla.server")

MAX_PIPELINED_PRODUCES = 128
MAX_UNSENT_BYTES = 1024 * 1024
UNCOUNTED_BYTES = 4096
"""What the responses of one connection may hold without being counted: nearly all are sent in the same turn."""
LONGEST_KNOWN_HEADER = 1024
"""In bytes. The header of a client has its id in it; one may have as many megabytes as a request, and would be kept."""

_PRODUCE = 0
_SASL_HANDSHAKE = 17
_REQUEST_START = struct.Struct(">hhi")  # api key, api version, correlation id
_ROUTE = struct.Struct(">ii")  # api key and version as one number, correlation id
_ROUTE_BYTES = 8


@dataclass(frozen=True, slots=True)
class ConnectionEnvironment:
    """What the connections of a broker share.

    Args:
        dispatch: takes a request: its context, the frame, and where the body begins.
        scheduler: slices for data requests.
        throttling: the quotas of clients.
        responses: what the responses hold that clients have not read.
        monotonic: Clock.monotonic.
        call_later: Clock.call_later.
        spawn: Clock.spawn.
        on_completed: called when a request is answered.
        on_closed: called once when a connection has ended.
    """

    dispatch: Callable[[RequestContext, memoryview, int], None]
    scheduler: RequestScheduler
    throttling: Throttling
    monotonic: Callable[[], float]
    call_later: Callable[[float, Callable[[], None]], Timer]
    responses: ResponseMemory
    spawn: Callable[..., object]
    on_completed: Callable[[RequestContext], None]
    on_closed: Callable[[ClientConnection], None]


class ClientConnection:
    """A `ConnectionHandler` and a `RequestSource`; keeps the order of requests and responses."""

    __slots__ = (
        "_authorizer",
        "_connection",
        "_drained",
        "_environment",
        "_held_bytes",
        "_identify",
        "_in_flight",
        "_is_held",
        "_is_paused",
        "_monotonic",
        "_muted_until",
        "_routes",
        "_scheduler",
        "_throttling",
        "_unmuting",
        "_waiting_frame",
        "access",
        "client_software",
        "has_cluster_action",
        "is_privileged",
        "last_active",
        "listener",
        "number",
        "peer",
        "principal",
        "principal_name",
        "reauthenticate",
    )

    def __init__(
        self,
        environment: ConnectionEnvironment,
        connection: Connection,
        listener: str,
        is_privileged: bool,
        number: int,
        has_cluster_action: bool,
        identify: Callable[[bytes | None], Principal] | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        """
        Args:
            identify: gives the principal for the peer's certificate, before the first request; NoRuleMatches when
                there is none. None: whoever connects is ANONYMOUS.
            authorizer: says what the principal may do. None: everything.
        """
        self._environment = environment
        self._scheduler = environment.scheduler
        self._throttling = environment.throttling
        self._connection = connection
        self._identify = identify
        self._authorizer = authorizer
        self.access: Access | None = None
        self.reauthenticate: Callable[[memoryview], bool] | None = None
        """On a SASL listener: takes a SaslHandshake whose turn it is; gives False when it is to be served."""
        self.peer = connection.peer
        self.authenticated(ANONYMOUS)
        self.listener = listener
        self.is_privileged = is_privileged
        self.has_cluster_action = has_cluster_action
        self.number = number
        """Later connections have higher ones."""
        self.client_software = ("unknown", "unknown")
        self._monotonic = environment.monotonic
        self.last_active = self._monotonic()
        self._routes: dict[int, tuple[bytes, str | None, int]] = {}
        """By api key and version: the header behind the correlation id as it last came, its client id, and where the
        body begins. A client sends the same header with every request."""
        self._in_flight: deque[RequestContext] = deque()
        self._waiting_frame: memoryview | None = None
        self._is_paused = False
        self._is_held = False
        self._unmuting: Timer | None = None
        """Pending while the connection is muted."""
        self._muted_until = 0.0
        self._held_bytes = 0
        """What the responses hold that the socket has not taken, at most."""
        self._drained: asyncio.Future[None] | None = None
        """What the next piece of a response waits for."""

    def on_frame(self, frame: memoryview) -> None:
        if self._in_flight and not self._is_pipelined(frame):
            self._waiting_frame = frame
            self.pause()
            return
        self._dispatch(frame)

    def dispatch_waiting(self) -> None:
        """A slice of data requests has begun."""
        frame = self._waiting_frame
        if frame is None or self._unmuting is not None:
            return  # _unmute continues
        if not self._in_flight or self._is_pipelined(frame):
            self._dispatch_frame(frame)

    def on_sent(self) -> None:
        if self._held_bytes or self._drained is not None:
            self._release_held()
        self.read_on()

    def on_close(self, reason: str) -> None:
        self._waiting_frame = None
        self._in_flight.clear()
        self._release_held()
        if self._unmuting is not None:
            self._unmuting.cancel()
        if reason:
            logger.info("connection from %s:%d on %s ended: %s", *self.peer, self.listener, reason)
        self._environment.on_closed(self)

    def complete(self, context: RequestContext, response: object | None) -> None:
        """Takes the response of one request and sends every response that is next in order."""
        if context.is_done:
            raise RuntimeError(f"request {context.correlation_id} (api {context.api_key}) was answered twice")
        usage = context.usage
        if usage is not None:
            self._mute(self._throttling.answer(context, usage, response))
        work = context.work
        if work is not None and work.is_long and response is not None:
            work.turns.spawn(self._complete_long(context, work, response), name=f"response {context.api_key}")
            return
        if response is not None:
            api_key, version, correlation_id = context.api_key, context.api_version, context.correlation_id
            try:
                try:
                    context.chunks = codec.frame_response(api_key, version, correlation_id, response)  # type: ignore[assignment]  # its file ranges are the disk's
                except codec.EncodeError:  # no string can hold one of its error messages
                    if not shorten_error_messages(response):
                        raise
                    context.chunks = codec.frame_response(api_key, version, correlation_id, response)  # type: ignore[assignment]
            except Exception as error:
                self._fail_to_write(context, error)
                return
        if context.is_streamed:
            self._send_framed(context)
        else:
            self._finish(context)

    async def _complete_long(self, context: RequestContext, work: LongWork, response: object) -> None:
        """A response of many elements is encoded in slices."""
        try:
            context.chunks = await self._frame_in_turns(context, work, response)
        except ClientIsGone:
            pass
        except Exception as error:
            self._fail_to_write(context, error)
        else:
            self._send_framed(context)
        await work.release(response)

    async def _frame_in_turns(
        self, context: RequestContext, work: LongWork, response: object, *, is_shortened: bool = False
    ) -> list[Chunk]:
        """The chunks of a response; error messages that no string can hold are cut. Raises ClientIsGone, but for a
        fetch."""
        chunks: list[Any] = []
        try:
            for _ in codec.write_response_in_slices(context.api_key, context.api_version, response, chunks):
                try:
                    await work.turn()
                except ClientIsGone:
                    if context.api_key != ApiKey.FETCH:
                        raise
                    # Its file ranges are released by the connection that drops them.
        except codec.EncodeError:
            if is_shortened or not shorten_error_messages(response):
                raise
            return await self._frame_in_turns(context, work, response, is_shortened=True)
        return codec.frame_body(context.api_key, context.api_version, context.correlation_id, chunks)  # type: ignore[return-value]  # its file ranges are the disk's

    def _fail_to_write(self, context: RequestContext, error: Exception) -> None:
        logger.error(
            "the response to api %d v%d cannot be written", context.api_key, context.api_version, exc_info=error
        )
        self.fail(f"internal error: {error}")
        context.is_done = True

    def _send_framed(self, context: RequestContext) -> None:
        """The chunks of a response are there; those of a converted fetch are made as the socket takes them."""
        if context.is_streamed and not self._connection.is_closed:
            self._environment.spawn(self._send_pieces(context), name="fetch with conversion")
        else:
            self._finish(context)

    def _finish(self, context: RequestContext) -> None:
        """The response of a request is ready, or its last piece is sent. Sends every response that is next in order."""
        usage = context.usage
        context.is_done = True
        self.last_active = self._monotonic()
        self._environment.on_completed(context)
        in_flight = self._in_flight
        if self._connection.is_closed:
            self._connection.send(context.chunks)  # drops it, releasing its file ranges
            return
        while in_flight and in_flight[0].is_done:
            chunks = in_flight.popleft().chunks
            if chunks:
                self._connection.send(chunks, now=not in_flight)
                if self._connection.unsent_bytes > UNCOUNTED_BYTES:
                    self._hold(chunks)
        if usage is not None:
            self._throttling.finish(context, usage)
        if self._is_paused:
            self.read_on()

    async def _send_pieces(self, context: RequestContext) -> None:
        """Sends a response whose records are made as the socket takes them. It is the only one in flight."""
        chunks, context.chunks = context.chunks, ()
        try:
            context.chunks = await self._made_and_sent(chunks)
        except Exception as error:
            logger.exception("the response to api %d v%d cannot be made", context.api_key, context.api_version)
            self.fail(f"internal error: {error}")
        finally:
            self._environment.responses.hold(self, 0)
        self._finish(context)

    async def _made_and_sent(self, chunks: Sequence[Chunk]) -> list[Chunk]:
        """Gives what is left to be sent behind the last piece."""
        connection, responses = self._connection, self._environment.responses
        ready: list[Chunk] = []
        for chunk in chunks:
            if isinstance(chunk, bytes | bytearray | memoryview) or not isinstance(chunk, StreamedChunk):
                ready.append(chunk)
                continue
            while not connection.is_closed:
                room = responses.next_piece(self, await chunk.next_piece_bytes())
                if room is not None:
                    await room
                piece = b"" if connection.is_closed else await chunk.next_piece()
                if not piece:
                    break
                ready.append(piece)
                connection.send(ready, now=True)
                ready = []
                if connection.unsent_bytes:
                    self._drained = asyncio.get_running_loop().create_future()
                    await self._drained
                self.last_active = self._monotonic()
        return ready

    def _hold(self, chunks: Sequence[Chunk]) -> None:
        sizes = [len(chunk) for chunk in chunks if isinstance(chunk, bytes | bytearray | memoryview)]
        self._held_bytes = min(self._held_bytes + sum(sizes), self._connection.unsent_bytes)
        self._environment.responses.hold(self, self._held_bytes)

    def _release_held(self) -> None:
        """The socket has taken everything, or is closed."""
        drained, self._drained = self._drained, None
        if drained is not None:
            if not drained.done():  # it is cancelled when the broker stops
                drained.set_result(None)  # `_send_pieces` holds for itself
        else:
            self._held_bytes = 0
            self._environment.responses.hold(self, 0)

    def fail(self, reason: str) -> None:
        """Closes at once and logs one line that says why."""
        if not self._connection.is_closed:
            logger.warning("closing connection from %s:%d on %s: %s", *self.peer, self.listener, reason)
            self._connection.close()

    def close(self) -> None:
        self._connection.close()

    def hold(self) -> None:
        """Reads nothing until `release`: too many requests wait. The one that waits here is dispatched all the same."""
        self._is_held = True
        self.pause()

    def release(self) -> None:
        """Reads again, unless something else stops it."""
        self._is_held = False
        if self._waiting_frame is None:
            self.read_on()  # else what dispatches it does

    @property
    def is_closed(self) -> bool:
        return self._connection.is_closed

    @property
    def unsent_bytes(self) -> int:
        return self._connection.unsent_bytes

    @property
    def is_idle(self) -> bool:
        return not self._in_flight and not self.unsent_bytes

    @property
    def waits_for_broker(self) -> bool:
        """Whether requests are not answered yet. A muted connection may be idle: nobody reads that its client has gone.

        Source: Selector.maybeCloseOldestConnection, which closes muted channels too.
        """
        return bool(self._in_flight) and self._drained is None

    def _is_pipelined(self, frame: memoryview) -> bool:
        """A Produce after Produces: dispatched although those before it are not answered."""
        in_flight = self._in_flight
        return (
            len(frame) >= 2
            and frame[0] == 0
            and frame[1] == _PRODUCE
            and in_flight[-1].api_key == _PRODUCE
            and in_flight[-1].work is None  # else it may not be read yet
            and len(in_flight) < MAX_PIPELINED_PRODUCES
        )

    def _dispatch(self, frame: memoryview) -> None:
        received_at = self.last_active = self._monotonic()
        route, correlation_id = _ROUTE.unpack_from(frame) if len(frame) >= _ROUTE_BYTES else (-1, 0)
        scheduler = self._scheduler
        if (
            received_at >= scheduler.slice_ends
            and route >> 16 not in CONTROL_APIS
            and not scheduler.may_dispatch(received_at)
        ):
            self._waiting_frame = frame
            self.pause()
            scheduler.wait(self)
            return
        known = self._routes.get(route)
        if known is not None and frame[_ROUTE_BYTES : known[2]] == known[0]:
            _, client_id, body_offset = known
        else:
            if self._identify is not None and not self._is_identified(self._identify):
                return
            try:
                header = codec.read_request_header(frame)
            except codec.DecodeError as error:
                self._refuse(frame, error)
                return
            client_id, body_offset = header.client_id, header.body_offset
            if self.reauthenticate is None or route >> 16 != _SASL_HANDSHAKE:
                if body_offset <= LONGEST_KNOWN_HEADER:
                    self._routes[route] = (bytes(frame[_ROUTE_BYTES:body_offset]), client_id, body_offset)
            elif self.reauthenticate(frame):
                return
        context = RequestContext(self, route >> 16, route & 0xFFFF, correlation_id, client_id, received_at)
        self._in_flight.append(context)
        if self._throttling.is_active:
            self._mute(self._throttling.receive(context, len(frame)))
            self._environment.dispatch(context, frame, body_offset)
            if context.usage is not None:
                context.usage.stop(self._monotonic())
        else:
            self._environment.dispatch(context, frame, body_offset)
        if self._connection.unsent_bytes > MAX_UNSENT_BYTES:
            self.pause()

    def _is_identified(self, identify: Callable[[bytes | None], Principal]) -> bool:
        """Before the first request, whose header nobody knows yet. A connection without a principal is closed."""
        self._identify = None
        try:
            principal = identify(self._connection.peer_certificate)
        except ValueError as error:
            self.fail(str(error))
            return False
        self.authenticated(principal)
        return True

    def authenticated(self, principal: Principal) -> None:
        """It is known who the client is: before its first request, and by nobody else set.

        Called again when the same principal authenticates by a token and did not before, or the other way round.
        """
        self.principal = principal
        self.principal_name = principal.name
        if self._authorizer is not None:
            self.access = Access(self._authorizer, principal, host_of(self.peer[0]))

    def _refuse(self, frame: memoryview, error: codec.DecodeError) -> None:
        """A header that cannot be read. An ApiVersions of an unknown version is answered all the same (KIP-511)."""
        if len(frame) >= _REQUEST_START.size:
            api_key, api_version, correlation_id = _REQUEST_START.unpack_from(frame)
            if api_key == ApiKey.API_VERSIONS:
                context = RequestContext(self, api_key, api_version, correlation_id, None, self.last_active)
                self._in_flight.append(context)
                self._environment.dispatch(context, frame, _REQUEST_START.size)
                return
        self.fail(f"unreadable request header: {error}")

    def _mute(self, throttle_ms: int) -> None:
        """Does not read for `throttle_ms` from now on, or for longer where that was said before."""
        until = self._monotonic() + throttle_ms / 1000
        if not throttle_ms or until <= self._muted_until or self._connection.is_closed:
            return
        if self._unmuting is not None:
            self._unmuting.cancel()
        self._muted_until = until
        self._unmuting = self._environment.call_later(throttle_ms / 1000, self._unmute)
        self.pause()

    def _unmute(self) -> None:
        self._unmuting = None
        self.read_on()

    def pause(self) -> None:
        """Reads nothing until `read_on`, or until a request that was waited for is answered."""
        self._is_paused = True
        self._connection.pause()

    def read_on(self) -> None:
        """Dispatches the waiting request when it is next, and reads on unless the peer does not read."""
        if self._connection.is_closed or not self._is_paused or self._unmuting is not None:
            return
        if self._connection.unsent_bytes > MAX_UNSENT_BYTES:
            return  # on_sent calls again
        if self._waiting_frame is not None:
            if self._in_flight:
                return  # complete calls again
            self._dispatch_frame(self._waiting_frame)
            return
        self._resume()

    def _resume(self) -> None:
        if not self._is_held:
            self._is_paused = False
            self._connection.resume()

    def _dispatch_frame(self, frame: memoryview) -> None:
        self._waiting_frame = None
        self._dispatch(frame)
        # It may have to wait for a slice, or be throttled; dispatch_waiting, on_sent, complete and _unmute call again.
        if self._waiting_frame is not None or self._connection.is_closed or self._unmuting is not None:
            return
        if self._connection.unsent_bytes <= MAX_UNSENT_BYTES:
            self._resume()

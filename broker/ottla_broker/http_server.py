"""The HTTP server of a process (GET /metrics, /livez, /readyz, /status): h11 over asyncio streams.

What clients do costs a bounded amount of memory, descriptors and time: a request is short and comes soon, a response is
made as it is read, and where a connection too many comes, the one that has had no request for longest is closed. So a
probe is answered however many others are held open.

There is no port for it: the simulator does not need it and nothing in the broker depends on it. The code that assembles
a process passes it a function for each path.
"""

from __future__ import annotations

import asyncio
import http
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import h11

logger = logging.getLogger("ottla.http")

MAX_CONNECTIONS = 100
_READ_BYTES = 4096
_MAX_REQUEST_BYTES = 16 * 1024
_IDLE_S = 60.0
"""For a connection without a request; also for a peer to read what it has asked for."""
_REQUEST_S = 10.0
"""From the first byte of a request to its last."""
_PART_BYTES = 64 * 1024
"""What is made of a body at once, before the peer has read what was made before."""


class HttpContent(Protocol):
    """The status, content type and body of one response. The loop does other work between the parts of a body."""

    @property
    def status(self) -> int: ...
    @property
    def content_type(self) -> str: ...
    @property
    def body(self) -> bytes | Iterator[bytes]: ...


@dataclass(frozen=True, slots=True)
class _ErrorResponse:
    status: int
    body: bytes
    content_type: str = "text/plain"


class _Peer:
    """One connection. It waits until a whole request has come, and again when that is answered."""

    __slots__ = ("deadline", "is_waiting", "reader", "writer")

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.is_waiting = True
        self.deadline = asyncio.timeout(_IDLE_S)

    def allow(self, seconds: float) -> None:
        """The next step may take this long, from now on."""
        self.deadline.reschedule(asyncio.get_running_loop().time() + seconds)


class HttpServer:
    """Serves fixed paths.

    Args:
        routes: by path, returns the response to GET and HEAD; called on the loop, so it must be quick, as must be each
            part of its body.
        max_connections: how many are open at once.
    """

    def __init__(self, routes: Mapping[str, Callable[[], HttpContent]], max_connections: int = MAX_CONNECTIONS) -> None:
        self._routes = routes
        self._max_connections = max_connections
        self._peers: dict[_Peer, None] = {}
        """In the order in which they have begun to wait."""
        self._server: asyncio.Server | None = None
        self.host = ""
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Binds the address. Raises OSError with the address when it is in use."""
        try:
            self._server = await asyncio.start_server(self._serve, host or None, port, limit=_MAX_REQUEST_BYTES)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise OSError(error.errno, f"cannot listen on {host or '*'}:{port}: {reason}") from error
        self.host, self.port = self._server.sockets[0].getsockname()[:2]

    def close(self) -> None:
        """Stops accepting connections."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._peers) >= self._max_connections and not self._close_a_waiting_one():
            writer.transport.abort()
            return
        peer = _Peer(reader, writer)
        self._peers[peer] = None
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_REQUEST_BYTES)
        try:
            async with peer.deadline:
                while await self._serve_one(connection, peer) and peer in self._peers:
                    del self._peers[peer]
                    self._peers[peer] = None  # the last of those that wait
                    peer.is_waiting = True
                    peer.allow(_IDLE_S)
        except (TimeoutError, OSError, h11.RemoteProtocolError) as error:
            logger.debug("http connection ended: %s", error)
            writer.transport.abort()  # it may have stopped reading
        finally:
            self._peers.pop(peer, None)
            writer.close()

    def _close_a_waiting_one(self) -> bool:
        """Makes room for another connection; False when a request of each is being answered."""
        peer = next((peer for peer in self._peers if peer.is_waiting), None)
        if peer is None:
            return False
        del self._peers[peer]
        peer.writer.transport.abort()
        return True

    async def _serve_one(self, connection: h11.Connection, peer: _Peer) -> bool:
        """Responds to one request. False when the connection is closed."""
        request = await self._read_request(connection, peer)
        if request is None:
            return False
        peer.is_waiting = False
        peer.allow(_IDLE_S)
        response = self._respond(request)
        headers = [("content-type", response.content_type)]
        if isinstance(response.body, bytes):
            headers.append(("content-length", str(len(response.body))))
        head = h11.Response(status_code=response.status, headers=headers, reason=_reason(response.status))
        pending = bytearray(connection.send(head) or b"")
        if request.method != b"HEAD":
            for part in (response.body,) if isinstance(response.body, bytes) else response.body:
                pending += connection.send(h11.Data(data=part)) or b""
                if len(pending) >= _PART_BYTES:
                    peer.writer.write(bytes(pending))
                    pending.clear()
                    await peer.writer.drain()
                await asyncio.sleep(0)
        pending += connection.send(h11.EndOfMessage()) or b""
        peer.writer.write(bytes(pending))
        await peer.writer.drain()
        if connection.our_state is h11.MUST_CLOSE:
            return False
        connection.start_next_cycle()
        return True

    async def _read_request(self, connection: h11.Connection, peer: _Peer) -> h11.Request | None:
        """The next whole request; None when the connection has ended, or when the request is too long."""
        request: h11.Request | None = None
        size = len(connection.trailing_data[0])
        if size:
            peer.allow(_REQUEST_S)
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                data = await peer.reader.read(_READ_BYTES)
                if not size:
                    peer.allow(_REQUEST_S)
                size += len(data)
                if size > _MAX_REQUEST_BYTES:
                    return None
                connection.receive_data(data)
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.EndOfMessage):
                return request
            elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                return None

    def _respond(self, request: h11.Request) -> HttpContent:
        path = request.target.decode("ascii", "replace").partition("?")[0]
        route = self._routes.get(path)
        if route is None:
            known = ", ".join(self._routes)
            return _ErrorResponse(404, f"{path} not found; served are {known}\n".encode())
        if request.method not in (b"GET", b"HEAD"):
            return _ErrorResponse(405, b"only GET is served\n")
        return route()


def _reason(status: int) -> bytes:
    return http.HTTPStatus(status).phrase.encode()

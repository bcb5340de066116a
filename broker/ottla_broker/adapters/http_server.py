"""The HTTP server of a broker (GET /metrics, /livez, /readyz, /status): h11 over asyncio streams.

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

_READ_BYTES = 4096
_IDLE_S = 60.0


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


class HttpServer:
    """Serves fixed paths.

    Args:
        routes: by path, returns the response to GET and HEAD; called on the loop, so it must be quick, as must be each
            part of its body.
    """

    def __init__(self, routes: Mapping[str, Callable[[], HttpContent]]) -> None:
        self._routes = routes
        self._server: asyncio.Server | None = None
        self.host = ""
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Binds the address. Raises OSError with the address when it is in use."""
        try:
            self._server = await asyncio.start_server(self._serve, host or None, port)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise OSError(error.errno, f"cannot listen on {host or '*'}:{port}: {reason}") from error
        self.host, self.port = self._server.sockets[0].getsockname()[:2]

    def close(self) -> None:
        """Stops accepting connections."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER)
        try:
            async with asyncio.timeout(_IDLE_S) as deadline:
                while await self._serve_one(connection, reader, writer):
                    deadline.reschedule(asyncio.get_running_loop().time() + _IDLE_S)
        except (TimeoutError, OSError, h11.RemoteProtocolError) as error:
            logger.debug("http connection ended: %s", error)
        finally:
            writer.close()

    async def _serve_one(
        self, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Responds to one request. False when the connection is closed."""
        request: h11.Request | None = None
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(_READ_BYTES))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.EndOfMessage):
                break
            elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                return False
        assert request is not None
        response = self._respond(request)
        body = await _whole(response.body)
        headers = [("content-type", response.content_type), ("content-length", str(len(body)))]
        out = (
            connection.send(h11.Response(status_code=response.status, headers=headers, reason=_reason(response.status)))
            or b""
        )
        if request.method != b"HEAD":
            out += connection.send(h11.Data(data=body)) or b""
        out += connection.send(h11.EndOfMessage()) or b""
        writer.write(out)
        await writer.drain()
        if connection.our_state is h11.MUST_CLOSE:
            return False
        connection.start_next_cycle()
        return True

    def _respond(self, request: h11.Request) -> HttpContent:
        path = request.target.decode("ascii", "replace").partition("?")[0]
        route = self._routes.get(path)
        if route is None:
            known = ", ".join(self._routes)
            return _ErrorResponse(404, f"{path} not found; served are {known}\n".encode())
        if request.method not in (b"GET", b"HEAD"):
            return _ErrorResponse(405, b"only GET is served\n")
        return route()


async def _whole(body: bytes | Iterator[bytes]) -> bytes:
    if isinstance(body, bytes):
        return body
    parts = []
    for part in body:
        parts.append(part)
        await asyncio.sleep(0)
    return b"".join(parts)


def _reason(status: int) -> bytes:
    return http.HTTPStatus(status).phrase.encode()

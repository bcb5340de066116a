"""What HTTP clients do costs a bounded number of connections, bytes and seconds."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
from collections.abc import AsyncIterator, Iterator

import pytest

from ottla_broker import http_server
from ottla_broker.http_server import HttpServer
from ottla_broker.server.edge.http_endpoints import HttpResponse

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
LIMIT = 20
PART = b"x" * 10_000


class Served:
    """A server with /livez, and /endless, of which `parts_made` counts the parts."""

    def __init__(self) -> None:
        self.parts_made = 0
        self.server = HttpServer(
            {"/livez": lambda: HttpResponse(200, "text/plain", b"ok\n"), "/endless": self._endless}, LIMIT
        )
        self.connections: list[Connection] = []

    def _endless(self) -> HttpResponse:
        def parts() -> Iterator[bytes]:
            while True:
                self.parts_made += 1
                yield PART

        return HttpResponse(200, "text/plain", parts())

    async def connect(self, sent: bytes = b"") -> Connection:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        writer.write(sent)
        self.connections.append((reader, writer))
        return reader, writer

    async def probe(self) -> int:
        """The HTTP status that a client over another connection gets."""

        def ask() -> int:
            client = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
            try:
                client.request("GET", "/livez")
                return client.getresponse().status
            finally:
                client.close()

        return await asyncio.to_thread(ask)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    found = Served()
    await found.server.start("127.0.0.1", 0)
    yield found
    for _, writer in found.connections:
        writer.transport.abort()
    found.server.close()


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Waits for the end of the connection; whether nothing came before it."""
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


async def test_a_probe_is_answered_while_300_connections_send_half_a_request(served: Served) -> None:
    opened = [await served.connect(b"GET /livez HT") for _ in range(300)]
    assert await served.probe() == 200
    assert all([await is_closed(reader) for reader, _ in opened[: 300 - LIMIT]]), "the oldest make room"
    youngest = opened[-1]
    youngest[1].write(b"TP/1.1\r\nhost: h\r\n\r\n")
    assert (await youngest[0].readline()).startswith(b"HTTP/1.1 200")


async def test_a_connection_whose_request_is_being_answered_makes_no_room(served: Served) -> None:
    request = b"GET /endless HTTP/1.1\r\nhost: h\r\n\r\n"
    busy = [await served.connect(request) for _ in range(LIMIT)]
    for reader, _ in busy:
        await reader.readline()
    refused, _ = await served.connect(request)
    assert await is_closed(refused)
    assert (await busy[0][0].readline()) != b""


async def test_a_body_is_made_as_it_is_read(served: Served) -> None:
    reader, _ = await served.connect(b"GET /endless HTTP/1.1\r\nhost: h\r\n\r\n")
    await reader.readline()
    made = -1
    while made != served.parts_made:  # until it waits for the client
        made = served.parts_made
        assert made * len(PART) < 64 * 1024 * 1024
        for _ in range(1000):
            await asyncio.sleep(0)
    while served.parts_made == made:
        await reader.read(1 << 20)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"GET /livez HTTP/1.1\r\nx: " + b"y" * 70_000, id="a header without end"),
        pytest.param(b"POST /livez HTTP/1.1\r\nhost: h\r\ncontent-length: 99999\r\n\r\n" + b"y" * 70_000, id="a body"),
    ],
)
async def test_a_request_that_is_too_long_is_not_read(served: Served, sent: bytes) -> None:
    reader, _ = await served.connect(sent)
    assert await is_closed(reader)
    assert await served.probe() == 200


@pytest.mark.parametrize(("limit", "sent"), [("_IDLE_S", b""), ("_REQUEST_S", b"GET /livez HT")])
async def test_a_request_that_does_not_come_ends_the_connection(
    served: Served, monkeypatch: pytest.MonkeyPatch, limit: str, sent: bytes
) -> None:
    monkeypatch.setattr(http_server, limit, 0.05)
    reader, _ = await served.connect(sent)
    assert await is_closed(reader)


async def test_a_response_that_is_not_read_to_its_end_in_time_ends_the_connection(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "_IDLE_S", 0.2)
    reader, _ = await served.connect(b"GET /endless HTTP/1.1\r\nhost: h\r\n\r\n")
    await reader.readline()
    await ends(reader)
    made = served.parts_made
    assert await served.probe() == 200
    assert served.parts_made == made


async def ends(reader: asyncio.StreamReader) -> None:
    """Waits for the end of the connection, whatever comes before it."""
    with contextlib.suppress(ConnectionResetError):
        while await reader.read(1 << 20):
            pass


async def test_requests_over_one_connection_are_answered_one_after_the_other(served: Served) -> None:
    reader, writer = await served.connect(b"GET /livez HTTP/1.1\r\nhost: h\r\n\r\n" * 2)
    writer.write_eof()
    assert (await reader.read()).count(b"HTTP/1.1 200") == 2

"""The Network port over TLS: its contract, and what TLS adds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import ssl
import struct
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from ottla_broker.adapters import tls_transport
from ottla_broker.adapters.direct_disk import DirectDisk
from ottla_broker.adapters.network import SocketListener, SocketNetwork
from ottla_broker.adapters.tls_transport import Handshake, TlsTransport
from ottla_broker.ports.network import Connection, HandlerFactory
from tests.authority import Authority, Issued
from tests.contract.network_contract import NetworkContract, Recorder, framed


class RecordedTls:
    """Gives one context, and records what became of the handshakes."""

    def __init__(self, context: ssl.SSLContext, timeout_s: float = 60.0) -> None:
        self.made = context
        self.handshake_timeout_s = timeout_s
        self.complete: list[tuple[str, str, bool]] = []
        self.failed: list[str] = []

    def context(self) -> ssl.SSLContext:
        return self.made

    def on_handshake(self, protocol: str, cipher_suite: str, kernel_sends: bool) -> None:
        self.complete.append((protocol, cipher_suite, kernel_sends))

    def on_failure(self, code: str) -> None:
        self.failed.append(code)


def server_context(directory: Path, issued: Issued, trust: Authority | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0
    context.load_cert_chain(issued.write(directory / "server.pem"))
    if trust is not None:
        context.load_verify_locations(cadata=trust.trust_pem)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(directory: Path, trust: Authority, issued: Issued | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=trust.trust_pem)
    if issued is not None:
        context.load_cert_chain(issued.write(directory / "client.pem"))
    return context


class SecuredNetwork:
    """A network all of whose connections have TLS."""

    def __init__(self, server: RecordedTls, client: RecordedTls) -> None:
        self.plain = SocketNetwork()
        self.server = server
        self.client = client

    async def listen(self, host: str, port: int, factory: HandlerFactory, **options: Any) -> SocketListener:
        return await self.plain.listen(host, port, factory, tls=self.server, **options)

    async def connect(self, host: str, port: int, factory: HandlerFactory, **options: Any) -> Connection:
        return await self.plain.connect(host, port, factory, tls=self.client, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


class TestTlsNetwork(NetworkContract):
    # Over TLS `connect` itself waits for the other side: a listener that accepts nobody holds the test up.
    test_a_connection_to_a_paused_listener_waits_until_it_resumes = None  # type: ignore[assignment]

    @pytest.fixture(params=["TLSv1.3", "TLSv1.2"])
    async def network(
        self, authority: Authority, tmp_path: Path, request: pytest.FixtureRequest
    ) -> AsyncIterator[SecuredNetwork]:
        server = server_context(tmp_path, authority.issue("127.0.0.1", await SocketNetwork().own_name()))
        if request.param == "TLSv1.2":
            server.maximum_version = ssl.TLSVersion.TLSv1_2
        network = SecuredNetwork(RecordedTls(server), RecordedTls(client_context(tmp_path, authority)))
        yield network
        assert not network.server.failed and not network.client.failed
        assert {protocol for protocol, _, _ in network.server.complete} <= {request.param}
        network.close()

    async def test_ranges_larger_than_the_socket_buffers_arrive_whole_and_never_by_sendfile(
        self, network: SecuredNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The kernel of this machine may have no TLS: sendfile would send the file as it is."""
        plain = []
        monkeypatch.setattr(os, "sendfile", lambda *arguments: plain.append(arguments))
        monkeypatch.setattr(tls_transport, "_kernel_encrypts", lambda sock: False)
        file = await DirectDisk(str(tmp_path)).open("a", create=True)
        body = os.urandom(7_000_000)
        await file.append([body])
        client, server = await self.pair(network)
        size = len(body)
        chunks = [struct.pack(">i", 2 * size + 7), b"one", file.range(0, size), b"two", file.range(0, size), b"x"]
        client.connection.send(chunks)  # type: ignore[arg-type]  # its ranges are the disk's
        await server.until(lambda s: len(s.frames) == 1)
        assert server.frames[0] == b"one" + body + b"two" + body + b"x"
        assert plain == []
        await client.until(lambda c: c.sent == 1)
        assert client.connection.unsent_bytes == 0

    async def test_both_directions_at_once_while_neither_side_reads_for_a_while(self, network: SecuredNetwork) -> None:
        """What the socket did not take is offered again with the same bytes, whatever was queued behind it."""
        client, server = await self.pair(network)
        client.connection.pause()
        server.connection.pause()
        sent: dict[Recorder, list[bytes]] = {client: [], server: []}
        for number in range(60):
            for one in (client, server):
                payload = os.urandom((number * 7919) % 300_000)
                sent[one].append(payload)
                one.connection.send([framed(payload)], now=number % 2 == 0)
            await asyncio.sleep(0)
        assert client.connection.unsent_bytes > 0
        client.connection.resume()
        server.connection.resume()
        await server.until(lambda s: len(s.frames) == 60)
        await client.until(lambda c: len(c.frames) == 60)
        assert (server.frames, client.frames) == (sent[client], sent[server])

    async def test_a_connection_knows_the_certificate_of_its_peer(
        self, network: SecuredNetwork, authority: Authority
    ) -> None:
        client, server = await self.pair(network)
        client.connection.send([framed(b"")])
        await server.until(lambda one: one.frames)
        assert server.connection.peer_certificate is None
        shown = client.connection.peer_certificate
        assert shown is not None
        assert x509.load_der_x509_certificate(shown).issuer == authority.certificate.subject


def secured(tmp_path: Path, issued: Issued, timeout_s: float = 60.0, trust: Authority | None = None) -> RecordedTls:
    return RecordedTls(server_context(tmp_path, issued, trust), timeout_s)


class Accepted:
    """A handler factory that keeps what it made."""

    def __init__(self) -> None:
        self.handlers: list[Recorder] = []

    def __call__(self, connection: Connection) -> Recorder:
        self.handlers.append(Recorder(connection))
        return self.handlers[-1]


class TestReceive:
    """How many records one call of a transport takes."""

    @pytest.fixture
    def pair(self, authority: Authority, tmp_path: Path) -> Iterator[tuple[TlsTransport, ssl.SSLSocket]]:
        with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as thread:
            plain = socket.create_connection(listener.getsockname(), 60)
            context = client_context(tmp_path, authority)
            connecting = thread.submit(context.wrap_socket, plain, server_hostname="127.0.0.1")
            accepted, _ = listener.accept()
            accepted.setblocking(False)
            transport = TlsTransport(accepted, server_context(tmp_path, authority.issue("127.0.0.1")))
            while (waits_for := transport.handshake()) is not Handshake.NOTHING:
                reads = waits_for is Handshake.READ
                select.select([transport.socket] * reads, [transport.socket] * (not reads), [], 60)
            with connecting.result(60) as client:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                yield transport, client
            transport.close()

    def test_a_large_room_is_filled_from_small_records_up_to_a_bound(
        self, pair: tuple[TlsTransport, ssl.SSLSocket]
    ) -> None:
        transport, client = pair
        for _ in range(600):
            client.sendall(b"x" * 10)
        room = memoryview(bytearray(64 * 1024))
        assert transport.receive(room) == 512 * 10
        assert transport.receive(room) == 88 * 10
        with pytest.raises(BlockingIOError):
            transport.receive(room)

    def test_in_a_small_room_a_small_record_ends_the_call(self, pair: tuple[TlsTransport, ssl.SSLSocket]) -> None:
        transport, client = pair
        client.sendall(b"one")
        client.sendall(b"two")
        room = memoryview(bytearray(1024))
        assert [transport.receive(room), transport.receive(room)] == [3, 3]


class TestHandshakes:
    """Those of a listener."""

    @pytest.fixture
    async def network(self) -> AsyncIterator[SocketNetwork]:
        network = SocketNetwork()
        yield network
        network.close()

    async def listen(self, network: SocketNetwork, tls: RecordedTls) -> tuple[Accepted, int]:
        accepted = Accepted()
        listener = await network.listen("127.0.0.1", 0, accepted, max_frame_bytes=1 << 20, tls=tls)
        return accepted, listener.port

    @pytest.mark.parametrize("record_bytes", [100, 1000])
    async def test_large_frames_in_small_records_arrive_whole(
        self, network: SocketNetwork, authority: Authority, tmp_path: Path, record_bytes: int
    ) -> None:
        """librdkafka makes a record of each value. More of them come than one call of `receive` reads."""
        tls = secured(tmp_path, authority.issue("127.0.0.1"))
        received: list[bytes] = []
        came = asyncio.Event()

        class Frames:
            def __init__(self, connection: Connection) -> None:
                pass

            def on_frame(self, frame: memoryview) -> None:
                received.append(bytes(frame))
                came.set()

            def on_sent(self) -> None:
                pass

            def on_close(self, reason: str) -> None:
                came.set()

        listener = await network.listen("127.0.0.1", 0, Frames, max_frame_bytes=1 << 24, tls=tls)
        body = os.urandom(700_000)

        def send() -> None:
            context = client_context(tmp_path, authority)
            plain = socket.create_connection(("127.0.0.1", listener.port), 60)
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
                data = struct.pack(">i", len(body)) + body
                for at in range(0, len(data), record_bytes):
                    secure.sendall(data[at : at + record_bytes])
                secure.recv(1)

        sending = asyncio.get_running_loop().run_in_executor(None, send)
        async with asyncio.timeout(60):
            await came.wait()
        assert received == [body]
        network.close()
        with contextlib.suppress(OSError):
            await sending

    @pytest.mark.parametrize("first", [b"\0\0\0\x10", b"GET / HTTP/1.1\r\n\r\n", b"\x80\x2e"])
    @pytest.mark.public_report(15)
    async def test_a_client_without_tls_is_closed_without_a_byte(
        self, network: SocketNetwork, authority: Authority, tmp_path: Path, first: bytes
    ) -> None:
        """KAFKA-4090: it would take an alert for the length of a frame."""
        tls = secured(tmp_path, authority.issue("127.0.0.1"))
        accepted, port = await self.listen(network, tls)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(first)
        try:
            answer = await reader.read()
        except ConnectionResetError:
            answer = b""
        assert answer == b""
        writer.close()
        await accepted.handlers[0].until(lambda one: one.reason is not None)
        assert accepted.handlers[0].reason == "TLS handshake failed: the first byte begins no TLS handshake"
        assert tls.failed == ["not_tls"]

    @pytest.mark.parametrize("sends", [b"", b"\x16\x03\x01"])
    async def test_a_handshake_that_does_not_go_on_is_closed_after_its_time(
        self, network: SocketNetwork, authority: Authority, tmp_path: Path, sends: bytes
    ) -> None:
        tls = secured(tmp_path, authority.issue("127.0.0.1"), timeout_s=0.2)
        accepted, port = await self.listen(network, tls)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sends)
        with contextlib.suppress(ConnectionResetError):  # what it has sent is not read
            assert await reader.read() == b""
        writer.close()
        await accepted.handlers[0].until(lambda one: one.reason is not None)
        assert accepted.handlers[0].reason == "TLS handshake failed: it is not complete after 0.2 s"
        assert tls.failed == ["timeout"]

    @pytest.mark.public_report(17)
    async def test_a_connection_that_is_paused_when_it_is_accepted_costs_no_handshake(
        self, network: SocketNetwork, authority: Authority, tmp_path: Path
    ) -> None:
        """So are those that are over a limit: they wait for their end. One that is resumed goes on."""
        tls = secured(tmp_path, authority.issue("127.0.0.1"))
        came = asyncio.Event()
        handlers: list[Recorder] = []

        def accept(connection: Connection) -> Recorder:
            connection.pause()
            handlers.append(Recorder(connection))
            came.set()
            return handlers[-1]

        listener = await network.listen("127.0.0.1", 0, accept, max_frame_bytes=1 << 20, tls=tls)
        client = RecordedTls(client_context(tmp_path, authority))
        connecting = asyncio.create_task(
            network.connect("127.0.0.1", listener.port, Recorder, timeout_s=60, max_frame_bytes=1 << 20, tls=client)
        )
        await came.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not connecting.done() and not tls.complete
        handlers[0].connection.resume()
        connection = await connecting
        connection.send([framed(b"hello")])
        await handlers[0].until(lambda one: one.frames == [b"hello"])

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            (["0"], "what it sends keeps TLS busy without a byte of a request"),
            (["1"], "what it sends keeps TLS busy without a byte of a request"),
            (["0", "ffffffff"], "a frame of -1 bytes; allowed are 0 to 1048576"),
        ],
        ids=["updates", "updates that ask for one", "updates behind a frame that is refused"],
    )
    async def test_a_client_that_only_updates_its_keys_is_closed_and_holds_nobody_up(
        self, network: SocketNetwork, authority: Authority, tmp_path: Path, arguments: list[str], reason: str
    ) -> None:
        """One call of OpenSSL reads them for as long as they come, the one that closes too: the loop goes on."""
        accepted, port = await self.listen(network, secured(tmp_path, authority.issue("127.0.0.1")))
        flood = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.contract.key_updates", str(port), *arguments),
            stdout=asyncio.subprocess.PIPE,
        )
        assert flood.stdout is not None
        assert await flood.stdout.readline() == b"connected\n"
        client = RecordedTls(client_context(tmp_path, authority))
        options: Any = {"timeout_s": 60, "max_frame_bytes": 1 << 20, "tls": client}
        connection = await network.connect("127.0.0.1", port, Recorder, **options)
        good = next(one for one in reversed(accepted.handlers) if one.connection.peer == connection.local)
        for number in range(200):
            connection.send([framed(b"%d" % number)])
            await good.until(lambda one, number=number: len(one.frames) == number + 1)
        bad = next(one for one in accepted.handlers if one is not good)
        await bad.until(lambda one: one.reason is not None)
        assert bad.reason == reason
        assert await flood.wait() == 0
        assert not good.connection.is_closed

    async def test_a_receive_that_is_late_writes_where_its_bytes_belong(
        self, network: SocketNetwork, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Memory was short, is there again, and the connection is paused and resumed meanwhile."""
        receive, is_slow = TlsTransport._receive, threading.Event()
        is_late = asyncio.Event()
        loop = asyncio.get_running_loop()

        def slowly(transport: TlsTransport, view: memoryview) -> int:
            if transport._tls.server_side and is_slow.is_set():
                is_slow.clear()
                loop.call_soon_threadsafe(is_late.set)
                threading.Event().wait(0.1)
            return receive(transport, view)

        monkeypatch.setattr(TlsTransport, "_receive", slowly)
        accepted, port = await self.listen(network, secured(tmp_path, authority.issue("127.0.0.1")))
        client = RecordedTls(client_context(tmp_path, authority))
        options: Any = {"timeout_s": 60, "max_frame_bytes": 1 << 20, "tls": client}
        connection = await network.connect("127.0.0.1", port, Recorder, **options)
        data = framed(os.urandom(20_000))
        memory = network._of_clients
        with monkeypatch.context() as short:
            is_short = asyncio.Event()
            short.setattr(memory, "take", lambda receiver, size, whole: is_short.set())
            connection.send([data[:1000]])
            await is_short.wait()
            server = accepted.handlers[0].connection
            is_slow.set()
            connection.send([data[1000:2500]])
            await is_late.wait()
        server.pause()
        server.resume()
        connection.send([data[2500:]])
        await accepted.handlers[0].until(lambda one: one.frames or one.reason is not None)
        assert accepted.handlers[0].frames == [data[4:]]

    async def test_what_is_received_late_is_delivered_when_it_has_come(
        self, network: SocketNetwork, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A machine that is busy may leave any call waiting for longer than a turn of the loop may take."""
        receive, threads = TlsTransport._receive, set[int]()
        goes_on = threading.Event()

        def slowly(transport: TlsTransport, view: memoryview) -> int:
            if transport._tls.server_side:
                threads.add(threading.get_ident())
                goes_on.wait(0.05)  # the loop's limit is 4 to 8 ms
            return receive(transport, view)

        monkeypatch.setattr(TlsTransport, "_receive", slowly)
        accepted, port = await self.listen(network, secured(tmp_path, authority.issue("127.0.0.1")))
        client = RecordedTls(client_context(tmp_path, authority))
        options: Any = {"timeout_s": 60, "max_frame_bytes": 1 << 20, "tls": client}
        connection = await network.connect("127.0.0.1", port, Recorder, **options)
        sent = [os.urandom(number * 1000) for number in range(8)]
        for payload in sent:
            connection.send([framed(payload)])
        await accepted.handlers[0].until(lambda one: len(one.frames) == len(sent))
        assert accepted.handlers[0].frames == sent
        assert len(threads) > 1, "another thread has gone on with the loop"
        connection.close()
        await accepted.handlers[0].until(lambda one: one.reason is not None)
        assert accepted.handlers[0].reason == ""

    async def test_the_client_is_told_why_a_server_is_not_trusted(
        self, network: SocketNetwork, authority: Authority, tmp_path: Path
    ) -> None:
        _, port = await self.listen(network, secured(tmp_path, Authority("another").issue("127.0.0.1")))
        client = RecordedTls(client_context(tmp_path, authority))
        with pytest.raises(ConnectionError, match=r"TLS handshake failed: the peer's certificate: self-signed"):
            await network.connect("127.0.0.1", port, Recorder, timeout_s=60, max_frame_bytes=1 << 20, tls=client)
        assert client.failed == ["certificate_verify_failed"]

    async def test_a_server_that_is_not_the_one_that_was_asked_for_is_refused(
        self, network: SocketNetwork, authority: Authority, tmp_path: Path
    ) -> None:
        _, port = await self.listen(network, secured(tmp_path, authority.issue("broker-1.example", "127.0.0.2")))
        client = RecordedTls(client_context(tmp_path, authority))
        with pytest.raises(ConnectionError, match=r"IP address mismatch, certificate is not valid for '127\.0\.0\.1'"):
            await network.connect("127.0.0.1", port, Recorder, timeout_s=60, max_frame_bytes=1 << 20, tls=client)

    @pytest.mark.parametrize("days", [(-20, -10), (10, 20)], ids=["expired", "not yet valid"])
    async def test_a_client_whose_certificate_is_not_valid_now_gets_no_frame_through(
        self, network: SocketNetwork, authority: Authority, tmp_path: Path, days: tuple[int, int]
    ) -> None:
        tls = secured(tmp_path, authority.issue("127.0.0.1"), trust=authority)
        accepted, port = await self.listen(network, tls)
        client = RecordedTls(client_context(tmp_path, authority, authority.issue(subject="old", days=days)))
        connection = await network.connect(
            "127.0.0.1", port, Recorder, timeout_s=60, max_frame_bytes=1 << 20, tls=client
        )
        connection.send([framed(b"hello")])
        await accepted.handlers[0].until(lambda one: one.reason is not None)
        assert accepted.handlers[0].frames == []
        assert tls.failed == ["certificate_verify_failed"]

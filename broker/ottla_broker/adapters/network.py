"""The Network port on non-blocking sockets: listening, connecting, names and addresses.

Not here: reading and writing one connection (`socket_connection.py`). What TLS needs is imported with the first
connection that has it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla_broker.adapters.buffers import BufferPool
from ottla_broker.adapters.descriptors import is_for_clients
from ottla_broker.adapters.event_loop import TakeoverLoop
from ottla_broker.adapters.receive_memory import ReceiveMemory
from ottla_broker.adapters.socket_connection import PendingHandshake, SocketConnection, reason_of
from ottla_broker.adapters.transport import PlainTransport, Transport
from ottla_broker.ports.network import Connection, HandlerFactory, ReceiveLimits, Tls

if TYPE_CHECKING:
    from ottla_broker.adapters.handshakes import Handshakes

_ACCEPT_PAUSE_S = 0.1
_NOTICE_S = 10.0
_POOL_BYTES = 64 * 1024 * 1024
_LEAST_BACKLOG = 1024
"""The loop accepts between its other work, not on a thread of its own as Apache Kafka does. A connection that finds the
backlog full is forgotten by Linux (SYN cookies), while its client takes it for open and is reset at its first request.
"""

logger = logging.getLogger("ottla.network")


class SocketListener:
    """See `ottla_broker.ports.network.Listener`.

    Args:
        on_accept: gets the socket of each new connection. Raises OSError when the peer has closed it already.
        on_close: called once the listener is closed.
    """

    def __init__(
        self,
        sock: socket.socket,
        is_privileged: bool,
        *,
        loop: asyncio.AbstractEventLoop,
        on_accept: Callable[[socket.socket], object],
        on_close: Callable[[SocketListener], object],
    ) -> None:
        self._socket = sock
        self._loop = loop
        self._on_accept = on_accept
        self._on_close = on_close
        self._is_privileged = is_privileged
        self._is_closed = self._is_paused = self._is_waiting = self._is_watched = False
        self._next_notice = float("-inf")
        self.host, self.port = sock.getsockname()[:2]
        self._watch()

    def _on_acceptable(self) -> None:
        for _ in range(64):
            if self._is_paused or self._is_closed:
                return  # the connection before has caused it
            try:
                sock, _address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Out of file descriptors or memory: the waiting connections stay in the backlog.
                self._wait_and_accept(f"cannot accept: {reason_of(error)}")
                return
            if not self._is_privileged and not is_for_clients(sock.fileno()):
                sock.close()
                self._wait_and_accept(
                    "a connection is closed: the rest of the limit of open files is for files and brokers"
                )
                return
            try:
                self._on_accept(sock)
            except OSError:
                sock.close()  # the peer has closed it already

    def pause(self) -> None:
        self._is_paused = True
        self._watch()

    def resume(self) -> None:
        self._is_paused = False
        self._watch()

    def _wait_and_accept(self, reason: str) -> None:
        """Accepts no connection for a moment."""
        now = self._loop.time()
        if now >= self._next_notice:
            self._next_notice = now + _NOTICE_S
            logger.error("listener %s:%d: %s; trying again", self.host, self.port, reason)
        self._is_waiting = True
        self._watch()
        self._loop.call_later(_ACCEPT_PAUSE_S, self._accept_again)

    def _accept_again(self) -> None:
        self._is_waiting = False
        self._watch()

    def _watch(self) -> None:
        """Makes the loop report new connections, or not."""
        is_wanted = not (self._is_paused or self._is_waiting or self._is_closed)
        if is_wanted and not self._is_watched:
            self._loop.add_reader(self._socket.fileno(), self._on_acceptable)
        elif self._is_watched and not is_wanted:
            self._loop.remove_reader(self._socket.fileno())
        self._is_watched = is_wanted

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._watch()
            self._socket.close()
            self._on_close(self)


class SocketNetwork:
    """See `ottla_broker.ports.network.Network`. One per broker, on one loop.

    Args:
        send_buffer_bytes, receive_buffer_bytes: `socket.send.buffer.bytes` and `socket.receive.buffer.bytes`;
            -1 leaves the size to the kernel.
        backlog: `socket.listen.backlog.size`; at least `_LEAST_BACKLOG` connections may wait all the same.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop | None = None,
        *,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        backlog: int = 50,
    ) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self._of_clients = ReceiveMemory(BufferPool(_POOL_BYTES), self._loop.time, self._loop.call_later)
        self._own = ReceiveMemory(BufferPool(_POOL_BYTES), self._loop.time, self._loop.call_later)
        """Of the connections that this broker opens."""
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes
        self._backlog = backlog
        self._guard = self._loop if isinstance(self._loop, TakeoverLoop) else None
        self._connections: dict[SocketConnection, None] = {}
        self._handshakes: Handshakes | None = None
        self._listeners: dict[SocketListener, None] = {}

    async def listen(
        self,
        host: str,
        port: int,
        factory: HandlerFactory,
        *,
        max_frame_bytes: int,
        is_privileged: bool = False,
        limits: ReceiveLimits | None = None,
        tls: Tls | None = None,
    ) -> SocketListener:
        infos = await self._loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE if not host else 0
        )
        family, kind, protocol, _name, address = infos[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self._receive_buffer_bytes > 0:  # before listen, so that the window scale fits
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
            sock.bind(address)
            sock.listen(max(self._backlog, _LEAST_BACKLOG))
        except OSError as error:
            sock.close()
            raise OSError(error.errno, f"cannot listen on {host or '*'}:{port}: {reason_of(error)}") from error
        if limits is not None:
            self._of_clients.limit(limits, max_frame_bytes)
        listener = SocketListener(
            sock,
            is_privileged,
            loop=self._loop,
            on_accept=partial(self._accept, factory, max_frame_bytes, limits, tls, is_privileged),
            on_close=lambda closed: self._listeners.pop(closed, None),
        )
        self._listeners[listener] = None
        return listener

    @property
    def received_bytes(self) -> int:
        return self._of_clients.used_bytes

    async def resolve(self, host: str) -> list[str]:
        return await self._addresses(host)

    async def own_name(self) -> str:
        host = socket.gethostname()
        try:
            address = (await self._addresses(host))[0]
        except OSError as error:
            raise OSError(error.errno, f"{host}: {reason_of(error)}") from error
        try:
            name, _ = await self._loop.getnameinfo((address, 0), socket.NI_NAMEREQD)
            resolves_back = address in await self._addresses(name)
        except OSError:
            return address
        return name if resolves_back else address

    async def _addresses(self, host: str) -> list[str]:
        """IPv4 addresses first, as Java orders them."""
        infos = await self._loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        ordered = sorted(infos, key=lambda info: info[0] != socket.AF_INET)
        return list(dict.fromkeys(str(info[4][0]) for info in ordered))

    async def connect(
        self,
        host: str,
        port: int,
        factory: HandlerFactory,
        *,
        timeout_s: float,
        max_frame_bytes: int,
        tls: Tls | None = None,
    ) -> Connection:
        async with asyncio.timeout(timeout_s):
            infos = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            failure: OSError = OSError(errno.EADDRNOTAVAIL, f"no address for {host}")
            for family, kind, protocol, _name, address in infos:
                sock = socket.socket(family, kind, protocol)
                sock.setblocking(False)
                try:
                    await self._loop.sock_connect(sock, address)
                except OSError as error:
                    sock.close()
                    failure = error
                    continue
                except BaseException:
                    sock.close()
                    raise
                self._configure(sock)
                transport: Transport = PlainTransport(sock)
                if tls is not None:
                    from ottla_broker.adapters.client_handshake import connect_tls

                    transport = await connect_tls(self._loop, sock, host, tls)
                return self._add(transport, factory, max_frame_bytes, self._own)
            raise failure

    def _accept(
        self,
        factory: HandlerFactory,
        max_frame_bytes: int,
        limits: ReceiveLimits | None,
        tls: Tls | None,
        is_privileged: bool,
        sock: socket.socket,
    ) -> None:
        self._configure(sock)
        share = None if limits is None else limits.share
        if tls is None:
            self._add(PlainTransport(sock), factory, max_frame_bytes, self._of_clients, share)
            return
        from ottla_broker.adapters.handshakes import Handshakes, ServerHandshake
        from ottla_broker.adapters.tls_transport import TlsTransport

        if self._handshakes is None:
            self._handshakes = Handshakes(self._loop)
        transport = TlsTransport(sock, tls.context(), guard=self._guard)
        handshake = ServerHandshake(self._handshakes, transport, tls, is_privileged=is_privileged)
        try:
            self._add(transport, factory, max_frame_bytes, self._of_clients, share, handshake)
        except OSError:
            transport.close()  # `sock` has given its descriptor away
            raise

    def _configure(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)

    def _add(
        self,
        transport: Transport,
        factory: HandlerFactory,
        max_frame_bytes: int,
        memory: ReceiveMemory[bytearray],
        share: Callable[[memoryview, int], float] | None = None,
        handshake: PendingHandshake | None = None,
    ) -> SocketConnection:
        connection = SocketConnection(
            transport,
            factory,
            max_frame_bytes,
            loop=self._loop,
            memory=memory,
            share=share,
            handshake=handshake,
            on_end=lambda ended: self._connections.pop(ended, None),
        )
        self._connections[connection] = None
        return connection

    def close(self) -> None:
        for listener in list(self._listeners):
            listener.close()
        for connection in list(self._connections):
            connection.close()

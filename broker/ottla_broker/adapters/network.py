"""The Network port on non-blocking sockets, read and written by the event loop's readiness callbacks.

Receiving: bytes are read into a pooled buffer (`buffers.py`) and complete frames are slices of it; only the incomplete
frame at the end of a full buffer is copied. Sending: everything that is queued in one turn of the loop is sent in one
system call; file ranges are sent with sendfile, from the page cache.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence

from ottla_broker.adapters.buffers import SMALLEST_BYTES, BufferPool
from ottla_broker.adapters.descriptors import is_for_clients
from ottla_broker.ports.network import Chunk, Connection, ConnectionHandler, HandlerFactory

_LENGTH = struct.Struct(">i")
_LARGEST_IDLE_BUFFER = 256 * 1024
_MAX_SENDMSG_CHUNKS = 64
_SENDFILE_BYTES = 4 * 1024 * 1024
_ACCEPT_PAUSE_S = 0.1
_NOTICE_S = 10.0
_POOL_BYTES = 64 * 1024 * 1024

logger = logging.getLogger("ottla.network")


class SocketConnection:
    """See `ottla_broker.ports.network.Connection`."""

    __slots__ = (
        "_buffer",
        "_closing",
        "_end",
        "_fd",
        "_flush_is_scheduled",
        "_handler",
        "_is_closed",
        "_is_delivering",
        "_is_reading",
        "_is_writing",
        "_loop",
        "_max_frame_bytes",
        "_owner",
        "_paused",
        "_pool",
        "_queue",
        "_room_hint",
        "_socket",
        "_start",
        "_unsent",
        "_view",
        "local",
        "peer",
    )

    def __init__(
        self, owner: SocketNetwork, sock: socket.socket, factory: HandlerFactory, max_frame_bytes: int
    ) -> None:
        self._owner = owner
        self._loop = owner.loop
        self._pool = owner.pool
        self._socket = sock
        self._fd = sock.fileno()
        self._max_frame_bytes = max_frame_bytes
        self.peer: tuple[str, int] = sock.getpeername()[:2]
        self.local: tuple[str, int] = sock.getsockname()[:2]
        self._buffer = self._pool.take(SMALLEST_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._room_hint = SMALLEST_BYTES
        self._paused = False
        self._closing = False
        self._is_closed = False
        self._is_reading = False
        self._is_writing = False
        self._is_delivering = False
        self._flush_is_scheduled = False
        self._queue: deque[Chunk] = deque()
        self._unsent = 0
        self._handler: ConnectionHandler = factory(self)
        if not self._paused and not self._is_closed:
            self._watch_reads()

    @property
    def unsent_bytes(self) -> int:
        return self._unsent

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    # Receiving

    def pause(self) -> None:
        self._paused = True
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        if not self._paused or self._is_closed or self._closing:
            return
        self._paused = False
        if self._end - self._start >= 4:
            # Received frames come first, in another turn of the loop: resume may be called from on_frame.
            self._loop.call_soon(self._deliver_and_watch)
        else:
            self._watch_reads()

    def _watch_reads(self) -> None:
        if not self._is_reading and not self._is_closed:
            self._is_reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def _deliver_and_watch(self) -> None:
        if self._is_closed or self._paused or self._is_delivering:
            return
        self._deliver()
        if not self._paused and not self._is_closed:
            self._watch_reads()

    def _on_readable(self) -> None:
        try:
            count = self._socket.recv_into(self._view[self._end :])
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end_connection(_reason(error))
            return
        if count == 0:
            partial = self._end - self._start
            self._end_connection(f"the peer closed within a frame ({partial} bytes of it received)" if partial else "")
            return
        self._end += count
        self._deliver()

    def _deliver(self) -> None:
        self._is_delivering = True
        needed = 4
        while True:
            start = self._start
            available = self._end - start
            if available < 4:
                needed = 4
                break
            (length,) = _LENGTH.unpack_from(self._buffer, start)
            if length < 0 or length > self._max_frame_bytes:
                self._end_connection(f"a frame of {length} bytes; allowed are 0 to {self._max_frame_bytes}")
                break
            needed = 4 + length
            if available < needed:
                break
            self._start = start + needed
            self._handler.on_frame(self._view[start + 4 : start + needed])
            if self._paused or self._is_closed:
                break
        self._is_delivering = False
        if not self._is_closed:
            self._make_room(needed)

    def _make_room(self, needed: int) -> None:
        """Ensures that the frame in progress fits into the buffer and that there is room to receive."""
        capacity = len(self._buffer)
        pending = self._end - self._start
        if self._end == capacity and self._room_hint < _LARGEST_IDLE_BUFFER:
            self._room_hint *= 2  # a full buffer: the peer sends faster than we read
        fits = self._start + needed <= capacity
        if fits and (pending >= 4 or capacity - self._end >= capacity >> 2):
            return
        fresh = self._pool.take(max(needed, self._room_hint))
        view = memoryview(fresh)
        view[:pending] = self._view[self._start : self._end]
        self._buffer = fresh
        self._view = view
        self._start = 0
        self._end = pending

    # Sending

    def send(self, chunks: Sequence[Chunk], *, now: bool = False) -> None:
        if self._is_closed:
            for chunk in chunks:
                _drop(chunk)
            return
        queue = self._queue
        size = 0
        for chunk in chunks:
            size += _size(chunk)
            queue.append(chunk)
        self._unsent += size
        if self._is_writing:
            return
        if now:
            self._flush()
        elif not self._flush_is_scheduled:
            self._flush_is_scheduled = True
            self._loop.call_soon(self._flush_scheduled)

    def close_after_send(self) -> None:
        self.pause()
        self._closing = True
        if not self._queue and not self._flush_is_scheduled:
            self._end_connection("")

    def _flush_scheduled(self) -> None:
        self._flush_is_scheduled = False
        if self._queue:
            self._flush()
        elif self._closing:
            self._end_connection("")

    def _flush(self) -> None:
        if self._is_closed:
            return
        queue = self._queue
        try:
            while queue:
                first = queue[0]
                if isinstance(first, bytes | bytearray | memoryview):
                    sent = self._send_buffers()
                else:
                    sent = self._send_file_range(first)
                if not sent:
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._end_connection(_reason(error))
            return
        if queue:
            if not self._is_writing:
                self._is_writing = True
                self._loop.add_writer(self._fd, self._flush)
            return
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._fd)
        self._unsent = 0
        if self._closing:
            self._end_connection("")
        else:
            self._handler.on_sent()

    def _send_buffers(self) -> bool:
        """Sends the buffers at the head of the queue. True when it sent all that it tried to send."""
        queue = self._queue
        buffers: list[bytes | bytearray | memoryview] = []
        more_follows = False
        total = 0
        for chunk in queue:
            if not isinstance(chunk, bytes | bytearray | memoryview):
                more_follows = True
                break
            if len(buffers) == _MAX_SENDMSG_CHUNKS:
                more_follows = True
                break
            buffers.append(chunk)
            total += len(chunk)
        flags = socket.MSG_MORE if more_follows else 0
        single = len(buffers) == 1
        sent = self._socket.send(buffers[0], flags) if single else self._socket.sendmsg(buffers, (), flags)
        self._unsent -= sent
        if sent == total:
            if len(buffers) == len(queue):
                queue.clear()
            else:
                for _ in buffers:
                    queue.popleft()
            return True
        for buffer in buffers:
            size = len(buffer)
            if sent < size:
                queue[0] = memoryview(buffer)[sent:]
                break
            sent -= size
            queue.popleft()
        return False

    def _send_file_range(self, chunk: Chunk) -> bool:
        fd = getattr(chunk, "fd", None)
        if fd is None:  # a range of another adapter: sends its bytes
            self._queue[0] = chunk.read()  # type: ignore[union-attr]
            chunk.release()  # type: ignore[union-attr]
            return True
        pending = _PendingRange(chunk) if not isinstance(chunk, _PendingRange) else chunk
        self._queue[0] = pending  # type: ignore[assignment]
        while pending.length:
            pending.check()
            sent = os.sendfile(self._fd, pending.fd, pending.position, min(pending.length, _SENDFILE_BYTES))
            if sent == 0:
                raise OSError(errno.EIO, "a file is shorter than the range being sent")
            pending.position += sent
            pending.length -= sent
            self._unsent -= sent
        pending.release()
        self._queue.popleft()
        return True

    # Ending

    def close(self) -> None:
        self._end_connection("")

    def _end_connection(self, reason: str) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._is_reading:
            self._loop.remove_reader(self._fd)
            self._is_reading = False
        if self._is_writing:
            self._loop.remove_writer(self._fd)
            self._is_writing = False
        for chunk in self._queue:
            _drop(chunk)
        self._queue.clear()
        self._unsent = 0
        self._socket.close()
        self._owner.forget(self)
        self._loop.call_soon(self._notify_closed, reason)

    def _notify_closed(self, reason: str) -> None:
        self._view = memoryview(b"")
        self._buffer = bytearray()
        self._handler.on_close(reason)


class _PendingRange:
    """A file range that is being sent, from a position on."""

    __slots__ = ("_range", "check", "fd", "length", "position")

    def __init__(self, chunk: Chunk) -> None:
        self._range = chunk
        self.check: Callable[[], None] = chunk.check  # type: ignore[union-attr]
        self.fd: int = chunk.fd  # type: ignore[union-attr]
        self.position: int = chunk.position  # type: ignore[union-attr]
        self.length: int = chunk.length  # type: ignore[union-attr]

    def release(self) -> None:
        self._range.release()  # type: ignore[union-attr]


def _size(chunk: Chunk) -> int:
    if isinstance(chunk, bytes | bytearray | memoryview):
        return len(chunk)
    return chunk.length


def _drop(chunk: Chunk) -> None:
    if not isinstance(chunk, bytes | bytearray | memoryview):
        chunk.release()


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__


class SocketListener:
    """See `ottla_broker.ports.network.Listener`."""

    def __init__(
        self,
        owner: SocketNetwork,
        sock: socket.socket,
        factory: HandlerFactory,
        max_frame_bytes: int,
        is_privileged: bool,
    ) -> None:
        self._owner = owner
        self._socket = sock
        self._factory = factory
        self._max_frame_bytes = max_frame_bytes
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
                self._wait_and_accept(f"cannot accept: {_reason(error)}")
                return
            if not self._is_privileged and not is_for_clients(sock.fileno()):
                sock.close()
                self._wait_and_accept(
                    "a connection is closed: the rest of the limit of open files is for files and brokers"
                )
                return
            try:
                self._owner.add(sock, self._factory, self._max_frame_bytes)
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
        now = self._owner.loop.time()
        if now >= self._next_notice:
            self._next_notice = now + _NOTICE_S
            logger.error("listener %s:%d: %s; trying again", self.host, self.port, reason)
        self._is_waiting = True
        self._watch()
        self._owner.loop.call_later(_ACCEPT_PAUSE_S, self._accept_again)

    def _accept_again(self) -> None:
        self._is_waiting = False
        self._watch()

    def _watch(self) -> None:
        """Makes the loop report new connections, or not."""
        is_wanted = not (self._is_paused or self._is_waiting or self._is_closed)
        if is_wanted and not self._is_watched:
            self._owner.loop.add_reader(self._socket.fileno(), self._on_acceptable)
        elif self._is_watched and not is_wanted:
            self._owner.loop.remove_reader(self._socket.fileno())
        self._is_watched = is_wanted

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._watch()
            self._socket.close()
            self._owner.forget_listener(self)


class SocketNetwork:
    """See `ottla_broker.ports.network.Network`. One per broker, on one loop.

    Args:
        send_buffer_bytes, receive_buffer_bytes: `socket.send.buffer.bytes` and `socket.receive.buffer.bytes`;
            -1 leaves the size to the kernel.
        backlog: `socket.listen.backlog.size`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop | None = None,
        *,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        backlog: int = 50,
    ) -> None:
        self.loop = loop or asyncio.get_running_loop()
        self.pool = BufferPool(_POOL_BYTES)
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes
        self._backlog = backlog
        self._connections: dict[SocketConnection, None] = {}
        self._listeners: dict[SocketListener, None] = {}

    async def listen(
        self, host: str, port: int, factory: HandlerFactory, *, max_frame_bytes: int, is_privileged: bool = False
    ) -> SocketListener:
        infos = await self.loop.getaddrinfo(
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
            sock.listen(self._backlog)
        except OSError as error:
            sock.close()
            raise OSError(error.errno, f"cannot listen on {host or '*'}:{port}: {_reason(error)}") from error
        listener = SocketListener(self, sock, factory, max_frame_bytes, is_privileged)
        self._listeners[listener] = None
        return listener

    async def resolve(self, host: str) -> list[str]:
        return await self._addresses(host)

    async def own_name(self) -> str:
        host = socket.gethostname()
        try:
            address = (await self._addresses(host))[0]
        except OSError as error:
            raise OSError(error.errno, f"{host}: {_reason(error)}") from error
        try:
            name, _ = await self.loop.getnameinfo((address, 0), socket.NI_NAMEREQD)
            resolves_back = address in await self._addresses(name)
        except OSError:
            return address
        return name if resolves_back else address

    async def _addresses(self, host: str) -> list[str]:
        """IPv4 addresses first, as Java orders them."""
        infos = await self.loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        ordered = sorted(infos, key=lambda info: info[0] != socket.AF_INET)
        return list(dict.fromkeys(str(info[4][0]) for info in ordered))

    async def connect(
        self, host: str, port: int, factory: HandlerFactory, *, timeout_s: float, max_frame_bytes: int
    ) -> Connection:
        async with asyncio.timeout(timeout_s):
            infos = await self.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            failure: OSError = OSError(errno.EADDRNOTAVAIL, f"no address for {host}")
            for family, kind, protocol, _name, address in infos:
                sock = socket.socket(family, kind, protocol)
                sock.setblocking(False)
                try:
                    await self.loop.sock_connect(sock, address)
                except OSError as error:
                    sock.close()
                    failure = error
                    continue
                except BaseException:
                    sock.close()
                    raise
                return self.add(sock, factory, max_frame_bytes)
            raise failure

    def add(self, sock: socket.socket, factory: HandlerFactory, max_frame_bytes: int) -> SocketConnection:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
        connection = SocketConnection(self, sock, factory, max_frame_bytes)
        self._connections[connection] = None
        return connection

    def forget(self, connection: SocketConnection) -> None:
        self._connections.pop(connection, None)

    def forget_listener(self, listener: SocketListener) -> None:
        self._listeners.pop(listener, None)

    def close(self) -> None:
        for listener in list(self._listeners):
            listener.close()
        for connection in list(self._connections):
            connection.close()
